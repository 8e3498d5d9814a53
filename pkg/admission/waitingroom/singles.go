package waitingroom

import (
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
)

// Pods that are placed alone, in no gang or in one that runs, enter the scheduling queue as they come where they are in
// no queue. One that did not fit is a job from then on, and waits for its turn like a gang: what becomes free goes to
// the first in rank, whatever it is.

// single returns the name in the ledger of a pod that is placed alone.
func single(pod *v1.Pod) hold.Holder {
	return hold.Holder{Profile: pod.Spec.SchedulerName, Group: hold.SinglePod(pod.UID)}
}

// IsSingle reports whether a pod is placed alone, and waits here once it has failed. Pods of queues wait there.
func (r *Room) IsSingle(pod *v1.Pod) bool {
	return r.gangs.IsPlacedAlone(pod) && r.queues.QueueOf(pod) == ""
}

// SingleMayEnter reports whether a pod that is placed alone may enter the scheduling queue. It is called under that
// queue's lock.
func (r *Room) SingleMayEnter(pod *v1.Pod) (enters bool) {
	if pod.Status.NominatedNodeName != "" {
		return true // it has its place
	}
	r.locked(func() {
		if enters = r.line.Enters(single(pod).String()); !enters {
			r.line.Rerank(single(pod).String(), r.gangs.RankAlone(pod)) // its gang may need it now
		}
	})
	if !enters {
		r.RequestNext()
	}
	return enters
}

// RecordSingleFailure notes what the cycle of a pod that is placed alone has found, which is about to fail.
func (r *Room) RecordSingleFailure(pod *v1.Pod, found turns.AttemptFailure) {
	r.locked(func() { r.unfit, r.found = pod.UID, found })
}

// failSingle records that the cycle of a pod that is placed alone, or its binding, failed. One that did not fail
// because it fits nowhere is tried again after kube-scheduler's backoff. mu is held.
func (r *Room) failSingle(pod *v1.Pod, why error) {
	if unfit := new(framework.FitError); !errors.As(why, &unfit) {
		r.line.Withdraw(single(pod).String())
		return
	}
	job := turns.Job{
		Name: single(pod).String(), Holder: single(pod), Single: true, Strict: true, Tried: true,
		Rank: r.gangs.RankAlone(pod),
	}
	now, outcome := r.clock.Now(), turns.AttemptFailure{}
	if r.unfit == pod.UID { // otherwise it failed later
		outcome, r.unfit = r.found, ""
		outcome.Cost = now.Sub(r.cycleBegan)
	}
	r.line.Rerank(job.Name, job.Rank)
	r.line.Fail(job, outcome, now)
}

// ForgetSingle forgets a pod that has a node, is gone, or has joined a gang.
func (r *Room) ForgetSingle(pod *v1.Pod) {
	r.locked(func() { r.line.Withdraw(single(pod).String()) })
}

// RenewSingle records that a pod has changed which may be placed alone: it may fit now.
func (r *Room) RenewSingle(pod *v1.Pod) {
	r.locked(func() { r.line.Renew(single(pod).String(), r.clock.Now()) })
	r.RequestNext()
}

// podOf returns the pod of a single job; nil if it is gone, is being deleted, or has a node.
func (r *Room) podOf(job turns.Job) *v1.Pod {
	namespace, name, err := cache.SplitMetaNamespaceKey(job.Rank.Name)
	if err != nil {
		return nil
	}
	pod, err := r.pods.Pods(namespace).Get(name)
	if err != nil || hold.SinglePod(pod.UID) != job.Holder.Group || !objectstate.AwaitsNode(pod) {
		return nil
	}
	return pod
}
