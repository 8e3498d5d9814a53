package defragplan

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/moves"
	"github.com/lockstep-sh/lockstep/pkg/rules/defrag/migration"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
)

// see reads what the next step depends on.
func (r *reconciler) see(ctx context.Context, p *v1alpha1.DefragmentationPlan) (s migration.PlanSeen, err error) {
	s.Moves = map[int]*migration.Move{}
	const label = v1alpha1.PlanLabel // not with its value: the name of a plan may be too long for one
	var list v1alpha1.PodMigrationList
	if err := moves.List(ctx, r.live, &list, label); err != nil {
		return s, err
	}
	for i := range list.Items {
		m := &list.Items[i]
		if move, ok := moveOf(p, m); ok {
			gone, leaving, err := r.gone(ctx, m)
			if err != nil {
				return s, err
			}
			s.Moves[move] = &migration.Move{PodMigration: m, Gone: gone, Leaving: leaving}
		}
	}
	var reservations v1alpha1.ReservationList
	if err := moves.List(ctx, r.live, &reservations, label); err != nil {
		return s, err
	}
	for i := range reservations.Items {
		if rsv := &reservations.Items[i]; holds(p, rsv) && rsv.DeletionTimestamp == nil {
			s.Holds = append(s.Holds, migration.Hold{
				Available: rsv.Status.Phase == v1alpha1.ReservationAvailable,
				Used:      rsv.Status.Phase == v1alpha1.ReservationSucceeded, Why: migration.WhyNot(rsv),
			})
		}
	}
	s.Wants = len(kinds(p))
	s.Goal, err = r.goal(ctx, p)
	return s, err
}

// holds reports whether a Reservation holds for the goal of a plan what the plan frees.
func holds(p *v1alpha1.DefragmentationPlan, rsv *v1alpha1.Reservation) bool {
	return rsv.Labels[v1alpha1.MigrationLabel] == "" && metav1.IsControlledBy(rsv, p)
}

// moveOf returns which move of a plan a PodMigration is for.
func moveOf(p *v1alpha1.DefragmentationPlan, m *v1alpha1.PodMigration) (int, bool) {
	number, ok := strings.CutPrefix(m.Name, p.Name+"-")
	if !ok || !metav1.IsControlledBy(m, p) {
		return 0, false
	}
	move, err := strconv.Atoi(number)
	return move, err == nil && move >= 0 && move < len(p.Status.Moves)
}

// endsWithin is how much longer than its grace period a pod may take to end before it counts as one that stays.
const endsWithin = 5 * time.Minute

// gone reports whether a move failed because its pod was deleted by something else, and whether the node is free of the
// pod by now (gone) or soon (leaving).
func (r *reconciler) gone(ctx context.Context, m *v1alpha1.PodMigration) (gone, leaving bool, err error) {
	c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.MigrationComplete)
	if m.Status.Phase != v1alpha1.MigrationFailed || c == nil || c.Reason != v1alpha1.MigrationReasonPodGone {
		return false, false, nil
	}
	pod, err := moves.Pod(ctx, r.live, client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.PodName})
	switch {
	case err != nil:
		return false, false, err
	case pod == nil, pod.UID != m.Spec.PodUID, objectstate.HasEnded(pod):
		return true, false, nil
	}
	end := pod.DeletionTimestamp // which has the time that it is given
	return false, end != nil && r.clock.Now().Before(end.Add(endsWithin)), nil
}

// kinds are the members of the goal that stand for their kind: what is freed is held for each kind by a Reservation.
func kinds(p *v1alpha1.DefragmentationPlan) (names []client.ObjectKey) {
	for _, place := range p.Status.Places {
		if key := (client.ObjectKey{Namespace: place.Namespace, Name: place.PodName}); !slices.Contains(names, key) {
			names = append(names, key)
		}
	}
	return names
}

// goal reports whether the goal of a plan still waits.
func (r *reconciler) goal(ctx context.Context, p *v1alpha1.DefragmentationPlan) (migration.Waiting, error) {
	gone, renewed := 0, 0
	for _, key := range kinds(p) {
		pod, err := moves.Pod(ctx, r.live, key)
		switch {
		case err != nil:
			return migration.Waits, err
		case pod == nil, p.Spec.Goal.Pod != nil && pod.UID != p.Spec.Goal.Pod.UID:
			gone++
		case pod.Spec.NodeName != "":
			return migration.Runs, nil
		case !planned(p, pod):
			renewed++
		}
	}
	switch {
	case gone > 0:
		return migration.Gone, nil
	case renewed > 0:
		return migration.Renewed, nil
	}
	return migration.Waits, nil
}

// planned reports whether a pod is the very one that a plan names.
func planned(p *v1alpha1.DefragmentationPlan, pod *v1.Pod) bool {
	return !slices.ContainsFunc(p.Status.Places, func(place v1alpha1.PlannedPlace) bool {
		return place.Namespace == pod.Namespace && place.PodName == pod.Name && place.PodUID != "" && place.PodUID != pod.UID
	})
}
