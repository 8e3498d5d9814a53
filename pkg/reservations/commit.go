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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/reservations/reservepods"
	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// round collects the places that the reserve pods of a Reservation have found. Once all have one, they are written.
type round struct {
	at map[int32]string
	// writing: all have a place, and the status is being written.
	writing bool
	// done is closed at the end; err is why it failed, or nil.
	done chan struct{}
	err  error
}

// fail ends the current round, unless it is being written. The lock of the registry must be held.
func (e *entry) fail(why string) {
	if e.round == nil || e.round.writing {
		return
	}
	e.round.err = errors.New(why)
	close(e.round.done)
	e.round = nil
}

// Bind records the place of a reserve pod. It returns nil once the status of the Reservation has all its places, and
// otherwise the error that prevents that.
func (r *Registry) Bind(ctx context.Context, pod *v1.Pod, node string) error {
	name, number, _ := reservepods.PlacementOf(pod)
	index := int32(number)
	r.mu.Lock()
	e := r.entries[name]
	if e == nil || e.pods[index] == nil || e.pods[index].UID != pod.UID {
		r.mu.Unlock()
		return fmt.Errorf("binding reserve pod %s/%s: Reservation %q no longer asks for it", pod.Namespace, pod.Name, name)
	}
	if e.round == nil {
		e.round = &round{at: map[int32]string{}, done: make(chan struct{})}
	}
	mine := e.round
	mine.at[index] = node
	mine.writing = len(mine.at) == len(e.pods)
	last, pods := mine.writing, maps.Clone(e.pods)
	r.mu.Unlock()
	if last {
		err := r.checkStored(pods)
		if err == nil {
			err = r.commit(ctx, name, e, mine.at)
		}
		r.mu.Lock()
		mine.err = err
		if e.round == mine {
			e.round = nil
		}
		close(mine.done)
		r.mu.Unlock()
		return err
	}
	select {
	case <-mine.done:
	case <-ctx.Done():
		r.reservePodReleased(pod)
		<-mine.done // it may have been written meanwhile
	}
	return mine.err
}

// checkStored returns an error if one of the reserve pods was deleted, such as for a preemptor, which then takes its
// place. The watch may not have said so yet.
func (r *Registry) checkStored(pods map[int32]*v1.Pod) error {
	for _, pod := range pods {
		if now, err := r.store.Get(pod.Namespace, pod.Name); err != nil || now.UID != pod.UID {
			return fmt.Errorf("reserve pod %s/%s was deleted", pod.Namespace, pod.Name)
		}
	}
	return nil
}

// reservePodReleased records that a reserve pod released its place: the others of its Reservation release theirs, too.
func (r *Registry) reservePodReleased(pod *v1.Pod) {
	name, index, _ := reservepods.PlacementOf(pod)
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.entries[name]; e != nil && e.pods[int32(index)] != nil && e.pods[int32(index)].UID == pod.UID {
		e.fail(fmt.Sprintf("placement %d was given up: it could not be bound", index))
	}
}

// RemoveReservePod removes a reserve pod whose placement is held.
func (r *Registry) RemoveReservePod(pod *v1.Pod) {
	_ = r.store.Delete(pod.Namespace, pod.Name, &metav1.Preconditions{UID: &pod.UID}) // it can only be gone
}

