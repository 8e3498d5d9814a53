package waitingroom

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/framework/cacheevents"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
)

var _ cacheevents.Listener = &Room{}

// HandleEvent notes what may help jobs that did not fit, of all events that the scheduler's cache has taken in. Events
// that it has not taken in come here later.
func (r *Room) HandleEvent(event fwk.ClusterEvent, before, after any) {
	if cacheevents.Helps(event, before, after) {
		r.RecordChange(turns.NodesChanged)
	}
	if event.Resource != fwk.AssignedPod {
		return // other pods are not placed, and gangs watch their members
	}
	pod, left := before.(*v1.Pod)
	left = left && event.ActionType == fwk.Delete
	ended := left && !r.goesOn(pod)
	if left {
		r.queues.Left(pod)
	}
	if ended {
		r.holds.DropNomination(pod.UID) // others may be tried before a watch reports that the pod is gone
	}
	ends := cacheevents.Ends(before, after)
	if ends {
		r.queues.RetryFirst() // kube-scheduler brings its pods only once the pod is gone
	}
	switch {
	case ended && r.evictions != nil && r.evictions.RecordEnd(pod.UID, r.clock.Now()):
		r.RecordChange(turns.VictimEnded)
	case cacheevents.Frees(event) || ends:
		r.RecordChange(turns.Freed)
	case event.ActionType&(fwk.Add|fwk.UpdatePodLabel) != 0 && event.ActionType != fwk.Update:
		r.RecordChange(turns.PodsMoved)
	}
}

// goesOn reports whether a pod exists and is not being deleted. Where the cache no longer has it, its binding failed or
// was called off: it has not ended, and may come to a node again.
func (r *Room) goesOn(pod *v1.Pod) bool {
	if r.pods == nil {
		return true // nothing is scheduled yet
	}
	now, err := r.pods.Pods(pod.Namespace).Get(pod.Name)
	return err == nil && now.UID == pod.UID && now.DeletionTimestamp == nil
}

// HandleFailedCycle notes that the cycle of a pod failed: not every cycle of a leader gets as far as an outcome.
func (r *Room) HandleFailedCycle(ctx context.Context, pod *v1.Pod, why error) {
	r.gangs.Failed(ctx, pod, why)
	holder, together := r.holderOf(pod)
	r.locked(func() {
		if name, begun := r.line.Turn(); begun && together && name == holder.String() {
			r.line.PassOver(name)
		}
		if r.taken == pod.UID {
			r.line.RecordEmptyAttempt()
		}
		if r.IsSingle(pod) {
			r.failSingle(pod, why)
		}
	})
}

// RecordChange notes something that may help jobs that did not fit.
func (r *Room) RecordChange(change turns.Change) {
	r.locked(func() { r.line.RecordChange(change) })
	r.RequestNext()
}

// Recall has a pod, or its gang, tried again, although nothing has changed in the cluster.
func (r *Room) Recall(pod *v1.Pod) {
	holder, _ := r.holderOf(pod)
	r.locked(func() { r.line.Recall(holder.String()) })
	r.RequestNext()
}

// mostTouched is how many groups may have been touched until they are looked at.
const mostTouched = 1000

// ApplyGangEffects takes in what an input to the gangs of a profile says of the groups that wait.
func (r *Room) ApplyGangEffects(profile string, e *gangstate.Effects) {
	if len(e.Missed)+len(e.Changed) == 0 {
		return
	}
	r.locked(func() {
		for _, missed := range e.Missed {
			group, outcome := hold.Holder{Profile: profile, Group: missed.Group}, missed.AttemptFailure
			if missed.RoomFor != "" {
				outcome.Holder = hold.Holder{Profile: profile, Group: missed.RoomFor}
			}
			turn, _ := r.gangs.Turn(group)
			r.line.Fail(r.jobOf(group, turn), outcome, r.clock.Now())
		}
		for key := range e.Changed {
			r.touched[hold.Holder{Profile: profile, Group: key.String()}] = true
		}
		if len(r.touched) > mostTouched {
			r.refresh(r.clock.Now()) // a standby process never calls Next
		}
	})
	r.RequestNext()
}
