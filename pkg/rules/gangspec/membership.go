package gangspec

import (
	"cmp"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// Key names a gang: the namespace of its pods, and the name they agree on.
type Key struct {
	Namespace, Name string
}

// String returns the form in which users write it: namespace/name.
func (k Key) String() string { return k.Namespace + "/" + k.Name }

// In returns the name of the gang of a profile among those of all: profile/namespace/name.
func (k Key) In(profile string) string { return profile + "/" + k.String() }

func CompareKeys(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// ParseKey reads namespace/name.
func ParseKey(s string) (Key, error) {
	namespace, name, ok := strings.Cut(s, "/")
	if !ok || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return Key{}, fmt.Errorf("reading %q: want namespace/name", s)
	}
	return Key{Namespace: namespace, Name: name}, nil
}

// Source is the way by which a pod joined its gang, and so determines which object, if any, may
// describe it.
type Source int

const (
	// FromAnnotation: the gang annotations; a PodGroup of that name may add to them.
	FromAnnotation Source = iota
	// FromLabel: the label of a community PodGroup, or the label form of the annotations.
	FromLabel
	// FromSchedulingGroup: spec.schedulingGroup, a native PodGroup.
	FromSchedulingGroup
	// FromOwner: the gang is the pods of one owner; lockstep-controller makes a community
	// PodGroup for it.
	FromOwner
)

// MemberLabels are the labels that make a pod a member of a gang.
var MemberLabels = []string{v1alpha1.PodGroupLabel, v1alpha1.PodGroupXLabel, v1alpha1.PodGroupNameLabel,
	v1alpha1.PodGroupMinAvailableLabel}

// KeyOf returns the gang that a pod names. The first match of the ways wins. Whether the pod is in that gang depends on
// its PodGroup; see [GangOf]. It is cheap: the scheduler calls it for every pod that it queues.
func KeyOf(pod *v1.Pod) (Key, Source, bool) {
	if name := pod.Annotations[v1alpha1.GangNameAnnotation]; name != "" {
		return Key{pod.Namespace, name}, FromAnnotation, true
	}
	for _, label := range [...]string{v1alpha1.PodGroupLabel, v1alpha1.PodGroupXLabel, v1alpha1.PodGroupNameLabel} {
		if name := pod.Labels[label]; name != "" {
			return Key{pod.Namespace, name}, FromLabel, true
		}
	}
	// Some users write the community keys as annotations.
	for _, key := range [...]string{v1alpha1.PodGroupLabel, v1alpha1.PodGroupNameLabel} {
		if name := pod.Annotations[key]; name != "" {
			return Key{pod.Namespace, name}, FromLabel, true
		}
	}
	if owner, ok := OwnerOf(pod); ok {
		return Key{pod.Namespace, owner.GangName()}, FromOwner, true
	}
	if pod.Spec.NodeName == "" && isUnknownGang(pod) {
		return Key{}, 0, false // what the Job controller writes does not count before it
	}
	if group := pod.Spec.SchedulingGroup; group != nil && group.PodGroupName != nil && *group.PodGroupName != "" {
		return Key{pod.Namespace, *group.PodGroupName}, FromSchedulingGroup, true
	}
	return Key{}, 0, false
}

// GangOf returns the gang that a pod is in: the one that it names, see [KeyOf], unless its native PodGroup makes no
// gang of its pods. native returns what the native PodGroup of a name says; nil where there is none: its pods wait for
// one.
func GangOf(pod *v1.Pod, native func(Key) *PodGroupDescription) (Key, Source, bool) {
	key, source, ok := KeyOf(pod)
	if source == FromSchedulingGroup && native(key).MakesNoGang() {
		return Key{}, 0, false
	}
	return key, source, ok
}

// IsScheduledAlone reports whether a pod is in no gang for a scheduler. leavesNative is whether that leaves the gangs
// of native PodGroups to kube-scheduler's own plugins.
func IsScheduledAlone(pod *v1.Pod, native func(Key) *PodGroupDescription, leavesNative bool) bool {
	_, source, member := GangOf(pod, native)
	return !member || leavesNative && source == FromSchedulingGroup
}

// Moved reports whether a pod is in another gang than an earlier version of it, or joins it in another way.
func Moved(before, now *v1.Pod) bool {
	was, wasBy, _ := KeyOf(before)
	is, isBy, _ := KeyOf(now)
	return was != is || wasBy != isBy
}

// SourceOf returns the way by which a member joined.
func SourceOf(pod *v1.Pod) Source {
	_, source, _ := KeyOf(pod)
	return source
}

// RoleOf returns the role of a pod; empty for none.
func RoleOf(pod *v1.Pod) string { return pod.Labels[v1alpha1.RoleLabel] }
