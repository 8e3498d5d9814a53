package preemption

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/plugins/eviction"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
	"github.com/lockstep-sh/lockstep/plugins/victim"
)

// needs reports whether a preemptor still needs the room that is made for it: enough of its pods
// are there, they still have the places that this decision nominated them to, and the members that
// had a place already have it. A plan that found other places, or a preemptor of higher priority,
// has ended that; so has the success of a member that was taken for missing, where the preemptor
// was to take its place.
func (pl *GangPreemption) needs(d *demand, f *found) bool {
	if want, waits := pl.Gangs.Wants(d.leader); waits && want.Alone && want.Ready {
		return false // its gang has its minimum without it
	}
	if !pl.holder(d).IsSinglePod() && !pl.Gangs.Placing(pl.holder(d)) || !pl.stand(d) {
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

// needed reports whether victims have to be evicted: the preemptor needs the room still, or
// another one counts on their end by now.
func (pl *GangPreemption) needed(d *demand, f *found, victims []*v1.Pod) bool {
	if pl.needs(d, f) {
		return true
	}
	_, wanted := pl.wanted(victims)
	return wanted
}

// wanted returns a place that another preemptor has by a decision which counts on the end of some
// of these victims.
func (pl *GangPreemption) wanted(victims []*v1.Pod) (hold.Hold, bool) {
	for holder, claim := range pl.Underway.Wanted(victims) {
		for _, one := range pl.Holds.NominationsOf(holder) {
			if one.Claim == claim {
				return one, true
			}
		}
	}
	return hold.Hold{}, false
}

// taker returns a pod of the preemptor that counts on the end of a victim, and what users call it,
// where the one that has chosen the victim does not need it any more; else nil.
func (pl *GangPreemption) taker(d *demand, f *found, victim *v1.Pod) (*v1.Pod, string) {
	one, wanted := pl.wanted([]*v1.Pod{victim})
	pod, there := pl.podByUID(one.For)
	if !wanted || !there || pl.needs(d, f) {
		return nil, ""
	}
	what, of := "pod", pod.Namespace+"/"+pod.Name
	if key, _, member := gang.KeyOf(pod); member && !pl.Gangs.Single(pod) {
		what, of = "gang", key.String()
	}
	return pod, fmt.Sprintf("%s %s (priority %d)", what, of, one.Priority)
}

// stand reports whether the members that were placed when room was sought for the others are
// where they were: on their nodes, or with a plan that holds these for them. A NonStrict
// gang that is incomplete makes way for others that come before it.
func (pl *GangPreemption) stand(d *demand) bool {
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
			held, ok := pl.Holds.Of(placed.Pod.UID)
			if on[placed.Pod.UID] != placed.Node && !(ok && held.Reason == hold.Plan && held.Node == placed.Node) {
				return false
			}
		}
	}
	return true
}

// outdated returns why a decision does not hold any more; empty if it does. Time has passed since
// it was made: members of the gangs that were to lose their surplus may have ended, and members
// that gangs lacked may have come.
func (pl *GangPreemption) outdated(ctx context.Context, d *demand, f *found) string {
	if !pl.needed(d, f, f.victims) {
		return "the preemptor does not need the room any more"
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
			if !slices.ContainsFunc(together, func(one gang.Footprint) bool { return !eviction.Enough(one, nil) }) {
				return fmt.Sprintf("%s has its minimum again", f.gangs[b.Gang.ID].Name)
			}
			continue
		}
		for _, one := range together {
			if !eviction.Enough(one, ending) {
				return fmt.Sprintf("gang %s has lost members meanwhile, and cannot do without those that were chosen", one.Key)
			}
		}
	}
	return ""
}

// wholeGangs returns the gangs that end, by ID: their surplus ends with them.
func (f *found) wholeGangs() map[string]bool {
	ends := map[string]bool{}
	for _, b := range f.selection.Bundles {
		if b.Kind == victim.Whole {
			ends[b.Gang.ID] = true
		}
	}
	return ends
}

// byUID finds a victim.
func (f *found) byUID(uid types.UID) *v1.Pod {
	for _, pod := range f.victims {
		if pod.UID == uid {
			return pod
		}
	}
	return nil
}
