package gang

import (
	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// QueueOf returns the queue of a pod: that of its label, else of its PodGroup, else of its
// namespace, else the default one. ofGang and ofNamespace return what those name; empty for none.
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
