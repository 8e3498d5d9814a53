package simulate

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	componentbaseconfig "k8s.io/component-base/config/v1alpha1"
	"sigs.k8s.io/yaml"

	schedulerapp "github.com/lockstep-sh/lockstep/cmd/scheduler/app"
)

// schedulerLabel is the label of the scheduler's Deployment.
const schedulerLabel = "app.kubernetes.io/name=lockstep-scheduler"

// The ConfigMap, in kube-system, and its key that have the configuration of a scheduler that no Deployment runs: make
// run writes it.
const (
	configMap = "lockstep-scheduler-config"
	configKey = "config.yaml"

	// stockLease is the name of the lease of a configuration that names none.
	stockLease = "kube-scheduler"
)

// ConfigOf returns the configuration of the scheduler that runs in a cluster, as its Deployment names and mounts it,
// and where it was found; without a Deployment it is that of a ConfigMap lockstep-scheduler-config, and nil without
// one. A configuration that is not in a ConfigMap is an error.
func ConfigOf(ctx context.Context, client kubernetes.Interface) (config []byte, where string, err error) {
	deployments, err := client.AppsV1().Deployments(metav1.NamespaceAll).List(ctx,
		metav1.ListOptions{LabelSelector: schedulerLabel})
	if err != nil {
		return nil, "", fmt.Errorf("looking for the scheduler's Deployment: %w", err)
	}
	for i := range deployments.Items {
		deployment := &deployments.Items[i]
		file, from, err := mountedConfig(&deployment.Spec.Template.Spec)
		if err != nil {
			return nil, "", fmt.Errorf("reading Deployment %s/%s: %w", deployment.Namespace, deployment.Name, err)
		}
		if from != "" {
			return readConfig(ctx, client, deployment.Namespace, from, file)
		}
	}
	config, where, err = readConfig(ctx, client, metav1.NamespaceSystem, configMap, configKey)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) && len(deployments.Items) == 0 {
		return nil, "", nil
	}
	return config, where, err
}

// readConfig reads the configuration in a ConfigMap.
func readConfig(ctx context.Context, client kubernetes.Interface, namespace, name, key string) ([]byte, string, error) {
	found, err := client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, "", fmt.Errorf("reading the scheduler's configuration: %w", err)
	}
	text, ok := found.Data[key]
	if !ok {
		return nil, "", fmt.Errorf("reading the scheduler's configuration: ConfigMap %s/%s has no %q", namespace, name, key)
	}
	return []byte(text), fmt.Sprintf("ConfigMap %s/%s", namespace, name), nil
}

// leaseOf returns the namespace/name of the lease that a configuration names, nil for the built-in one; empty where
// there is no leader election.
func leaseOf(config []byte) (string, error) {
	if config == nil {
		config = schedulerapp.DefaultConfig()
	}
	var read struct {
		LeaderElection componentbaseconfig.LeaderElectionConfiguration
	}
	if err := yaml.Unmarshal(config, &read); err != nil {
		return "", fmt.Errorf("reading the scheduler's configuration: %w", err)
	}
	election := read.LeaderElection
	if election.LeaderElect != nil && !*election.LeaderElect {
		return "", nil
	}
	return cmp.Or(election.ResourceNamespace, metav1.NamespaceSystem) + "/" +
		cmp.Or(election.ResourceName, stockLease), nil
}

// mountedConfig returns the key and the ConfigMap of the file that a container's --config names; none where no
// container has it.
func mountedConfig(spec *v1.PodSpec) (key, configMap string, err error) {
	for i := range spec.Containers {
		container := &spec.Containers[i]
		file := flagOf(append(slices.Clone(container.Command), container.Args...), "--config")
		if file == "" {
			continue
		}
		for _, mount := range container.VolumeMounts {
			inside, ok := strings.CutPrefix(file, strings.TrimSuffix(mount.MountPath, "/"))
			if !ok || inside != "" && inside[0] != '/' {
				continue
			}
			key := path.Join(mount.SubPath, strings.TrimPrefix(inside, "/"))
			at := slices.IndexFunc(spec.Volumes, func(volume v1.Volume) bool { return volume.Name == mount.Name })
			if at < 0 || spec.Volumes[at].ConfigMap == nil {
				break
			}
			from := spec.Volumes[at].ConfigMap
			if item := slices.IndexFunc(from.Items, func(item v1.KeyToPath) bool { return item.Path == key }); item >= 0 {
				key = from.Items[item].Key
			}
			return key, from.Name, nil
		}
		return "", "", fmt.Errorf("container %q has --config %s, which is in no ConfigMap", container.Name, file)
	}
	return "", "", nil
}

// flagOf returns the value of a flag on a command line; empty for none.
func flagOf(args []string, name string) string {
	for i, arg := range args {
		if value, ok := strings.CutPrefix(arg, name+"="); ok {
			return value
		}
		if arg == name && i+1 < len(args) {
			return args[i+1]
		}
	}
	return ""
}

// writeConfig writes a scheduler's configuration for a simulation into a directory, and returns its path; empty for the
// built-in one. It leaves out how to reach the API server, and leader election.
func writeConfig(dir string, config []byte) (string, error) {
	if config == nil {
		return "", nil
	}
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
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return "", fmt.Errorf("writing the scheduler's configuration: %w", err)
	}
	return file, nil
}