// commit writes all placements of a Reservation at once, and makes the ledger hold them. It repeats a write whose
// answer is lost; the write is idempotent.
func (r *Registry) commit(ctx context.Context, name string, e *entry, at map[int32]string) error {
	started := r.clock.Now()
	pause := wait.Backoff{Duration: minPause, Factor: 2, Jitter: 0.2, Steps: 100, Cap: maxPause}
	r.mu.RLock()
	known := e.object
	r.mu.RUnlock()
	base := known
	for {
		next, err := r.withPlacements(base, e, at)
		if err == nil {
			var written *v1alpha1.Reservation
			r.beginWrite(e)
			if written, err = r.writeStatus(ctx, next); err == nil {
				commitDuration.Observe(r.clock.Since(started).Seconds())
				err = r.holdPlacements(written, e, at)
				r.endWrite(e, at)
				return err
			}
			r.endWrite(e, at)
			if isPermanent(err) {
				return fmt.Errorf("writing the placements of Reservation %q: %w", name, err)
			}
		} else if base != known { // it was read just now
			return fmt.Errorf("placing Reservation %q: %w", name, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("writing the placements of Reservation %q: %w", name, errors.Join(err, ctx.Err()))
		case <-r.clock.After(pause.Step()):
		}
		if base, err = r.readAgain(ctx, base); err != nil {
			return err
		}
	}
}

// beginWrite records that the first placements of a Reservation are being written: its owners wait meanwhile.
func (r *Registry) beginWrite(e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.writing = len(e.places) == 0
	r.writing.Add(1)
}

// endWrite records that the write is over, whether or not the placements are held: owners no longer have to wait.
func (r *Registry) endWrite(e *entry, at map[int32]string) {
	r.mu.Lock()
	e.writing = false
	r.writing.Add(-1)
	r.mu.Unlock()
	r.holds.ReportFreed(slices.Collect(maps.Values(at))...)
}

// readAgain reads a Reservation again. If that fails temporarily, it returns what was known.
func (r *Registry) readAgain(ctx context.Context, known *v1alpha1.Reservation) (*v1alpha1.Reservation, error) {
	object, err := r.statuses.Get(ctx, known.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("placing Reservation %q: it is deleted", known.Name)
	case err != nil:
		return known, nil // the write that follows reports it
	}
	now, err := typed(object)
	switch {
	case err != nil:
		return nil, err
	case now.UID != known.UID:
		return nil, fmt.Errorf("placing Reservation %q: it is deleted, and there is another of its name", known.Name)
	}
	return now, nil
}

// isPermanent reports whether a write with this error would fail again.
func isPermanent(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || apierrors.IsForbidden(err) ||
		apierrors.IsBadRequest(err)
}

// withPlacements returns a Reservation with these placements. It fails if the Reservation has others by now, or has
// ended.
func (r *Registry) withPlacements(now *v1alpha1.Reservation, e *entry,
	at map[int32]string) (*v1alpha1.Reservation, error) {
	if why := reservationstate.WhyOver(now, r.clock.Now()); why != "" {
		return nil, errors.New(why)
	}
	next := now.DeepCopy()
	has := map[int32]string{}
	for _, p := range next.Status.Placements {
		has[p.Index] = p.NodeName
	}
	r.mu.RLock()
	amount := e.demand.Request.List()
	r.mu.RUnlock()
	for _, index := range sortedKeys(at) {
		switch node, ok := has[index]; {
		case ok && node != at[index]:
			return nil, fmt.Errorf("placement %d is on node %s by now, not on %s", index, node, at[index])
		case !ok:
			next.Status.Placements = append(next.Status.Placements, v1alpha1.ReservationPlacement{
				Index: index, NodeName: at[index], Allocatable: amount, Annotations: r.podAnnotations(e, index),
			})
		}
	}
	slices.SortFunc(next.Status.Placements,
		func(a, b v1alpha1.ReservationPlacement) int { return cmp.Compare(a.Index, b.Index) })
	total := resource.Vector{}
	for _, p := range next.Status.Placements {
		total.Add(resource.FromList(p.Allocatable), 1)
	}
	next.Status.Allocatable = total.List()
	count, want := len(next.Status.Placements), reservationstate.Replicas(next)
	if count < want {
		return next, nil
	}
	next.Status.Phase = v1alpha1.ReservationAvailable
	message := fmt.Sprintf("%d of %d placements have been found", count, want)
	if want == 1 {
		next.Status.NodeName = next.Status.Placements[0].NodeName
		message = "it has its place on node " + next.Status.NodeName
	}
	meta.SetStatusCondition(&next.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ReservationScheduled, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReservationReasonScheduled, Message: message,
		ObservedGeneration: next.Generation, LastTransitionTime: metav1.NewTime(r.clock.Now()),
	})
	return next, nil
}

// podAnnotations returns what plugins have written on the reserve pod of a placement; nil for nothing.
func (r *Registry) podAnnotations(e *entry, index int32) map[string]string {
	r.mu.RLock()
	made := e.pods[index]
	r.mu.RUnlock()
	if made == nil {
		return nil
	}
	now, err := r.store.Get(made.Namespace, made.Name)
	if err != nil {
		return nil // it was taken back, which ends this
	}
	maps.DeleteFunc(now.Annotations, func(key, value string) bool {
		was, ok := made.Annotations[key]
		return ok && was == value
	})
	if len(now.Annotations) == 0 {
		return nil
	}
	return now.Annotations
}

// holdPlacements makes the ledger hold what was written, and binds the reserve pods to their nodes.
func (r *Registry) holdPlacements(written *v1alpha1.Reservation, e *entry, at map[int32]string) error {
	if !r.updateEntry(e, written) {
		return fmt.Errorf("placing Reservation %q: it has ended", written.Name)
	}
	r.acting.Lock()
	defer r.acting.Unlock()
	r.mu.Lock()
	pods := e.pods
	e.pods, e.why = nil, ""
	r.mu.Unlock()
	var errs []error
	for index, node := range at {
		pod := pods[index]
		if pod == nil {
			errs = append(errs, fmt.Errorf("binding the reserve pod of placement %d: it was taken back", index))
			continue
		}
		err := r.store.Bind(pod.Namespace, &v1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name,
				UID: pod.UID}, Target: v1.ObjectReference{Kind: "Node", Name: node},
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("binding reserve pod %s/%s: %w", pod.Namespace, pod.Name, err))
		}
	}
	if len(errs) > 0 { // their places are held all the same: the pods are no longer needed
		for _, pod := range pods {
			r.RemoveReservePod(pod)
		}
	}
	return errors.Join(errs...)
}

// writeStatus writes the status of a Reservation that has not changed since.
func (r *Registry) writeStatus(ctx context.Context, next *v1alpha1.Reservation) (*v1alpha1.Reservation, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(next)
	if err != nil {
		return nil, fmt.Errorf("writing Reservation %q: %w", next.Name, err)
	}
	object := &unstructured.Unstructured{Object: content}
	object.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("Reservation"))
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	written, err := r.statuses.UpdateStatus(ctx, object, metav1.UpdateOptions{})
	if err != nil {
		return nil, err
	}
	return typed(written)
}

// writeTimeout is how long to wait for the answer to a write.
const writeTimeout = 15 * time.Second
