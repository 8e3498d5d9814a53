package reservations

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/kube/workloop"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/reservations/reservepods"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate"
	"github.com/lockstep-sh/lockstep/pkg/util/words"
)

// reasonDelay is how long to wait for more reasons why reserve pods have no place.
const reasonDelay = 200 * time.Millisecond

// workers is how many Reservations are reconciled concurrently.
const workers = 4

// run reconciles Reservations until ctx is done.
func (r *Registry) run(ctx context.Context) {
	context.AfterFunc(ctx, r.toCharge.ShutDown)
	go r.chargeQueues()
	for range workers {
		go workloop.Run(ctx, r.work, r.reconcile, "Failed to do what a Reservation needs; trying again")
	}
}

// chargeQueues charges queues for what is left of placements. No call to the API server delays it.
func (r *Registry) chargeQueues() {
	for {
		name, down := r.toCharge.Get()
		if down {
			return
		}
		r.acting.Lock()
		r.chargeReservation(name)
		r.acting.Unlock()
		r.toCharge.Done(name)
	}
}

// reconcile makes reserve pods look for the missing places of a Reservation, and writes into its status why it has
// none.
func (r *Registry) reconcile(ctx context.Context, name string) error {
	e, now, pods := r.snapshot(name)
	if e == nil {
		return nil
	}
	at := r.clock.Now()
	if reservationstate.WhyOver(now, at) != "" {
		r.updateEntry(e, now)
		return nil
	}
	if err := r.writeSpent(ctx, e, now); err != nil {
		return err
	}
	if expiry := reservationstate.Expiry(now); !expiry.IsZero() {
		r.work.AddAfter(name, expiry.Sub(at))
	}
	profile, ours := r.profile(e.template.Spec.SchedulerName)
	if !ours {
		r.stopSeeking(e)
		return nil // another scheduler's
	}
	if err := r.setPriority(ctx, e, profile); err != nil {
		return err
	}
	missing := reservationstate.Missing(now)
	if len(missing) == 0 {
		// whichever process has placed it
		return errors.Join(r.createReservePods(ctx, e, now, nil, false), r.writeObserved(ctx, now))
	}
	if start := reservationstate.Start(now); at.Before(start) {
		r.work.AddAfter(name, start.Sub(at))
		return r.writeScheduled(ctx, e, now, v1alpha1.ReservationReasonWaitingForStartTime,
			reservationstate.TextNotStarted(start))
	}
	if why := e.refusal(); why != "" {
		r.stopSeeking(e)
		return r.writeScheduled(ctx, e, now, v1alpha1.ReservationReasonUnschedulable, why)
	}
	if len(missing) > 1 && !profile.gangs() {
		r.stopSeeking(e)
		return r.writeScheduled(ctx, e, now, v1alpha1.ReservationReasonUnschedulable,
			fmt.Sprintf("spec.replicas: %d: profile %q does not have the plugin %s, and would not place them together; name "+
				"another profile in spec.template.spec.schedulerName", len(missing), e.template.Spec.SchedulerName, gangPlugin))
	}
	if !slices.Equal(sortedKeys(pods), missing) || r.checkStored(pods) != nil {
		var refused *refusedError
		switch err := r.createReservePods(ctx, e, now, missing, profile.preempts); {
		case errors.As(err, &refused):
			r.work.AddAfter(name, maxPause)
			r.stopSeeking(e)
			return r.writeScheduled(ctx, e, now, v1alpha1.ReservationReasonUnschedulable, refused.why)
		case err != nil:
			return err
		}
	}
	r.mu.RLock()
	why := e.why
	r.mu.RUnlock()
	switch absent, err := r.absentNode(now, missing); {
	case err != nil:
		return err
	case absent != "":
		why = absent // the filters only say that no node fits
		r.work.AddAfter(name, maxPause)
	}
	if why == "" {
		return nil
	}
	return r.writeScheduled(ctx, e, now, v1alpha1.ReservationReasonUnschedulable, why)
}

// absentNode names a node of spec.nodeNames for a missing placement that does not exist; empty if all do.
func (r *Registry) absentNode(now *v1alpha1.Reservation, missing []int32) (string, error) {
	for _, index := range missing {
		if int(index) >= len(now.Spec.NodeNames) {
			continue
		}
		_, err := r.nodes.Get(now.Spec.NodeNames[index])
		switch {
		case apierrors.IsNotFound(err):
			return fmt.Sprintf("spec.nodeNames[%d]: there is no node %q: it waits until there is one; or make another "+
				"Reservation", index, now.Spec.NodeNames[index]), nil
		case err != nil:
			return "", fmt.Errorf("looking up node %q: %w", now.Spec.NodeNames[index], err)
		}
	}
	return "", nil
}

