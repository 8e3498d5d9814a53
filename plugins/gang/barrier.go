package gang

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
)

// reasonGivenBack is why a held member does not bind after all.
const reasonGivenBack = "gang released its held nodes"

// reasonPreempted is why a held member needs another place.
const reasonPreempted = "preempted by a higher-priority pod while held"

// barrier is where held members wait. A member passes when its group is
// released, and turns back when the group gives up.
//
// Members wait at the beginning of Bind, not at Permit: kube-scheduler patches
// the status of every pod that waits at Permit, one API write more per pod.
// Members for which PreBind has work to do wait at Permit nevertheless, so that
// no volume is provisioned for a gang that may not start; they get that patch in
// any case. Only those that name ResourceClaims have to go ahead: see claims.go.
type barrier struct {
	mu    sync.Mutex
	doors map[types.UID]*bindWaiter
}

// bindWaiter is one member's way through.
type bindWaiter struct {
	opened chan struct{}
	// refusal is set before opened is closed where the member has to turn back.
	refusal string
	// atPermit: the member waits in the framework's Permit stage too.
	atPermit bool
}

func (b *barrier) add(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.doors[uid] = &bindWaiter{opened: make(chan struct{})}
}

func (b *barrier) get(uid types.UID) *bindWaiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.doors[uid]
}

func (b *barrier) remove(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.doors, uid)
}

// open lets a waiting binding go on; a refusal turns it back. It may be called twice: a
// member that began to wait at Permit just after the first call missed it.
func (pl *Gang) open(uid types.UID, refusal string) {
	pl.barrier.mu.Lock()
	d := pl.barrier.doors[uid]
	if d == nil {
		pl.barrier.mu.Unlock()
		return
	}
	if !isClosed(d.opened) {
		d.refusal = refusal
		close(d.opened)
	}
	atPermit, refusal := d.atPermit, d.refusal
	pl.barrier.mu.Unlock()
	if !atPermit {
		return
	}
	waiting := pl.fw.GetWaitingPod(uid)
	if waiting == nil {
		return
	}
	if refusal == "" {
		waiting.Allow(Name)
	} else {
		waiting.Reject(Name, refusal)
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Reserve notes that the scheduler's cache accounts for the member from now on. Simulated reservations of native pod
// groups do not concern this plugin.
func (pl *Gang) Reserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	if state.IsPodGroupSchedulingCycle() {
		return nil
	}
	pl.holds.PodAssumed(pod.UID, node)
	if pl.gangs.InNoGang(pod) {
		return nil
	}
	pl.barrier.add(pod.UID)
	pl.gangs.UpdateGangs(ctx, func(s *gangstate.Gangs, now time.Time) gangstate.Effects {
		return s.Reserved(pod.UID, node, now)
	})
	return nil
}

// Unreserve takes a member back. It runs before the scheduler's cache forgets
// the member, mostly on a binding goroutine. An attempt in between finds the capacity
// still taken; the next one comes when the cache has forgotten it.
func (pl *Gang) Unreserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) {
	if state.IsPodGroupSchedulingCycle() {
		return
	}
	pl.holds.ReportFreed(node) // a place that is given back may help a gang
	pl.barrier.remove(pod.UID)
	if pl.gangs.InNoGang(pod) {
		return
	}
	pl.gangs.UpdateGangs(ctx, func(s *gangstate.Gangs, now time.Time) gangstate.Effects {
		return s.Unreserved(pod.UID, now)
	})
	pl.claims.Enqueue(pod)
}

// Permit releases the group if this member completes it. Otherwise the member waits.
func (pl *Gang) Permit(ctx context.Context, state fwk.CycleState, pod *v1.Pod,
	node string) (*fwk.Status, time.Duration) {
	if state.IsPodGroupSchedulingCycle() || pl.gangs.InNoGang(pod) {
		return nil, 0
	}
	var wait, ahead bool
	pl.gangs.UpdateGangs(ctx, func(s *gangstate.Gangs, now time.Time) (e gangstate.Effects) {
		wait, ahead, e = s.Permitted(pod.UID, now)
		return e
	})
	if !wait {
		// A member that was deleted during its cycle is in no group that could release it: it passes,
		// and its binding fails.
		pl.open(pod.UID, "")
		return nil, 0
	}
	if pl.ready(); pl.bindsFirst && (ahead || !pl.fw.RunPreBindPreFlights(ctx, state, pod, node).IsSuccess()) {
		return nil, 0 // it waits at Bind
	}
	pl.barrier.mu.Lock()
	defer pl.barrier.mu.Unlock()
	if d := pl.barrier.doors[pod.UID]; d != nil {
		d.atPermit = true
		if isClosed(d.opened) && d.refusal != "" {
			return fwk.NewStatus(fwk.Unschedulable, d.refusal), 0
		}
	}
	return fwk.NewStatus(fwk.Wait), gangstate.MaxPermitWait
}

// Bind is the barrier. It binds nothing: once the member may pass, the next bind
// plugin does.
func (pl *Gang) Bind(ctx context.Context, _ fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	d := pl.barrier.get(pod.UID)
	if d == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	if len(pod.Spec.ResourceClaims) > 0 { // all calls for them have been made
		pl.gangs.UpdateGangs(ctx, func(s *gangstate.Gangs, _ time.Time) gangstate.Effects { return s.Through(pod.UID) })
	}
	if !isClosed(d.opened) {
		if preempted := pl.waitAtBarrier(ctx, pod, d); preempted {
			return unschedulable(pod, node, reasonPreempted)
		}
	}
	switch {
	case !isClosed(d.opened):
		return fwk.AsStatus(fmt.Errorf("waiting for the gang of pod %s/%s: %w", pod.Namespace, pod.Name, context.Cause(ctx)))
	case d.refusal != "":
		return unschedulable(pod, node, d.refusal)
	}
	return fwk.NewStatus(fwk.Skip)
}

// waitAtBarrier waits until the gang is released or the scheduler shuts down. Meanwhile the member
// counts as one whose binding can still be called off, so that a preemptor
// takes its place, and does not delete a pod that never ran.
func (pl *Gang) waitAtBarrier(ctx context.Context, pod *v1.Pod, d *bindWaiter) (preempted bool) {
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	pl.fw.AddPodInPreBind(pod.UID, cancel)
	defer pl.fw.RemovePodInPreBind(pod.UID)
	select {
	case <-d.opened:
	case <-waiting.Done():
	}
	bound := pl.fw.GetPodInPreBind(pod.UID)
	return bound != nil && !bound.MarkPrebound()
}

// unschedulable returns the status of a pod that a plugin rejects after Permit, in the
// form that makes the scheduler treat the pod as one that did not fit, not as an error.
func unschedulable(pod *v1.Pod, node, reason string) *fwk.Status {
	status := fwk.NewStatus(fwk.Unschedulable, reason).WithPlugin(Name)
	fit := &framework.FitError{
		NumAllNodes: 1, Pod: pod,
		Diagnosis: framework.Diagnosis{NodeToStatus: framework.NewDefaultNodeToStatus(),
			UnschedulablePlugins: sets.New(Name)},
	}
	fit.Diagnosis.NodeToStatus.Set(node, status)
	return fwk.NewStatus(fwk.Unschedulable).WithError(fit)
}

// PostBind notes that the member is on its node.
func (pl *Gang) PostBind(ctx context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) {
	pl.barrier.remove(pod.UID)
	if pl.gangs.InNoGang(pod) {
		return
	}
	pl.gangs.UpdateGangs(ctx, func(s *gangstate.Gangs, now time.Time) gangstate.Effects { return s.BoundTo(pod.UID, now) })
}
