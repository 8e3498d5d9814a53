package defragplan

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/moves"
	"github.com/lockstep-sh/lockstep/pkg/rules/defrag/migration"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
)

// costlier returns why a plan would restart more pods than it shows, for example because a gang now needs the members
// that move; empty if it would not. It counts as the planner does: each pod that moves, and all pods of a gang that
// falls below its minimum. Members that had succeeded and were deleted before the plan was made are listed in it only.
// The answer is valid until the first eviction: after it the plan itself takes members from gangs.
func (r *reconciler) costlier(ctx context.Context, p *v1alpha1.DefragmentationPlan,
	_ *migration.PlanSeen) (string, error) {
	losses, err := r.losses(ctx, p)
	if err != nil {
		return "", err
	}
	restarts := len(p.Status.Moves)
	var broken []string
	for _, key := range slices.SortedFunc(maps.Keys(losses), byName) {
		loss := losses[key]
		if loss.left == 0 {
			continue
		}
		gang, err := r.observe(ctx, key, false) // the plan has counted those that are gone
		if err != nil {
			return "", err
		}
		minimum, has := startTogether(gang), gang.Bound.N+loss.gone
		if has-loss.left >= minimum { // so it is, too, where the minimum is not known
			continue
		}
		restarts += max(0, gang.Bound.N-gang.Succeeded-loss.moves)
		broken = append(broken, fmt.Sprintf("gang %q would lose %d of its %d members, and its minimum is %d", key,
			loss.left, has, minimum))
	}
	if len(broken) == 0 || restarts <= int(p.Status.Restarts) {
		return "", nil
	}
	return fmt.Sprintf("%d pods would start anew, and the plan shows %d: %s", restarts, p.Status.Restarts,
		strings.Join(broken, "; ")), nil
}

// loss is what a plan takes from a gang.
type loss struct {
	// moves is how many of its pods move, left how many of these still run: the others were deleted by something else,
	// and may have successors.
	moves, left int
	// gone is how many of its members had succeeded and were deleted before the plan was made.
	gone int
}

// losses are what a plan takes from each gang.
func (r *reconciler) losses(ctx context.Context, p *v1alpha1.DefragmentationPlan) (map[gangspec.Key]loss, error) {
	losses := map[gangspec.Key]loss{}
	for i := range p.Status.Moves {
		move := &p.Status.Moves[i]
		if move.PodGroup == "" {
			continue // it moves alone, even if a PodGroup names it
		}
		pod, err := moves.Pod(ctx, r.live, client.ObjectKey{Namespace: move.Namespace, Name: move.PodName})
		if err != nil {
			return nil, err
		}
		runs := pod != nil && pod.UID == move.PodUID && objectstate.StaysOnNode(pod)
		key := gangspec.Key{Namespace: move.Namespace, Name: move.PodGroup}
		of := losses[key]
		of.moves, of.gone = of.moves+1, int(move.SucceededGone)
		if runs {
			of.left++
		}
		losses[key] = of
	}
	return losses, nil
}
