package fairshare

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/planning/podclass"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/usage"
	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
)

// moment returns the current time, with what is known of pods.
func (d *Dispatcher) moment() queueing.Moment {
	return queueing.Moment{Now: d.clock.Now(), Synced: d.opened, WaitsForRoom: d.waitsForRoom, IsComplete: d.whole,
		IsWaiting: func(uid string) bool {
			counted, ok := d.usage.Pod(types.UID(uid))
			return ok && d.pendingPod(counted.Object) != nil
		}}
}

// waitsForRoom reports whether the job of a pod waits for room on nodes, as far as is known: it may lack members, or
// have given up, or go only where a Reservation is.
func (d *Dispatcher) waitsForRoom(uid string) bool {
	pod := d.countedPod(types.UID(uid))
	switch {
	case pod == nil:
		return true
	case d.reserved != nil && d.reserved.AwaitsReservation(pod):
		return false
	}
	at, member := d.gangs.Progress(pod)
	return !member || at.WaitsForRoom
}

// whole reports whether everything that must be placed with a pod exists, as far as is known.
func (d *Dispatcher) whole(uid string) bool {
	pod := d.countedPod(types.UID(uid))
	if pod == nil {
		return true
	}
	at, member := d.gangs.Progress(pod)
	return !member || at.IsComplete
}

// AddCandidate implements [turns.Policy].
func (d *Dispatcher) AddCandidate(j turns.Job) {
	defer d.lock()()
	d.book.AddCandidate(queueing.Job{Name: j.Name, Title: j.Rank.Name, Queue: j.Queue, Gang: j.Name,
		Priority: j.Rank.Priority, Created: j.Rank.Created, Begun: j.Rank.Begun})
}

// RemoveCandidate implements [turns.Policy].
func (d *Dispatcher) RemoveCandidate(name string) {
	defer d.lock()()
	d.book.RemoveCandidate(name)
}

// First implements [turns.Policy].
func (d *Dispatcher) First(which turns.Selection) (turns.Job, bool) {
	defer d.lock()()
	j, ok, e := d.book.First(d.moment(), which)
	d.do(e)
	return turns.Job{Name: j.Name, Queue: j.Queue, Rank: turns.Rank{Priority: j.Priority, Begun: j.Begun,
		Created: j.Created, Name: j.Title}}, ok
}

// Admit begins the turn of a job that First has returned. Gangs that come after it give back what they hold under a
// ceiling that is in its way. Admit returns the pod to let into the scheduling queue; nil if the job no longer
// waits.
func (d *Dispatcher) Admit(ctx context.Context, job string) *v1.Pod {
	pod, giveBack := d.admit(job)
	if len(giveBack) > 0 {
		d.gangs.Yield(ctx, giveBack)
	}
	return pod
}

func (d *Dispatcher) admit(job string) (pod *v1.Pod, giveBack []hold.Holder) {
	defer d.lock()()
	admitted, ok := d.book.Admit(job, d.moment())
	if !ok {
		return nil, nil
	}
	waitDuration.WithLabelValues(admitted.Queue).Observe(admitted.Waited.Seconds())
	for _, other := range admitted.Releases {
		if one := d.countedPod(types.UID(other.Pod)); one != nil {
			profile := one.Spec.SchedulerName
			giveBack = append(giveBack, hold.Holder{Profile: profile, Group: strings.TrimPrefix(other.Name, profile+"/")})
		}
	}
	return d.countedPod(types.UID(admitted.Pod)), giveBack
}

// Within returns those of some pods of a group, in order, which could be placed together without a queue exceeding its
// ceiling: all of them if a Reservation holds what they ask for.
func (d *Dispatcher) Within(group hold.Holder, pods []*v1.Pod) []*v1.Pod {
	within := d.within(group, pods)
	if len(within) < len(pods) && d.covered(pods[0], pods) {
		return pods
	}
	return within
}

func (d *Dispatcher) within(group hold.Holder, pods []*v1.Pod) []*v1.Pod {
	defer d.lock()()
	uids := make([]string, len(pods))
	for i, pod := range pods {
		uids[i] = string(pod.UID)
	}
	within := sets.New(d.book.Within(group.String(), uids)...)
	return slices.DeleteFunc(slices.Clone(pods), func(pod *v1.Pod) bool { return !within.Has(string(pod.UID)) })
}

