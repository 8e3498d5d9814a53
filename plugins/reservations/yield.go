package reservations

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
)

// yieldTries is how often a status is written that is changed by others at the same time.
const yieldTries = 5

// Yielding lists the holders of what is held for Reservations of less than a priority that make way for it.
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

// Yield makes those of these holders that are Reservations give up what they hold on nodes, used or not, and
// seek other places. Pods that use it go on doing so. The status of each says so before what it held is free. It
// fails where that could not be written.
func (r *Registry) Yield(ctx context.Context, holders []hold.Holder, nodes []string, priority int32) error {
	var errs []error
	for _, name := range r.namesOf(holders) {
		if err := r.yield(ctx, name, nodes, priority); err != nil {
			errs = append(errs, fmt.Errorf("having Reservation %q make way: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// namesOf returns the names of the Reservations that some holders are, in order.
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
		next := r.without(base, nodes, priority)
		if next == nil {
			return nil
		}
		written, err := r.write(ctx, next)
		switch {
		case err == nil:
			r.relearn(e, written)
			r.work.Add(name)
			return nil
		case apierrors.IsNotFound(err):
			return nil // it is gone, which the watch is about to deliver
		case !apierrors.IsConflict(err) || try == yieldTries:
			return err
		}
		if base, err = r.read(ctx, base); err != nil {
			return err
		}
	}
}

// without returns a Reservation without its placements on nodes that hold something; nil where there are none.
func (r *Registry) without(now *v1alpha1.Reservation, nodes []string, priority int32) *v1alpha1.Reservation {
	goes := func(p v1alpha1.ReservationPlacement) bool { return !p.Spent && slices.Contains(nodes, p.NodeName) }
	if over(now, r.clock.Now()) != "" || !slices.ContainsFunc(now.Status.Placements, goes) {
		return nil
	}
	next := now.DeepCopy()
	before := len(next.Status.Placements)
	next.Status.Placements = slices.DeleteFunc(next.Status.Placements, goes)
	next.Status.Phase, next.Status.NodeName = v1alpha1.ReservationPending, ""
	meta.SetStatusCondition(&next.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ReservationScheduled, Status: metav1.ConditionFalse, Reason: v1alpha1.ReservationReasonPreempted,
		Message: fmt.Sprintf("%d of %d placements made way for pods of priority %d: other places are sought",
			before-len(next.Status.Placements), before, priority),
		ObservedGeneration: next.Generation, LastTransitionTime: metav1.NewTime(r.clock.Now()),
	})
	return next
}
