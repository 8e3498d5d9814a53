package defragplan

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/moves"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/podgroupreader"
	"github.com/lockstep-sh/lockstep/pkg/kube/apiobjects"
	"github.com/lockstep-sh/lockstep/pkg/rules/defrag/migration"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate/waitreason"
	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// check finds out whether a plan still leads to its goal. Before the first eviction it checks all that the plan counts
// on, and the cost that it shows; once the plan has begun, only what the remaining moves need.
func (r *reconciler) check(ctx context.Context, p *v1alpha1.DefragmentationPlan, s *migration.PlanSeen, begun bool,
	now time.Time) error {
	why, said, err := r.blocked(ctx, p)
	if err != nil {
		return err
	}
	if r.mayPass(p, why, said, now) {
		s.Doubt = why
		return nil
	}
	s.Checked = true
	if said {
		s.Futile = why
		return nil
	}
	faults := []func(context.Context, *v1alpha1.DefragmentationPlan, *migration.PlanSeen) (string, error){
		r.gangOutgrewPlan}
	if !begun || s.Goal == migration.Renewed {
		faults = append(faults, r.lacksCapacity)
	}
	if begun {
		faults = append(faults, r.unusable)
	} else {
		faults = append(faults, r.costlier)
	}
	for _, fault := range faults {
		if s.Futile, err = fault(ctx, p, s); err != nil || s.Futile != "" {
			return err
		}
	}
	return nil
}

// lacksCapacity returns which node would not have the room that a plan counts on, once its moves are done: between a
// plan and its approval there may be hours. Empty where all have. Filters are not asked: what they see the scheduler
// tells when it is to reserve the targets.
func (r *reconciler) lacksCapacity(ctx context.Context, p *v1alpha1.DefragmentationPlan,
	s *migration.PlanSeen) (string, error) {
	placed := sets.New[string]() // migrations whose target is held
	held, err := r.held(ctx, func(rsv *v1alpha1.Reservation) bool {
		if len(rsv.Status.Placements) > 0 {
			placed.Insert(rsv.Labels[v1alpha1.MigrationLabel])
		}
		// the goal is counted below
		return rsv.Labels[v1alpha1.PlanLabel] == p.Name && rsv.Labels[v1alpha1.MigrationLabel] == ""
	})
	if err != nil {
		return "", err
	}
	come, err := r.comers(ctx, p,
		func(move int) bool { m := s.Moves[move]; return m != nil && placed.Has(string(m.UID)) })
	if err != nil {
		return "", err
	}
	leave := movedOf(p)
	for _, name := range slices.Sorted(maps.Keys(come)) {
		node, why, err := moves.Node(ctx, r.live, name)
		if err != nil || why != "" {
			return why, err
		}
		free := resource.OfNode(node)
		var pods v1.PodList
		if err := r.live.List(ctx, &pods, client.MatchingFields{"spec.nodeName": name}); err != nil {
			return "", fmt.Errorf("listing the pods of node %s: %w", name, err)
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			if !objectstate.HasEnded(pod) && !leave.Has(pod.UID) {
				free.Add(requests(pod), -1)
			}
		}
		free.Add(held[name], -1)
		for _, kind := range slices.Sorted(maps.Keys(come[name])) {
			if has, wants := free[kind], come[name][kind]; wants > 0 && wants > has {
				return fmt.Sprintf("once all moves are done, node %s would lack %s for the pods that are to come", name,
					resource.Vector{kind: wants - has}), nil
			}
		}
	}
	return "", nil
}

// blocked returns why the goal would not start although it had room: its scheduler says so of a pod that stands for its
// kind. Empty if it would start. A scheduler may have said nothing yet of a goal that was made again: why says so, and
// said is false.
func (r *reconciler) blocked(ctx context.Context, p *v1alpha1.DefragmentationPlan) (why string, said bool, err error) {
	for _, key := range kinds(p) {
		pod, err := moves.Pod(ctx, r.live, key)
		if err != nil {
			return "", false, err
		}
		if pod == nil {
			continue // the goal is gone, or made anew: that is told elsewhere
		}
		condition := objectstate.WaitCondition(pod)
		if condition != nil && waitreason.RoomIsUseless(condition.Reason) {
			return fmt.Sprintf("%s would not start there, since its pod %s waits for something else, %s: %s", p.Status.Goal, key,
				condition.Reason, condition.Message), true, nil
		}
		if condition == nil && pod.Spec.NodeName == "" && !planned(p, pod) {
			why = fmt.Sprintf("its scheduler has said nothing yet of pod %s, which was made anew", key)
		}
	}
	return why, false, nil
}

// unusable returns why a node that is planned for the goal takes no pods; empty if all do.
func (r *reconciler) unusable(ctx context.Context, p *v1alpha1.DefragmentationPlan,
	_ *migration.PlanSeen) (string, error) {
	nodes := sets.New[string]()
	for _, place := range p.Status.Places {
		nodes.Insert(place.NodeName)
	}
	for _, name := range sets.List(nodes) {
		if _, why, err := moves.Node(ctx, r.live, name); err != nil || why != "" {
			return why, err
		}
	}
	return "", nil
}

