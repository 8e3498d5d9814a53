package page

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// StripPod is a transform for the cache: it adds what this package reads of a pod to what another transform keeps.
func StripPod(keep cache.TransformFunc) cache.TransformFunc {
	return func(object any) (any, error) {
		pod, isPod := object.(*v1.Pod)
		kept, err := keep(object)
		stripped, wasPod := kept.(*v1.Pod)
		if err == nil && isPod && wasPod {
			stripped.Status.NominatedNodeName = pod.Status.NominatedNodeName
		}
		return kept, err
	}
}

// StripNode is a transform for the cache: it adds what this package reads of a node to what another transform keeps.
func StripNode(keep cache.TransformFunc) cache.TransformFunc {
	return func(object any) (any, error) {
		node, isNode := object.(*v1.Node)
		kept, err := keep(object)
		stripped, wasNode := kept.(*v1.Node)
		if err != nil || !isNode || !wasNode {
			return kept, err
		}
		for i := range node.Status.Conditions {
			if c := &node.Status.Conditions[i]; c.Type == v1.NodeReady {
				stripped.Status.Conditions = []v1.NodeCondition{{Type: c.Type, Status: c.Status}}
			}
		}
		return kept, nil
	}
}
