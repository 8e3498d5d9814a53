package preemption

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/evictions"
	"github.com/lockstep-sh/lockstep/pkg/planning/victim"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
)

// preemptorNeeds reports whether a preemptor still needs the capacity: enough of its pods exist and still have the
// nominations of this decision, and the members placed before are still placed. A plan that found other places, or a
// preemptor of higher priority, ends that; so does a member that was taken for missing and now runs, if the preemptor
// would have replaced it.
func (pl *GangPreemption) preemptorNeeds(d *demand, f *found) bool {
	if want, waits := pl.Gangs.Wants(d.leader); waits && want.Alone && want.Ready && !d.gang.Beyond {
		return false // its gang has its minimum without it
	}
	if !pl.holder(d).IsSinglePod() && !pl.Gangs.Placing(pl.holder(d)) || !pl.placedUnchanged(d) {
		return false
	}
	there := 0
	for uid := range f.plan.Nodes {
		one, nominated := pl.Holds.Nomination(uid)
		if pod, ok := pl.podByUID(uid); ok && pod.DeletionTimestamp == nil && nominated && one.Claim == f.claim {
			there++
		}
	}
	return there >= d.attempt.Members()
}

// victimsNeeded reports whether victims must be evicted: the preemptor still needs the capacity, or another one relies
// on their end.
func (pl *GangPreemption) victimsNeeded(d *demand, f *found, victims []*v1.Pod) bool {
	if pl.preemptorNeeds(d, f) {
		return true
	}
	_, wanted := pl.wantedByOther(victims)
	return wanted
}

// wantedByOther returns a place of another preemptor whose decision relies on the end of some of these victims.
func (pl *GangPreemption) wantedByOther(victims []*v1.Pod) (hold.Hold, bool) {
	for holder, claim := range pl.Underway.ReliedOnBy(victims) {
		for _, one := range pl.Holds.NominationsOf(holder) {
			if one.Claim == claim {
				return one, true
			}
		}
	}
	return hold.Hold{}, false
}

// otherPreemptor returns a pod of the preemptor that relies on the end of a victim, and its name for users, if the one
// that chose the victim no longer needs it; nil otherwise.
func (pl *GangPreemption) otherPreemptor(d *demand, f *found, victim *v1.Pod) (*v1.Pod, string) {
	one, wanted := pl.wantedByOther([]*v1.Pod{victim})
	pod, there := pl.podByUID(one.For)
	if !wanted || !there || pl.preemptorNeeds(d, f) {
		return nil, ""
	}
	what, of := "pod", pod.Namespace+"/"+pod.Name
	if key, _, member := gangstate.KeyOf(pod); member && !pl.Gangs.Single(pod) {
		what, of = "gang", key.String()
	}
	return pod, fmt.Sprintf("%s %s (priority %d)", what, of, one.Priority)
}

// placedUnchanged reports whether the members placed before the search are where they were: on their nodes, or with a
// plan that holds these. An incomplete NonStrict gang makes way for others that come before it.
func (pl *GangPreemption) placedUnchanged(d *demand) bool {
	for _, need := range d.attempt.Gangs {
		if need.Min == 0 || len(need.Placed) == 0 {
			continue
		}
		on := map[types.UID]string{}
		for _, running := range pl.Gangs.Running(pl.fw.ProfileName(), need.Key) {
			for _, one := range running.Running {
				on[one.Pod.UID] = one.Node
			}
		}
		for _, placed := range need.Placed {
			held, ok := pl.Holds.HoldOf(placed.Pod.UID)
			if on[placed.Pod.UID] != placed.Node && !(ok && held.Reason == hold.Plan && held.Node == placed.Node) {
				return false
			}
		}
	}
	return true
}

// outdated returns why a decision no longer holds; empty if it does. Since it was made, members of gangs that should
// lose only surplus may have ended, and missing members may have come.
func (pl *GangPreemption) outdated(ctx context.Context, d *demand, f *found) string {
	if !pl.victimsNeeded(d, f, f.victims) {
		return "the preemptor no longer needs the capacity"
	}
	ending, ends := pl.Underway.All(), f.wholeGangs()
	for _, b := range f.selection.Bundles {
		if b.Kind != victim.Safe || ends[b.Gang.ID] || len(f.gangs[b.Gang.ID].Gangs) == 0 {
			continue
		}
		together, err := pl.evictor.Together(f.gangs[b.Gang.ID].Of, f.byUID(b.Pods[0].UID))
		if err != nil {
			return err.Error()
		}
		if b.Broken {
			if !slices.ContainsFunc(together, func(one gangstate.Footprint) bool { return !evictions.Enough(one, nil) }) {
				return fmt.Sprintf("%s has its minimum again", f.gangs[b.Gang.ID].Name)
			}
			continue
		}
		for _, one := range together {
			if !evictions.Enough(one, ending) {
				return fmt.Sprintf("gang %s has lost members, and now needs those that were chosen", one.Key)
			}
		}
	}
	return ""
}

// wholeGangs returns the gangs that end, by ID; their surplus ends with them.
func (f *found) wholeGangs() map[string]bool {
	ends := map[string]bool{}
	for _, b := range f.selection.Bundles {
		if b.Kind == victim.Whole {
			ends[b.Gang.ID] = true
		}
	}
	return ends
}

// byUID returns a victim.
func (f *found) byUID(uid types.UID) *v1.Pod {
	for _, pod := range f.victims {
		if pod.UID == uid {
			return pod
		}
	}
	return nil
}