// RetryFirst has TakePodsToActivate return, of each queue, the first pod that did not fit.
func (d *Dispatcher) RetryFirst() { d.retryFirst.Store(true) }

// TakePodsToActivate takes the pods that have to come to the gate again.
func (d *Dispatcher) TakePodsToActivate() []*v1.Pod {
	defer d.lock()()
	if d.retryFirst.Swap(false) {
		d.do(d.book.RetryFirst(d.moment()))
	}
	pods := d.toActivate
	d.toActivate = nil
	return pods
}

// do carries out the effects of an input.
func (d *Dispatcher) do(e queueing.Effects) {
	if d.toActivate = append(d.toActivate, d.podsOf(e.BringToGate)...); len(d.toActivate) > 0 {
		d.signal()
	}
	for _, queue := range e.Freed {
		waitDuration.Delete(map[string]string{"queue": queue})
	}
}

// signal makes somebody ask whose turn it is, and call check whether there is anything to do.
func (d *Dispatcher) signal() {
	d.changed()
	select {
	case d.activating <- struct{}{}:
	default: // somebody is about to
	}
}

// expireEvery is how often expire runs.
const expireEvery = 3 * time.Second

// expire ends what time ends. It reports whether gangs that failed may fit by now.
func (d *Dispatcher) expire() (retry bool) {
	defer d.lock()()
	e := d.book.Tick(d.moment())
	d.do(e)
	d.changed()
	return e.Retry
}

// call looks after what time ends.
func (d *Dispatcher) call(ctx context.Context) {
	ticker := d.clock.NewTicker(expireEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			d.dropEnded()
			if d.expire() {
				d.gangs.Changed()
			}
		case <-d.activating:
		}
		d.reenterRecounted()
		d.callCovered()
	}
}

// Failed ends the turn of a pod that could not be scheduled, before the pod is back in the scheduling queue: it may
// come to the gate at once. It reports whether [Dispatcher.Again] has to bring it back. Whether a pod would fit if
// everything else were gone is read from err; for gangs, the plugin Gang reports it.
func (d *Dispatcher) Failed(pod *v1.Pod, err error) (again bool) {
	defer d.lock()()
	if d.assumed[pod.UID] != "" {
		return false
	}
	want, _ := d.gangs.Wants(pod)
	how := queueing.Failure{Job: usage.NameOf(pod, want), Title: usage.TitleOf(pod, want), Together: want.Together()}
	if !how.Together {
		var unfit *framework.FitError
		how.WaitsElsewhere = !errors.As(err, &unfit) // it failed later, or for another reason
		how.Hopeless = !how.WaitsElsewhere && !podclass.Coupled(pod) && unresolvable(unfit)
	}
	e := d.book.Fail(string(pod.UID), how, d.moment())
	d.do(e)
	return e.OfferAgain
}

// Again makes a pod that PreFilter has refused wait for its turn: nothing else brings it back.
func (d *Dispatcher) Again(pod *v1.Pod) {
	want, undecided := d.gangs.Wants(pod)
	if !undecided {
		return
	}
	name := usage.NameOf(pod, want)
	defer d.lock()()
	now, phase := d.pendingPod(pod), d.book.Phase(name)
	if phase != queueing.Waiting && phase != queueing.Admitted && now != nil {
		d.book.Offer(d.job(name, now, want), d.moment())
		d.signal()
	}
}

// unresolvable reports whether a pod fits on no node for reasons that have nothing to do with running pods.
func unresolvable(unfit *framework.FitError) bool {
	statuses := unfit.Diagnosis.NodeToStatus
	possible := statuses.AbsentNodesStatus().Code() == fwk.Unschedulable && statuses.Len() < unfit.NumAllNodes
	statuses.ForEachExplicitNode(func(_ string, status *fwk.Status) {
		possible = possible || status.Code() == fwk.Unschedulable
	})
	return !possible
}

// CompareQueues orders two groups by the priorities of their queues; 0 if these are alike, or not known.
func (d *Dispatcher) CompareQueues(a, b hold.Holder) int {
	defer d.lock()()
	return d.book.CompareQueuePriorities(a.String(), b.String())
}

// Hopeless notes that the gang of a member would not fit if everything else were gone.
func (d *Dispatcher) Hopeless(member *v1.Pod) {
	defer d.lock()()
	d.book.RecordFinding(string(member.UID), false, true)
}
