package gangspec

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// QueueOf returns the queue of a pod: that of its label, else of its PodGroup, else of its namespace, else the default
// one. podGroups returns the PodGroups of a name, and ofNamespace the queue that a namespace names; empty for none. A
// namespace may name what is too long for a queue: then the beginning of it counts.
func QueueOf(pod *v1.Pod, podGroups func(Key) PodGroups, ofNamespace func(string) string) string {
	if name := pod.Labels[v1alpha1.QueueLabel]; name != "" {
		return name
	}
	if key, _, ok := KeyOf(pod); ok {
		if name := podGroups(key).QueueOf(pod); name != "" {
			return name
		}
	}
	if name := ofNamespace(pod.Namespace); name != "" {
		return clipName(name)
	}
	return v1alpha1.DefaultQueue
}

// clipName cuts a name to what the name of an object can have.
func clipName(name string) string {
	if len(name) <= validation.DNS1123SubdomainMaxLength {
		return name
	}
	return strings.ToValidUTF8(name[:validation.DNS1123SubdomainMaxLength], "")
}
