package preemption

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/evictions"
	"github.com/lockstep-sh/lockstep/pkg/planning/victim"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
)

// loss is what a gang, or gangs that start together, or a single pod, loses to a preemptor.
type loss struct {
	evictions.Candidate
	// Bundle has all pods that were chosen. Of a gang that goes whole it is of the kind Whole, with the surplus.
	victim.Bundle
	// victims are the pods to evict: those chosen, and the rest of a broken gang.
	victims []*v1.Pod
	// stay are members that must not be evicted.
	stay map[types.UID]bool
	// done is the verb for it.
	done string
}

// losses returns what each gang and single pod loses.
func (f *found) losses() (list []loss) {
	victims, at := map[types.UID]*v1.Pod{}, map[string]int{}
	for _, pod := range f.victims {
		victims[pod.UID] = pod
	}
	for _, b := range f.selection.Bundles {
		if i, ok := at[b.Gang.ID]; ok { // the surplus of a gang that goes whole goes first
			b.Pods = slices.Concat(list[i].Bundle.Pods, b.Pods)
			list[i].Bundle = b
			continue
		}
		one := loss{Candidate: f.gangs[b.Gang.ID], Bundle: b, stay: map[types.UID]bool{}, done: f.round.Done}
		for _, member := range b.Gang.Pods {
			if member.Protected {
				one.stay[member.UID] = true
			}
			if pod := victims[member.UID]; pod != nil {
				one.victims = append(one.victims, pod)
			}
		}
		at[b.Gang.ID] = len(list)
		list = append(list, one)
	}
	return list
}

// ends reports whether a gang ends: all that runs of it goes, even what comes to run meanwhile.
func (l *loss) ends(evictBroken bool) bool {
	return !l.Of.IsPod() && (l.Kind == victim.Whole || l.Broken && evictBroken)
}

// has reports whether a pod was chosen.
func (l *loss) has(pod types.UID) bool {
	return slices.ContainsFunc(l.Pods, func(p victim.Pod) bool { return p.UID == pod })
}

// text says what is lost.
func (l *loss) text() string {
	n, of := len(l.Pods), len(l.Gang.Pods)
	switch {
	case l.Broken:
		return fmt.Sprintf("%d of %d pods, of a gang below its minimum of %d, %s", n, of, l.Gang.Min, l.done)
	case l.Kind == victim.Safe:
		return fmt.Sprintf("%d of %d pods, beyond the minimum of %d, %s", n, of, l.Gang.Min, l.done)
	case of == 1:
		return l.done
	case slices.ContainsFunc(l.Gangs, func(one gangstate.RunningGang) bool { return one.Whole }):
		return fmt.Sprintf("all %d pods, which the PodGroup has disrupted together only, %s", of, l.done)
	default:
		return fmt.Sprintf("all %d pods, minimum %d, %s", of, l.Gang.Min, l.done)
	}
}

// eventNote returns the note of a victim's event about the preemptor that takes its place.
func (l *loss) eventNote(p *evictions.Preemption, pod *v1.Pod) string {
	if !l.has(pod.UID) {
		return fmt.Sprintf("evicted with its gang, which fell below its minimum (preemptor %s)", p.Preemptor)
	}
	return fmt.Sprintf("%s: %s by %s, which needs %s", l.Name(), l.text(), p.Preemptor, p.Need)
}