// snapshot returns the state of a Reservation, and its reserve pods; nil if it has ended.
func (r *Registry) snapshot(name string) (*entry, *v1alpha1.Reservation, map[int32]*v1.Pod) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	e := r.entries[name]
	if e == nil {
		return nil, nil, nil
	}
	return e, e.object, e.pods
}

// profile returns a profile; false if it does not have the plugin.
func (r *Registry) profile(name string) (profile, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	p, ours := r.profiles[name]
	return p, ours
}

// writeDelay is how long the controller has to write that a placement was used.
const writeDelay = 5 * time.Second

// writeSpent writes that placements were used, if the controller has not: the pod that used one may be gone before the
// controller sees it.
func (r *Registry) writeSpent(ctx context.Context, e *entry, now *v1alpha1.Reservation) error {
	r.mu.RLock()
	used := maps.Clone(e.used)
	r.mu.RUnlock()
	due := func(p v1alpha1.ReservationPlacement) bool { return used[p.Index].node == p.NodeName && !p.Spent }
	isNew := func(p v1alpha1.ReservationPlacement) bool {
		return due(p) && r.clock.Since(used[p.Index].since) >= writeDelay
	}
	for _, p := range now.Status.Placements {
		if due(p) && !isNew(p) {
			r.work.AddAfter(now.Name, writeDelay-r.clock.Since(used[p.Index].since))
		}
	}
	if !slices.ContainsFunc(now.Status.Placements, isNew) {
		return nil
	}
	next := now.DeepCopy()
	for i, p := range next.Status.Placements {
		next.Status.Placements[i].Spent = p.Spent || isNew(p)
	}
	return r.writeIfLeading(ctx, next)
}

// setPriority looks up the priority of a Reservation that makes way by it. If its class cannot be looked up it makes
// way for no pod.
func (r *Registry) setPriority(ctx context.Context, e *entry, p profile) error {
	r.mu.RLock()
	name, known := e.object.Name, e.priority != nil
	r.mu.RUnlock()
	if known || !p.yields {
		return nil
	}
	priority, err := r.priorityOf(ctx, e.template)
	switch refused := (*refusedError)(nil); {
	case errors.As(err, &refused):
		r.work.AddAfter(name, maxPause)
	case err != nil:
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e.priority = priority
	return nil
}

// createReservePods queues reserve pods for missing placements, in place of the earlier ones.
func (r *Registry) createReservePods(ctx context.Context, e *entry, now *v1alpha1.Reservation,
	missing []int32, preempts bool) error {
	var pod *v1.Pod
	if len(missing) > 0 {
		var err error
		if pod, err = r.admitted(ctx, e.template, preempts); err != nil {
			return err
		}
		if err := r.requireDomain(pod, now.Status.Placements); err != nil {
			return err
		}
	}
	r.acting.Lock()
	defer r.acting.Unlock()
	r.mu.RLock()
	stale, busy := r.entries[now.Name] != e || e.object != now, e.round != nil && e.round.writing
	idle := len(e.pods)+len(missing) == 0
	r.mu.RUnlock()
	if stale || idle {
		return nil // what has changed is looked at next
	}
	if busy {
		r.work.AddAfter(now.Name, reasonDelay)
		return nil
	}
	r.mu.Lock()
	e.fail("its placements are being scheduled again")
	r.mu.Unlock()
	r.withdrawReservePods(e)
	e.attempt++
	e.unsought = false
	made := reservePods(now, pod, missing, e.attempt)
	r.mu.Lock()
	e.pods, e.why = made, ""
	if pod != nil {
		e.demand = ledger.DemandOf(&framework.PodInfo{Pod: pod})
	}
	r.mu.Unlock()
	r.holdPromises(e) // startTime may have come just now, and admission may have changed the request
	for _, index := range missing {
		pod := made[index]
		err := r.store.Add(pod)
		if apierrors.IsAlreadyExists(err) { // it belongs to a deleted Reservation of this name
			_ = r.store.Delete(pod.Namespace, pod.Name, nil)
			err = r.store.Add(pod)
		}
		if err != nil {
			r.withdrawReservePods(e)
			return fmt.Errorf("seeking a place for placement %d: %w", index, err)
		}
	}
	return nil
}

// stopSeeking ends the search for the missing places of a Reservation. createReservePods begins it again.
func (r *Registry) stopSeeking(e *entry) {
	r.acting.Lock()
	defer r.acting.Unlock()
	e.unsought = true
	r.setPromises(e, nil)
	r.mu.Lock()
	e.fail("no places are sought")
	r.mu.Unlock()
	r.withdrawReservePods(e)
}

// chargeReservation charges what is left of the placements of a Reservation to its queue. acting must be held.
func (r *Registry) chargeReservation(name string) {
	r.mu.RLock()
	var list []*place
	if e := r.entries[name]; e != nil {
		list = e.placesOn("")
	}
	r.mu.RUnlock()
	for _, p := range list {
		r.chargePlace(p)
	}
}

// reservePodChanged records why a reserve pod has no place.
func (r *Registry) reservePodChanged(pod *v1.Pod) {
	condition := objectstate.WaitCondition(pod)
	if condition == nil || condition.Message == "" {
		return
	}
	name, index, _ := reservepods.PlacementOf(pod)
	r.mu.Lock()
	defer r.mu.Unlock()
	why := reservepods.Words(pod, condition.Message)
	if e := r.entries[name]; e != nil && e.pods[int32(index)] != nil && e.pods[int32(index)].UID == pod.UID &&
		e.why != why {
		e.why = why
		r.work.AddAfter(name, reasonDelay)
	}
}

// reservePodDeleted processes that a reserve pod was deleted: one without a place may have been chosen as a victim. The
// reserve pods of its Reservation that wait at Permit release their places.
func (r *Registry) reservePodDeleted(pod *v1.Pod) {
	if pod.Spec.NodeName != "" {
		return // its place is held
	}
	r.reservePodReleased(pod)
	name, _, _ := reservepods.PlacementOf(pod)
	r.work.AddAfter(name, reasonDelay)
}

// writeObserved writes into the status of a Reservation that has all its places that its spec is known here: a pod that
// comes from now on is placed by it. Only the process that schedules does.
func (r *Registry) writeObserved(ctx context.Context, now *v1alpha1.Reservation) error {
	was := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ReservationScheduled)
	if was == nil || was.ObservedGeneration == now.Generation {
		return nil
	}
	next := now.DeepCopy()
	meta.FindStatusCondition(next.Status.Conditions, v1alpha1.ReservationScheduled).ObservedGeneration = now.Generation
	return r.writeIfLeading(ctx, next)
}

