package resource

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// AskingContainers returns containers that ask the same of a node, without what they run.
func AskingContainers(containers []v1.Container) []v1.Container {
	var asking []v1.Container
	for _, c := range containers {
		asking = append(asking, v1.Container{
			Name: c.Name, Image: c.Image, Resources: *c.Resources.DeepCopy(), Ports: slices.Clone(c.Ports),
			RestartPolicy: c.RestartPolicy,
		})
	}
	return asking
}

// IsAttached reports whether a volume has to be provisioned, or attached to a node, which not every node may allow.
func IsAttached(volume v1.Volume) bool {
	return volume.PersistentVolumeClaim != nil || volume.Ephemeral != nil || volume.CSI != nil
}