// gangOutgrewPlan returns which gang of the goal needs more members on nodes than the plan has places for: its minimum
// was raised since, or it was made anew. One that was made anew may lack members for a moment; else those that wait are
// all that may be needed. Empty if none does.
func (r *reconciler) gangOutgrewPlan(ctx context.Context, p *v1alpha1.DefragmentationPlan,
	s *migration.PlanSeen) (string, error) {
	if p.Spec.Goal.PodGroup == "" {
		return "", nil
	}
	places := map[gangspec.Key]int{}
	for _, name := range kinds(p) {
		pod, err := moves.Pod(ctx, r.live, name)
		if err != nil || pod == nil {
			return "", err // without its pod the goal is gone again: that is told elsewhere
		}
		if key, _, member := gangspec.KeyOf(pod); member {
			places[key] += len(nodesOf(p, name))
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(places), byName) {
		gang, err := r.observe(ctx, key, s.Goal != migration.Renewed)
		if err != nil {
			return "", err
		}
		needs, anew := startTogether(gang)-gang.Bound.N, "made anew"
		if s.Goal != migration.Renewed {
			needs, anew = min(needs, gang.Members.N-gang.Bound.N), "changed"
		}
		if needs > places[key] {
			return fmt.Sprintf("gang %q has been %s since the plan was made, and needs %d members; the plan makes room for %d",
				key, anew, needs, places[key]), nil
		}
	}
	return "", nil
}

func byName(a, b gangspec.Key) int { return cmp.Compare(a.String(), b.String()) }

// observe returns what a gang is, by its PodGroup and its pods. recorded: members that succeeded and are gone count as
// the PodGroup's status has them.
func (r *reconciler) observe(ctx context.Context, key gangspec.Key, recorded bool) (gangstate.Facts, error) {
	groups, err := podgroupreader.Read(ctx, r.live, r.client.RESTMapper(), key)
	if err != nil {
		return gangstate.Facts{}, err
	}
	var list v1.PodList
	if err := r.live.List(ctx, &list, client.InNamespace(key.Namespace)); err != nil {
		return gangstate.Facts{}, fmt.Errorf("listing the pods of namespace %s: %w", key.Namespace, err)
	}
	pods := slices.DeleteFunc(apiobjects.Pointers(list.Items), func(pod *v1.Pod) bool {
		of, _, member := gangspec.GangOf(pod, func(gangspec.Key) *gangspec.PodGroupDescription {
			return groups[gangspec.Native]
		})
		return !member || of != key
	})
	history := &gangstate.History{}
	if recorded {
		history = gangstate.RecordedHistory(groups.Object())
	}
	return gangstate.Observe(key, groups.Object(), pods, history), nil
}

// startTogether is how many members of a gang start together; 0 if that is not known, or it starts in stages.
func startTogether(gang gangstate.Facts) int {
	if len(gang.Spec.Stages) > 0 {
		return 0
	}
	return gang.Spec.Min
}

// movedOf are the pods that a plan moves.
func movedOf(p *v1alpha1.DefragmentationPlan) sets.Set[types.UID] {
	moved := sets.New[types.UID]()
	for _, move := range p.Status.Moves {
		moved.Insert(move.PodUID)
	}
	return moved
}

// held is what Reservations hold on each node, but some.
func (r *reconciler) held(ctx context.Context,
	but func(*v1alpha1.Reservation) bool) (map[string]resource.Vector, error) {
	var list v1alpha1.ReservationList
	if err := r.live.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("listing Reservations: %w", err)
	}
	held := map[string]resource.Vector{}
	for i := range list.Items {
		if but(&list.Items[i]) {
			continue
		}
		for _, pod := range reservationstate.CountedPods(&list.Items[i], r.clock.Now()) {
			if pod.Spec.NodeName != "" {
				resource.AddTo(held, pod.Spec.NodeName, requests(pod), 1)
			}
		}
	}
	return held, nil
}

// comers are what is to come to each node: moved pods that are not there yet, but those for which room is held, and the
// goal.
func (r *reconciler) comers(ctx context.Context, p *v1alpha1.DefragmentationPlan,
	held func(move int) bool) (map[string]resource.Vector, error) {
	come := map[string]resource.Vector{}
	for i, move := range p.Status.Moves {
		if held(i) {
			continue
		}
		pod, err := moves.Pod(ctx, r.live, client.ObjectKey{Namespace: move.Namespace, Name: move.PodName})
		if err != nil {
			return nil, err
		}
		if pod != nil && pod.UID == move.PodUID {
			resource.AddTo(come, move.TargetNode, requests(pod), 1)
		}
	}
	for _, place := range p.Status.Places {
		pod, err := moves.Pod(ctx, r.live, client.ObjectKey{Namespace: place.Namespace, Name: place.PodName})
		if err != nil {
			return nil, err
		}
		if pod != nil {
			resource.AddTo(come, place.NodeName, requests(pod), int64(place.Members))
		}
	}
	return come, nil
}

// requests are what the scheduler counts for a pod, which is one itself.
func requests(pod *v1.Pod) resource.Vector {
	v := resource.OfPod(pod)
	v[v1.ResourcePods] = 1
	return v
}
