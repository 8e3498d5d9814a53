package reservations

import (
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
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/internal/reservation"
	"github.com/lockstep-sh/lockstep/plugins/reservepods"
)

// settling is how long to wait for more reasons why reserve pods have no place.
const settling = 200 * time.Millisecond

// workers is how many Reservations are looked at at a time.
const workers = 4

// run looks at Reservations until ctx is done.
func (r *Registry) run(ctx context.Context) {
	go func() {
		<-ctx.Done()
		r.work.ShutDown()
		r.dues.ShutDown()
	}()
	go r.pay()
	for range workers {
		go func() {
			for {
				name, down := r.work.Get()
				if down {
					return
				}
				r.handle(ctx, name)
				r.work.Done(name)
			}
		}()
	}
}

// pay makes queues be charged for what is left, which no call to the API server holds up.
func (r *Registry) pay() {
	for {
		name, down := r.dues.Get()
		if down {
			return
		}
		r.acting.Lock()
		r.recharge(name)
		r.acting.Unlock()
		r.dues.Done(name)
	}
}

func (r *Registry) handle(ctx context.Context, name string) {
	err := r.look(ctx, name)
	switch {
	case err == nil:
		r.work.Forget(name)
		return
	case !apierrors.IsConflict(err) && ctx.Err() == nil:
		klog.FromContext(ctx).Error(err, "Failed to do what a Reservation needs; trying again", "reservation", name)
	}
	r.work.AddRateLimited(name)
}

// look sees to it that places are sought for what a Reservation lacks, and that its status says why it has
// none.
func (r *Registry) look(ctx context.Context, name string) error {
	e, now, pods := r.snapshot(name)
	if e == nil {
		return nil
	}
	at := r.clock.Now()
	if over(now, at) != "" {
		r.relearn(e, now)
		return nil
	}
	if err := r.spend(ctx, e, now); err != nil {
		return err
	}
	if expiry := reservation.Expiry(now); !expiry.IsZero() {
		r.work.AddAfter(name, expiry.Sub(at))
	}
	profile, ours := r.profile(e.template.Spec.SchedulerName)
	if !ours {
		return nil // another scheduler's
	}
	if err := r.rank(ctx, e, profile); err != nil {
		return err
	}
	missing := missingOf(now)
	if len(missing) == 0 {
		return r.seek(ctx, e, now, nil, false) // whichever process has placed it
	}
	if start := reservation.Start(now); at.Before(start) {
		r.work.AddAfter(name, start.Sub(at))
		return r.tell(ctx, now, v1alpha1.ReservationReasonWaitingForStartTime, fmt.Sprintf("nothing is held before spec.startTime, %s", start.UTC().Format(time.RFC3339)))
	}
	if why := e.refusal(); why != "" {
		return r.tell(ctx, now, v1alpha1.ReservationReasonUnschedulable, why)
	}
	if len(missing) > 1 && !profile.gangs() {
		return r.tell(ctx, now, v1alpha1.ReservationReasonUnschedulable,
			fmt.Sprintf("spec.replicas: %d: profile %q does not have the plugin %s, and would not place them together; name another profile in spec.template.spec.schedulerName", len(missing), e.template.Spec.SchedulerName, gangPlugin))
	}
	if !slices.Equal(sortedKeys(pods), missing) || !r.stored(pods) {
		switch err := r.seek(ctx, e, now, missing, profile.preempts); {
		case errors.Is(err, errNoClass):
			r.work.AddAfter(name, maxPause)
			return r.tell(ctx, now, v1alpha1.ReservationReasonUnschedulable, err.Error())
		case err != nil:
			return err
		}
	}
	r.mu.RLock()
	why := e.why
	r.mu.RUnlock()
	if why == "" {
		return nil
	}
	return r.tell(ctx, now, v1alpha1.ReservationReasonUnschedulable, why)
}

// snapshot returns what is known of a Reservation, and its reserve pods; nil where it has ended.
func (r *Registry) snapshot(name string) (*entry, *v1alpha1.Reservation, map[int32]*v1.Pod) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	e := r.entries[name]
	if e == nil {
		return nil, nil, nil
	}
	return e, e.object, e.pods
}

// profile returns a profile; false where it does not have the plugin.
func (r *Registry) profile(name string) (profile, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	p, ours := r.profiles[name]
	return p, ours
}

// stored reports whether reserve pods are there: one may have been taken for a pod to evict.
func (r *Registry) stored(pods map[int32]*v1.Pod) bool {
	for _, pod := range pods {
		if now, err := r.store.Get(pod.Namespace, pod.Name); err != nil || now.UID != pod.UID {
			return false
		}
	}
	return true
}

// untold is how long the controller has to write that a placement was used.
const untold = 5 * time.Second

