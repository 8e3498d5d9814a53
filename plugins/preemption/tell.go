package preemption

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/victim"
)

// tellPreemptor records an event on the preemptor's leader about what is done for it.
func (pl *GangPreemption) tellPreemptor(d *demand, f *found) {
	preempting(d, f).Record(pl.handle.EventRecorder())
}

// tellVictims records events on the PodGroups of gangs that lost pods.
func (pl *GangPreemption) tellVictims(d *demand, f *found, evicted *evictions) {
	for _, b := range f.selection.Bundles {
		if !evicted.any(b.Pods) {
			continue
		}
		for _, one := range f.gangs[b.Gang.ID].Gangs {
			loses := b.Kind == victim.Whole || slices.ContainsFunc(b.Pods, func(p victim.Pod) bool { return p.Part == "" || p.Part == one.Key.String() })
			if one.Object.UID == "" || !loses {
				continue
			}
			gangLost(d, f, b, one).Record(pl.handle.EventRecorder())
		}
	}
}

// lost words what a gang loses.
func (f *found) lost(b victim.Bundle) string {
	n, of := len(b.Pods), len(b.Gang.Pods)
	switch {
	case b.Broken:
		return fmt.Sprintf("%d of %d pods, fewer than the minimum of %d that would be of use, %s", n, of, b.Gang.Min, f.done)
	case b.Kind == victim.Safe:
		return fmt.Sprintf("%d of %d pods, beyond the minimum of %d, %s", n, of, b.Gang.Min, f.done)
	case of == 1:
		return f.done
	case slices.ContainsFunc(f.gangs[b.Gang.ID].Gangs, func(one gang.Footprint) bool { return one.Whole }):
		return fmt.Sprintf("all %d pods, which the PodGroup has disrupted together only, %s", of, f.done)
	default:
		return fmt.Sprintf("all %d pods, minimum %d, %s", of, b.Gang.Min, f.done)
	}
}

// worth words why it was this gang.
func (f *found) worth(d *demand, b victim.Bundle) string {
	text := fmt.Sprintf("need %s, gain %.2f", d.need, b.Gain)
	if b.Kind == victim.Whole {
		text += fmt.Sprintf(", cost %.2f, ROI %.2f", b.Cost, b.ROI)
	}
	return text
}

// note returns what the event of a victim says about the preemptor that takes its place.
func (f *found) note(d *demand, preemptor string, pod *v1.Pod) string {
	for _, b := range f.selection.Bundles {
		if slices.ContainsFunc(b.Pods, func(p victim.Pod) bool { return p.UID == pod.UID }) {
			return fmt.Sprintf("%s: %s by %s: %s", f.gangs[b.Gang.ID].Name, f.lost(b), preemptor, f.worth(d, b))
		}
	}
	return fmt.Sprintf("evicted with its gang, which fell below its minimum (preemptor %s)", preemptor)
}
