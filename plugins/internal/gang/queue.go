package gang

import (
	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// QueueOf is the queue of a pod: its label says, or its PodGroup, or its namespace, or it is
// the default one. ofGang and ofNamespace answer what those say; empty for nothing.
func QueueOf(pod *v1.Pod, ofGang func(Key) string, ofNamespace func(string) string) string {
	if name := pod.Labels[v1alpha1.QueueLabel]; name != "" {
		return name
	}
	if key, _, ok := KeyOf(pod); ok {
		if name := ofGang(key); name != "" {
			return name
		}
	}
	if name := ofNamespace(pod.Namespace); name != "" {
		return name
	}
	return v1alpha1.DefaultQueue
}
