package source

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
)

// schedulerLabel is the label of the scheduler's Deployment.
const schedulerLabel = "app.kubernetes.io/name=lockstep-scheduler"

// The ConfigMap, in kube-system, and its key that have the configuration of a scheduler that no Deployment runs: make
// run writes it.
const (
	configMap = "lockstep-scheduler-config"
	configKey = "config.yaml"
)

// NoConfig says that [ConfigOf] found none.
const NoConfig = "neither a Deployment of lockstep-scheduler nor a ConfigMap kube-system/" + configMap + " was found"

// ConfigOf returns the configuration of the scheduler that runs in a cluster, as its Deployment names and mounts it,
// and where it was found; without a Deployment it is that of a ConfigMap lockstep-scheduler-config, and nil without
// one. A configuration that is not in a ConfigMap is an error.
func ConfigOf(ctx context.Context, a *access.Access) (config []byte, where string, err error) {
	kubeconfig, err := a.Config()
	if err != nil {
		return nil, "", err
	}
	client, err := kubernetes.NewForConfig(kubeconfig)
	if err != nil {
		return nil, "", fmt.Errorf("making a client: %w", err)
	}
	return configOf(ctx, client)
}

func configOf(ctx context.Context, client kubernetes.Interface) (config []byte, where string, err error) {
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

// DeviceClassesOf returns the resources that the devices of DeviceClasses count as by the arguments of FairShare in a
// scheduler's configuration. All profiles say the same, or the scheduler does not start.
func DeviceClassesOf(config []byte) (map[string]v1.ResourceName, error) {
	var read struct {
		Profiles []struct {
			PluginConfig []struct {
				Name string
				Args struct{ DeviceClasses map[string]v1.ResourceName }
			}
		}
	}
	if err := yaml.Unmarshal(config, &read); err != nil {
		return nil, fmt.Errorf("reading the scheduler's configuration: %w", err)
	}
	for _, profile := range read.Profiles {
		for _, plugin := range profile.PluginConfig {
			if plugin.Name == "FairShare" && len(plugin.Args.DeviceClasses) > 0 {
				return plugin.Args.DeviceClasses, nil
			}
		}
	}
	return nil, nil
}
