package simulate

import (
	"context"
	"fmt"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"
)

// schedulerLabel is that of the scheduler's Deployment.
const schedulerLabel = "app.kubernetes.io/name=lockstep-scheduler"

// ConfigOf returns the configuration of the scheduler that runs in a cluster, as its Deployment mounts it, and where it was found;
// nil where there is none.
func ConfigOf(ctx context.Context, client kubernetes.Interface) (config []byte, where string, err error) {
	deployments, err := client.AppsV1().Deployments(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: schedulerLabel})
	if err != nil {
		return nil, "", fmt.Errorf("looking for the scheduler's Deployment: %w", err)
	}
	for i := range deployments.Items {
		deployment := &deployments.Items[i]
		for _, volume := range deployment.Spec.Template.Spec.Volumes {
			if volume.ConfigMap == nil {
				continue
			}
			mounted, err := client.CoreV1().ConfigMaps(deployment.Namespace).Get(ctx, volume.ConfigMap.Name, metav1.GetOptions{})
			if err != nil {
				return nil, "", fmt.Errorf("reading the scheduler's configuration: %w", err)
			}
			if text, ok := mounted.Data["config.yaml"]; ok {
				return []byte(text), fmt.Sprintf("ConfigMap %s/%s", mounted.Namespace, mounted.Name), nil
			}
		}
	}
	return nil, "", nil
}

// WriteConfig writes a scheduler's configuration for a simulation into a directory, and returns its path: without what it says of how to
// reach the API server, and of leader election.
func WriteConfig(dir string, config []byte) (string, error) {
	fields := map[string]any{}
	if err := yaml.Unmarshal(config, &fields); err != nil {
		return "", fmt.Errorf("reading the scheduler's configuration: %w", err)
	}
	delete(fields, "clientConnection")
	fields["leaderElection"] = map[string]any{"leaderElect": false}
	data, err := yaml.Marshal(fields)
	if err != nil {
		return "", fmt.Errorf("writing the scheduler's configuration: %w", err)
	}
	file, err := os.CreateTemp(dir, "config-*.yaml")
	if err != nil {
		return "", fmt.Errorf("writing the scheduler's configuration: %w", err)
	}
	defer file.Close()
	if _, err := file.Write(data); err != nil {
		return "", fmt.Errorf("writing the scheduler's configuration: %w", err)
	}
	return file.Name(), nil
}
