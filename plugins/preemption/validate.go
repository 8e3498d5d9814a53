package preemption

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/holds"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/victim"
)

// needs reports whether a preemptor still needs the room that is made for it: enough of its
// pods are there, and what they were nominated to by this decision is what they have. A
// plan that found other places, or a preemptor of higher priority, has ended that.
func (pl *GangPreemption) needs(d *demand, f *found) bool {
	if !holds.IsPod(d.group) && !pl.Roster.Placing(pl.holder(d)) {
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

// outdated returns why a decision does not hold any more; empty if it does. Time has passed
// since it was made: members of the gangs that were to lose what they can do without may
// have gone.
func (pl *GangPreemption) outdated(ctx context.Context, d *demand, f *found) string {
	if !pl.needs(d, f) {
		return "the preemptor does not need the room any more"
	}
	ending := pl.Underway.all()
	for _, b := range f.selection.Bundles {
		if b.Kind != victim.Safe || b.Broken || len(f.gangs[b.Gang.ID].gangs) == 0 {
			continue
		}
		together, err := pl.runningWith(f.gangs[b.Gang.ID].of, f.byUID(b.Pods[0].UID))
		if err != nil {
			return err.Error()
		}
		for _, one := range together {
			if !enough(one, ending) {
				return fmt.Sprintf("gang %s has lost members meanwhile, and cannot do without those that were chosen", one.Key)
			}
		}
	}
	return ""
}

// enough reports whether a gang has its minimum without the pods that are about to end.
func enough(f gang.Footprint, ending map[types.UID]bool) bool {
	stays, byRole := 0, map[string]int{}
	for _, member := range f.Running {
		if !ending[member.Pod.UID] {
			stays++
			byRole[member.Pod.Labels[v1alpha1.RoleLabel]]++
		}
	}
	for role, n := range f.MinByRole {
		if byRole[role] < n {
			return false
		}
	}
	return stays >= f.Min
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
