package fairshare

import (
	"context"
	"errors"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
)

// moment returns the current time, with what is known of pods.
func (d *Dispatcher) moment() queueing.Moment {
	return queueing.Moment{Now: d.clock.Now(), Read: d.opened, Room: d.waitsForRoom, Whole: d.whole, Waits: func(uid string) bool {
		counted, ok := d.usage.Pod(types.UID(uid))
		return ok && d.waits(counted.Object)
	}}
}

// waitsForRoom reports whether the job of a pod waits for room on nodes, as far as is known: it may lack members, or
// have given up, or go only where a Reservation is.
func (d *Dispatcher) waitsForRoom(uid string) bool {
	counted, ok := d.usage.Pod(types.UID(uid))
	if !ok {
		return true
	}
	pod := d.current(counted.Object)
	switch {
	case pod == nil:
		return true
	case pod.Annotations[v1alpha1.ReservationAnnotation] != "" && d.reserves[pod.Spec.SchedulerName]:
		return false
	}
	return d.gangs.WaitsForRoom(pod)
}

// whole reports whether everything exists that is to be placed with a pod, as far as is known.
func (d *Dispatcher) whole(uid string) bool {
	pod := d.known(types.UID(uid))
	return pod == nil || d.gangs.Whole(pod)
}

// turn finds the jobs whose turn it is.
func (d *Dispatcher) turn() {
	d.freed = false
	d.do(d.book.Look(d.moment()))
}

// do carries out the effects of an input. call activates the pods.
func (d *Dispatcher) do(e queueing.Effects) {
	d.called = append(d.called, d.podsOf(e.Call)...)
	for _, one := range e.Began {
		waitDuration.WithLabelValues(one.Queue).Observe(one.Waited.Seconds())
	}
	for _, queue := range e.Freed {
		waitDuration.Delete(map[string]string{"queue": queue})
	}
	if len(d.called) > 0 {
		d.poke()
	}
}

// poke makes call check whether there is anything to do.
func (d *Dispatcher) poke() {
	select {
	case d.calling <- struct{}{}:
	default: // it is poked already
	}
}

// expireEvery is how often expire runs.
const expireEvery = 3 * time.Second

// expire ends what time ends. It reports whether gangs that failed may fit by now.
func (d *Dispatcher) expire() (retry bool) {
	defer d.lock()()
	e := d.book.Tick(d.moment())
	d.do(e)
	return e.Retry
}

// call activates pods whose turn it is: not from where the turn is found, which may be inside the scheduling queue.
func (d *Dispatcher) call(ctx context.Context) {
	ticker := d.clock.NewTicker(expireEvery)
	defer ticker.Stop()
	for begun := false; ; {
		var soon <-chan time.Time
		if d.made() {
			soon = d.clock.After(madeEvery)
		}
		select {
		case <-ctx.Done():
			return
		case <-soon:
		case <-ticker.C():
			if d.expire() {
				d.gangs.Changed()
			}
		case <-d.calling:
		}
		pods, opened := d.respond()
		d.activate(ctx, pods)
		if opened && !begun {
			begun = true
			close(d.begun)
		}
	}
}

// respond takes the pods that are to be activated, including those that wait for what the ledger has given back. opened
// reports whether turns have begun by then.
func (d *Dispatcher) respond() (pods []*v1.Pod, opened bool) {
	d.callCovered()
	defer d.lock()()
	if d.freed {
		d.turn()
	}
	pods = d.called
	d.called = nil
	return pods, d.opened
}

// activate moves pods to the gate, those of all profiles together: they share one scheduling queue.
func (d *Dispatcher) activate(ctx context.Context, pods []*v1.Pod) {
	if len(pods) == 0 {
		return
	}
	byName := make(map[string]*v1.Pod, len(pods))
	for _, pod := range pods {
		byName[pod.Namespace+"/"+pod.Name] = pod
	}
	d.handle(pods[0].Spec.SchedulerName).Activate(klog.FromContext(ctx), byName)
}

func (d *Dispatcher) handle(profile string) fwk.Handle {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.handles[profile]
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
	how := queueing.Failure{Job: jobOf(pod, want), Gang: together(want)}
	if !how.Gang {
		how.Hopeless, how.Aside = unresolvable(err), !unfits(err)
	}
	e := d.book.Fail(string(pod.UID), how, d.moment())
	d.do(e)
	return e.Again
}

// Again makes a pod that PreFilter has refused wait for its turn: nothing else brings it back.
func (d *Dispatcher) Again(pod *v1.Pod) {
	want, undecided := d.gangs.Wants(pod)
	if !undecided {
		return
	}
	name, making := jobOf(pod, want), d.makes(pod, want)
	defer d.lock()()
	d.noteMaking(name, making)
	now, phase := d.current(pod), d.book.Phase(name)
	if phase != queueing.Waiting && phase != queueing.Admitted && now != nil && now.Spec.NodeName == "" {
		d.book.Offer(d.job(name, now, want), d.moment())
		d.turn()
	}
}

// unfits reports whether a pod failed because it fits on no node.
func unfits(err error) bool {
	var unfit *framework.FitError
	return errors.As(err, &unfit)
}

// unresolvable reports whether a pod failed for reasons that have nothing to do with running pods.
func unresolvable(err error) bool {
	var unfit *framework.FitError
	if !errors.As(err, &unfit) {
		return false // it failed later, or for another reason
	}
	statuses := unfit.Diagnosis.NodeToStatus
	possible := statuses.AbsentNodesStatus().Code() == fwk.Unschedulable && statuses.Len() < unfit.NumAllNodes
	statuses.ForEachExplicitNode(func(_ string, status *fwk.Status) {
		possible = possible || status.Code() == fwk.Unschedulable
	})
	return !possible
}

// Hopeless notes that the gang of a member would not fit if everything else were gone.
func (d *Dispatcher) Hopeless(member *v1.Pod) {
	defer d.lock()()
	d.book.Find(string(member.UID), false, true)
}

// madeEvery is how often it is checked whether the victims for jobs have ended: this package may see the end of the
// last one before it is counted as ended.
const madeEvery = 100 * time.Millisecond

// makes returns the holder of what a pod is placed with, if pods are evicted for it and have not all ended; none
// otherwise. A member that is all there is to place is placed by itself. It is called with no lock held.
func (d *Dispatcher) makes(pod *v1.Pod, want gangstate.Want) hold.Holder {
	for _, group := range [...]string{want.Job, hold.SinglePod(pod.UID)} {
		holder := hold.Holder{Profile: pod.Spec.SchedulerName, Group: group}
		if d.victims(holder) > 0 {
			return holder
		}
	}
	return hold.Holder{}
}

// noteMaking notes for which holder pods are evicted so that a job may be placed; none if none are.
func (d *Dispatcher) noteMaking(job string, holder hold.Holder) {
	if d.book.Make(job, holder) {
		d.poke() // from now on it is checked whether they have ended
	}
}

// made notes the jobs whose victims have all ended. It reports whether other jobs still have victims.
func (d *Dispatcher) made() bool {
	d.mu.Lock()
	making := d.book.Making()
	d.mu.Unlock()
	left := len(making)
	maps.DeleteFunc(making, func(_ string, holder hold.Holder) bool { return d.victims(holder) > 0 })
	if len(making) == 0 {
		return left > 0
	}
	defer d.lock()()
	for job := range making {
		d.noteMaking(job, hold.Holder{})
	}
	d.turn()
	return left > len(making)
}
