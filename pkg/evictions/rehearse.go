package evictions

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// rehearse returns, by a dry run, the error that evicting the first of these pods that still exists would get.
func (e *Evictor) rehearse(ctx context.Context, kind []*v1.Pod) error {
	for _, pod := range kind {
		gone, err := e.delete(ctx, pod, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		if refuses(err) {
			e.Underway.recordRefusal(pod.UID, e.Clock.Now(), true)
		}
		if !gone {
			return err
		}
	}
	return nil
}

// RehearseAll returns the errors that evicting pods would get. It protects gangs from going in part, and pods from
// going in vain: the API server may refuse to delete some of them, for lack of rights, by an admission policy or by a
// webhook.
//
// It tries one pod of each kind that still exists, see kindsOf. If that one is refused, it tries the others of the kind
// too, so that the next choice of victims avoids all of them. A rule that distinguishes pods of one kind, by name for
// example, escapes it once: after an eviction was refused that no dry run had predicted, it tries every pod for an
// hour.
func (e *Evictor) RehearseAll(ctx context.Context, pods []*v1.Pod) []error {
	onTheirWay := func(pod *v1.Pod) bool { return pod.Spec.NodeName == "" } // their bindings will be cancelled
	pods = slices.DeleteFunc(slices.Clone(pods), onTheirWay)
	kinds := kindsOf(e.Gangs, pods)
	if e.Underway.cautious(e.Clock.Now()) {
		kinds = groupBy(pods, func(pod *v1.Pod) types.UID { return pod.UID })
	}
	refused := make([]bool, len(kinds))
	failed := InParallel(ctx, len(kinds), func(i int) error {
		err := e.rehearse(ctx, kinds[i])
		refused[i] = refuses(err)
		return err
	})
	var others []*v1.Pod
	for i, kind := range kinds {
		if refused[i] {
			others = append(others, kind[1:]...)
		}
	}
	return append(failed, InParallel(ctx, len(others), func(i int) error { return e.rehearse(ctx, others[i:i+1]) })...)
}

// familyOf returns the family of a pod: its origin, and the keys of its labels and annotations. The origin is a
// controller, or where there is none the pod's gang, or else its namespace.
func familyOf(gangs Gangs, pod *v1.Pod) string {
	origin := "namespace " + pod.Namespace
	if controller := metav1.GetControllerOfNoCopy(pod); controller != nil {
		origin = "controller " + string(controller.UID)
	} else if owner := OwnerOf(gangs, pod); !owner.IsPod() {
		origin = "gang " + owner.ID()
	}
	return fmt.Sprintf("%s %q %q", origin, slices.Sorted(maps.Keys(pod.Labels)), slices.Sorted(maps.Keys(pod.Annotations)))
}

// kindsOf divides pods into kinds: those of one family that agree in all labels and annotations that do not number
// them. It keeps their order.
func kindsOf(gangs Gangs, pods []*v1.Pod) [][]*v1.Pod {
	families := groupBy(pods, func(pod *v1.Pod) string { return familyOf(gangs, pod) })
	kinds := make([][]*v1.Pod, 0, len(families))
	for _, members := range families {
		labels := numbering(members, func(pod *v1.Pod) map[string]string { return pod.Labels })
		annotations := numbering(members, func(pod *v1.Pod) map[string]string { return pod.Annotations })
		kinds = append(kinds, groupBy(members, func(pod *v1.Pod) string {
			return fmt.Sprintf("%q %q", withoutKeys(pod.Labels, labels), withoutKeys(pod.Annotations, annotations))
		})...)
	}
	return kinds
}

// fewestNumbered is how many pods a value must distinguish to count as a number or a name. Two may differ in what they
// are.
const fewestNumbered = 3

// numbering returns the keys under which no two of these pods, which have the same keys, have the same value: an index,
// a name, an address. A value without a digit that is not the pod's name says what the pod is, a role for example.
func numbering(pods []*v1.Pod, of func(*v1.Pod) map[string]string) map[string]bool {
	numbers := map[string]bool{}
	if len(pods) < fewestNumbered {
		return numbers
	}
	for key := range of(pods[0]) {
		values := map[string]bool{}
		for _, pod := range pods {
			if value := of(pod)[key]; value == pod.Name || strings.ContainsAny(value, "0123456789") {
				values[value] = true
			}
		}
		numbers[key] = len(values) == len(pods)
	}
	return numbers
}

func withoutKeys(values map[string]string, keys map[string]bool) map[string]string {
	rest := maps.Clone(values)
	maps.DeleteFunc(rest, func(key, _ string) bool { return keys[key] })
	return rest
}

// groupBy groups pods by a key, in the order of their first.
func groupBy[K comparable](pods []*v1.Pod, key func(*v1.Pod) K) [][]*v1.Pod {
	var groups [][]*v1.Pod
	at := map[K]int{}
	for _, pod := range pods {
		k := key(pod)
		i, ok := at[k]
		if !ok {
			i = len(groups)
			at[k], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], pod)
	}
	return groups
}
