package plans

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/defragmentation/podgroups"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
)

// dearer returns why more pods would start anew by a plan than it shows: a gang can no longer do without the members that move, say. Empty if
// no more would. It counts as the planner does: a pod that moves is one, and a gang that falls below its minimum by that is all its pods.
// Members that had succeeded and were gone when it planned are in the plan: nothing else tells of them.
// It is to be asked before the first pod is evicted; later the gangs lack members by the plan itself.
func (r *reconciler) dearer(ctx context.Context, p *v1alpha1.DefragmentationPlan) (string, error) {
	losses, err := r.losses(ctx, p)
	if err != nil {
		return "", err
	}
	restarts := len(p.Status.Moves)
	var broken []string
	for _, key := range slices.SortedFunc(maps.Keys(losses), byName) {
		loss := losses[key]
		if loss.one == nil {
			continue
		}
		minimum, err := podgroups.Minimum(ctx, r.live, r.client.RESTMapper(), loss.one)
		if err != nil {
			return "", err
		}
		has, err := r.membersOf(ctx, key)
		if err != nil {
			return "", err
		}
		has.done += loss.gone
		if has.there()-loss.left >= minimum { // so it is, too, where the minimum is not known
			continue
		}
		restarts += max(0, has.run-loss.moves)
		broken = append(broken, fmt.Sprintf("gang %q would lose %d of its %d members, and its minimum is %d", key, loss.left, has.there(), minimum))
	}
	if len(broken) == 0 || restarts <= int(p.Status.Restarts) {
		return "", nil
	}
	return fmt.Sprintf("%d pods would start anew, and the plan shows %d: %s", restarts, p.Status.Restarts, strings.Join(broken, "; ")), nil
}

// loss is what a plan takes from a gang.
type loss struct {
	// moves are how many of its pods move; left are those of them that run: others are gone by themselves, and their successors may run.
	moves, left int
	// gone are how many of its members succeeded and were gone when the plan was made.
	gone int
	// one is one of those that are left; nil for none.
	one *v1.Pod
}

// losses are what a plan takes from each gang.
func (r *reconciler) losses(ctx context.Context, p *v1alpha1.DefragmentationPlan) (map[gang.Key]loss, error) {
	losses := map[gang.Key]loss{}
	for i := range p.Status.Moves {
		move := &p.Status.Moves[i]
		if move.PodGroup == "" {
			continue // it moves by itself, even if a PodGroup has it
		}
		pod, err := r.pod(ctx, move.Namespace, move.PodName)
		if err != nil {
			return nil, err
		}
		runs := pod != nil && pod.UID == move.PodUID && pod.DeletionTimestamp == nil && !podutil.IsPodTerminal(pod)
		key := gang.Key{Namespace: move.Namespace, Name: move.PodGroup}
		of := losses[key]
		of.moves, of.gone = of.moves+1, int(move.SucceededGone)
		if runs {
			of.left, of.one = of.left+1, pod
		}
		losses[key] = of
	}
	return losses, nil
}