// spend writes that placements were used, where the controller does not: the pod that has used one may be gone
// before the controller sees it.
func (r *Registry) spend(ctx context.Context, e *entry, now *v1alpha1.Reservation) error {
	r.mu.RLock()
	used := maps.Clone(e.used)
	r.mu.RUnlock()
	due := func(p v1alpha1.ReservationPlacement) bool { return used[p.Index].node == p.NodeName && !p.Spent }
	isNew := func(p v1alpha1.ReservationPlacement) bool {
		return due(p) && r.clock.Since(used[p.Index].since) >= untold
	}
	for _, p := range now.Status.Placements {
		if due(p) && (!isNew(p) || !r.leading.Given()) {
			r.work.AddAfter(now.Name, max(time.Second, untold-r.clock.Since(used[p.Index].since)))
		}
	}
	if !slices.ContainsFunc(now.Status.Placements, isNew) || !r.leading.Given() {
		return nil
	}
	next := now.DeepCopy()
	for i, p := range next.Status.Placements {
		next.Status.Placements[i].Spent = p.Spent || isNew(p)
	}
	_, err := r.write(ctx, next)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// rank finds out the priority of a Reservation that makes way by it. Where its class does not exist it makes
// way for no pod.
func (r *Registry) rank(ctx context.Context, e *entry, p profile) error {
	r.mu.RLock()
	known := e.priority != nil
	r.mu.RUnlock()
	if known || !p.yields {
		return nil
	}
	pod := e.template.DeepCopy()
	if err := r.prioritize(ctx, pod, false); err != nil && !errors.Is(err, errNoClass) {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e.priority = pod.Spec.Priority
	return nil
}

// missingOf lists the placements that have no place.
func missingOf(now *v1alpha1.Reservation) (missing []int32) {
	has := map[int32]bool{}
	for _, p := range now.Status.Placements {
		has[p.Index] = true
	}
	for index := range int32(reservation.Replicas(now)) {
		if !has[index] {
			missing = append(missing, index)
		}
	}
	return missing
}

// seek puts reserve pods into the scheduling queue for placements that are missing, and takes back the earlier
// ones.
func (r *Registry) seek(ctx context.Context, e *entry, now *v1alpha1.Reservation, missing []int32, preempts bool) error {
	var pod *v1.Pod
	if len(missing) > 0 {
		pod = e.template.DeepCopy()
		if err := r.prioritize(ctx, pod, preempts); err != nil {
			return err
		}
		if err := r.domain(pod, now.Status.Placements); err != nil {
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
		r.work.AddAfter(now.Name, settling)
		return nil
	}
	r.mu.Lock()
	e.fail("other places are sought")
	r.mu.Unlock()
	r.withdraw(e)
	e.attempt++
	made := reservePods(now, pod, missing, e.attempt)
	r.promise(e) // startTime may just have come
	r.mu.Lock()
	e.pods, e.why = made, ""
	r.mu.Unlock()
	for _, index := range missing {
		pod := made[index]
		err := r.store.Add(pod)
		if apierrors.IsAlreadyExists(err) { // the one of a Reservation of this name which is gone
			_ = r.store.Delete(pod.Namespace, pod.Name, nil)
			err = r.store.Add(pod)
		}
		if err != nil {
			r.withdraw(e)
			return fmt.Errorf("seeking a place for placement %d: %w", index, err)
		}
	}
	return nil
}

// recharge makes what is left of the placements of a Reservation count for its queue. acting is held.
func (r *Registry) recharge(name string) {
	if r.charges == nil {
		return
	}
	r.mu.RLock()
	var list []*place
	if e := r.entries[name]; e != nil {
		list = e.on("")
	}
	r.mu.RUnlock()
	for _, p := range list {
		r.charge(p)
	}
}

// observe takes in why a reserve pod has no place, and that one is gone.
func (r *Registry) observe(before, now *v1.Pod) {
	if now == nil {
		if _, _, ok := reservepods.PlacementOf(before); ok && before.Spec.NodeName == "" {
			r.taken(before)
		}
		return
	}
	_, condition := podutil.GetPodCondition(&now.Status, v1.PodScheduled)
	if condition == nil || condition.Status != v1.ConditionFalse || condition.Message == "" {
		return
	}
	name, index, ok := reservepods.PlacementOf(now)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.entries[name]; e != nil && e.pods[int32(index)] != nil && e.pods[int32(index)].UID == now.UID && e.why != condition.Message {
		e.why = condition.Message
		r.work.AddAfter(name, settling)
	}
}

// taken takes in that a reserve pod that had no place yet was deleted: it may have been taken for a pod to
// evict. The reserve pods of its Reservation that wait to be bound with it give back their places.
func (r *Registry) taken(pod *v1.Pod) {
	r.abandon(pod)
	name, _, _ := reservepods.PlacementOf(pod)
	r.work.AddAfter(name, settling)
}

// tell writes into the status of a Reservation why it has no place. Only the process that schedules does.
func (r *Registry) tell(ctx context.Context, now *v1alpha1.Reservation, reason, message string) error {
	condition := metav1.Condition{
		Type: v1alpha1.ReservationScheduled, Status: metav1.ConditionFalse, Reason: reason, Message: clip(message), ObservedGeneration: now.Generation,
	}
	if was := meta.FindStatusCondition(now.Status.Conditions, condition.Type); was != nil &&
		was.Status == condition.Status && was.Reason == condition.Reason && was.Message == condition.Message {
		return nil
	}
	if !r.leading.Given() {
		r.work.AddAfter(now.Name, time.Second)
		return nil
	}
	next := now.DeepCopy()
	if next.Status.Phase == "" {
		next.Status.Phase = v1alpha1.ReservationPending
	}
	condition.LastTransitionTime = metav1.NewTime(r.clock.Now())
	meta.SetStatusCondition(&next.Status.Conditions, condition)
	_, err := r.write(ctx, next)
	if apierrors.IsNotFound(err) {
		return nil // it is gone, which the watch is about to deliver
	}
	return err
}

// longest is the longest message of a condition that the API server takes.
const longest = 32768

func clip(message string) string {
	if len(message) <= longest {
		return message
	}
	return message[:longest-3] + "..."
}
