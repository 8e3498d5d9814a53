package reservations

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate"
)

// yieldTries is how often a status write is retried on conflict.
const yieldTries = 5

// Yielding lists the holders of Reservations below a priority that make way for it.
func (r *Registry) Yielding(below int32) []hold.Holder {
	if r.Empty() {
		return nil
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	var holders []hold.Holder
	for _, e := range r.entries {
		if len(e.places) > 0 && e.priority != nil && *e.priority < below && r.profiles[e.template.Spec.SchedulerName].yields {
			holders = append(holders, holderOf(e.object.UID))
		}
	}
	slices.SortFunc(holders, hold.Holder.Compare)
	return holders
}

// Yield makes those of these holders that are Reservations release what they hold on nodes, used or not, and seek other
// places. Pods that use it run on. The status of each says so before the capacity is free. It fails if that cannot be
// written.
func (r *Registry) Yield(ctx context.Context, holders []hold.Holder, nodes []string, priority int32) error {
	var errs []error
	for _, name := range r.namesOf(holders) {
		if err := r.yield(ctx, name, nodes, priority); err != nil {
			errs = append(errs, fmt.Errorf("having Reservation %q make way: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// namesOf returns the names of the Reservations among some holders, sorted.
func (r *Registry) namesOf(holders []hold.Holder) []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var names []string
	for name, e := range r.entries {
		if slices.Contains(holders, holderOf(e.object.UID)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (r *Registry) yield(ctx context.Context, name string, nodes []string, priority int32) error {
	e, base, _ := r.snapshot(name)
	if e == nil {
		return nil
	}
	for try := 1; ; try++ {
		next := r.withoutPlacements(e, base, nodes, priority)
		if next == nil {
			return nil
		}
		written, err := r.writeStatus(ctx, next)
		switch {
		case err == nil:
			r.updateEntry(e, written)
			r.work.Add(name)
			return nil
		case apierrors.IsNotFound(err):
			return nil // it is gone, which the watch is about to deliver
		case !apierrors.IsConflict(err) || try == yieldTries:
			return err
		}
		if base, err = r.readAgain(ctx, base); err != nil {
			return err
		}
	}
}

// withoutPlacements returns a Reservation without its placements on nodes that hold something; nil if there are none. A
// single-use placement that was used holds nothing, whether or not the status says so.
func (r *Registry) withoutPlacements(e *entry, now *v1alpha1.Reservation, nodes []string,
	priority int32) *v1alpha1.Reservation {
	r.mu.RLock()
	used := maps.Clone(e.used)
	r.mu.RUnlock()
	goes := func(p v1alpha1.ReservationPlacement) bool {
		return !p.Spent && used[p.Index].node != p.NodeName && slices.Contains(nodes, p.NodeName)
	}
	if reservationstate.WhyOver(now, r.clock.Now()) != "" || !slices.ContainsFunc(now.Status.Placements, goes) {
		return nil
	}
	next := now.DeepCopy()
	before := len(next.Status.Placements)
	next.Status.Placements = slices.DeleteFunc(next.Status.Placements, goes)
	next.Status.Phase, next.Status.NodeName = v1alpha1.ReservationPending, ""
	meta.SetStatusCondition(&next.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ReservationScheduled, Status: metav1.ConditionFalse, Reason: v1alpha1.ReservationReasonPreempted,
		Message: fmt.Sprintf("%d of %d placements were preempted by pods of priority %d; scheduling them again",
			before-len(next.Status.Placements), before, priority),
		ObservedGeneration: next.Generation, LastTransitionTime: metav1.NewTime(r.clock.Now()),
	})
	return next
}