// writeIfLeading writes the status of a Reservation if this is the process that schedules; else it looks again later. A
// Reservation that is gone needs no status.
func (r *Registry) writeIfLeading(ctx context.Context, next *v1alpha1.Reservation) error {
	if !r.leading.Given() {
		r.work.AddAfter(next.Name, time.Second)
		return nil
	}
	_, err := r.writeStatus(ctx, next)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// Other words for a reason that the status of a Reservation gives already are for people, and may change with each
// attempt. They are written at most once per rewordPause for a Reservation, and rewordQPS times per second for all.
const (
	rewordPause = 10 * time.Second
	rewordQPS   = 10
)

// writeScheduled writes into the status of a Reservation why it has no place: another reason at once, and other words
// for the same one in time. Only the process that schedules does.
func (r *Registry) writeScheduled(ctx context.Context, e *entry, now *v1alpha1.Reservation,
	reason, message string) error {
	condition := metav1.Condition{
		Type: v1alpha1.ReservationScheduled, Status: metav1.ConditionFalse, Reason: reason,
		Message:            words.Clip(message, maxMessage),
		ObservedGeneration: now.Generation,
	}
	at := r.clock.Now()
	was := meta.FindStatusCondition(now.Status.Conditions, condition.Type)
	if was != nil && was.Status == condition.Status && was.Reason == condition.Reason {
		if was.Message == condition.Message {
			return nil
		}
		if pause := e.worded.Add(rewordPause).Sub(at); pause > 0 || !r.rewords.AllowN(at, 1) {
			r.work.AddAfter(now.Name, cmp.Or(max(pause, 0), rewordPause))
			return nil
		}
	}
	next := now.DeepCopy()
	if next.Status.Phase == "" {
		next.Status.Phase = v1alpha1.ReservationPending
	}
	condition.LastTransitionTime = metav1.NewTime(at)
	meta.SetStatusCondition(&next.Status.Conditions, condition)
	e.worded = at
	return r.writeIfLeading(ctx, next)
}

// maxMessage is the longest condition message that the API server accepts.
const maxMessage = 32768
