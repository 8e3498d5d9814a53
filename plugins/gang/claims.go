package gang

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
)

// ResourceClaims that members share. The members go ahead one after the other, up to the barrier at Bind: until the
// first of them has its allocation written, kube-scheduler refuses the others, and each is then added to the pods that
// the claim is reserved for. If the gang does not start after all, the allocation is taken back.

// cannotClaim returns the reason, if members share claims and cannot be kept from being bound once they have them.
func (pl *Gang) cannotClaim(a *gangstate.Attempt) string {
	if pl.bindsFirst {
		return ""
	}
	claim := sharedClaim(a)
	if claim == "" {
		return ""
	}
	return fmt.Sprintf("its members share ResourceClaim %s, for which %s has to be the first plugin at bind, "+
		"before any extender that binds", claim, Name)
}

// sharedClaim returns a claim that several members of an attempt name; empty for none.
func sharedClaim(a *gangstate.Attempt) string {
	named := map[types.NamespacedName]bool{}
	for _, pod := range a.Pending() {
		for _, claim := range gangstate.NamedClaims(pod) {
			if named[claim] {
				return claim.String()
			}
			named[claim] = true
		}
	}
	return ""
}

// queueInheritedClaims queues the claims of all members that wait when this process begins to schedule: the process
// before it may have ended between the allocation and the binding, and their gang may never be tried.
func (pl *Gang) queueInheritedClaims(ctx context.Context, shared Shared) {
	if !shared.Leading.Wait(ctx) || !cache.WaitForCacheSync(ctx.Done(), shared.Gangs.Synced) {
		return
	}
	var waiting []*v1.Pod
	pl.gangs.WithGangs(func(s *gangstate.Gangs) { waiting = s.Unplaced() })
	pl.claims.Enqueue(waiting...)
}

// Withdraw reports whether the allocation of a claim may be taken back. If so, no member that it is reserved for
// proceeds until Withdrawn.
func (pl *Gang) Withdraw(ctx context.Context, claim types.NamespacedName, reservedFor []types.UID) (may bool) {
	pl.gangs.UpdateGangs(ctx, func(s *gangstate.Gangs, now time.Time) (e gangstate.Effects) {
		may, e = s.Withdraw(claim, reservedFor, now)
		return e
	})
	return may
}

// Withdrawn notes that kube-scheduler sees the outcome for a claim.
func (pl *Gang) Withdrawn(ctx context.Context, claim types.NamespacedName) {
	pl.gangs.UpdateGangs(ctx, func(s *gangstate.Gangs, now time.Time) gangstate.Effects { return s.Withdrawn(claim, now) })
}
