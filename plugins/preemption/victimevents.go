package preemption

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/pkg/planning/victim"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
)

// recordPreempting records an event on the preemptor's leader about what is done for it.
func (pl *GangPreemption) recordPreempting(d *demand, f *found) {
	preempting(d, f, pl.cutShortMessage(d)).Record(pl.handle.EventRecorder())
}

// recordVictims records events on the PodGroups of gangs that lost pods.
func (pl *GangPreemption) recordVictims(d *demand, f *found, evicted *evictedPods) {
	for _, b := range f.selection.Bundles {
		if !evicted.anyVictim(b.Pods) {
			continue
		}
		for _, one := range f.gangs[b.Gang.ID].Gangs {
			loses := b.Kind == victim.Whole ||
				slices.ContainsFunc(b.Pods, func(p victim.Pod) bool { return p.Part == "" || p.Part == one.Key.String() })
			if one.Object.UID == "" || !loses {
				continue
			}
			gangLost(d, f, b, one).Record(pl.handle.EventRecorder())
		}
	}
}

// textLost says what a gang loses.
func (f *found) textLost(b victim.Bundle) string {
	n, of := len(b.Pods), len(b.Gang.Pods)
	switch {
	case b.Broken:
		return fmt.Sprintf("%d of %d pods, fewer than the minimum of %d that would be of use, %s", n, of, b.Gang.Min, f.done)
	case b.Kind == victim.Safe:
		return fmt.Sprintf("%d of %d pods, beyond the minimum of %d, %s", n, of, b.Gang.Min, f.done)
	case of == 1:
		return f.done
	case slices.ContainsFunc(f.gangs[b.Gang.ID].Gangs, func(one gangstate.Footprint) bool { return one.Whole }):
		return fmt.Sprintf("all %d pods, which the PodGroup has disrupted together only, %s", of, f.done)
	default:
		return fmt.Sprintf("all %d pods, minimum %d, %s", of, b.Gang.Min, f.done)
	}
}

// textWorth says why this gang was chosen.
func (f *found) textWorth(d *demand, b victim.Bundle) string {
	text := fmt.Sprintf("need %s, gain %.2f", d.need, b.Gain)
	if b.Kind == victim.Whole {
		text += fmt.Sprintf(", cost %.2f, ROI %.2f", b.Cost, b.ROI)
	}
	return text
}

// eventNote returns the note of a victim's event about the preemptor that takes its place.
func (f *found) eventNote(d *demand, preemptor string, pod *v1.Pod) string {
	for _, b := range f.selection.Bundles {
		if slices.ContainsFunc(b.Pods, func(p victim.Pod) bool { return p.UID == pod.UID }) {
			return fmt.Sprintf("%s: %s by %s: %s", f.gangs[b.Gang.ID].Name, f.textLost(b), preemptor, f.textWorth(d, b))
		}
	}
	return fmt.Sprintf("evicted with its gang, which fell below its minimum (preemptor %s)", preemptor)
}
