package fairshare

import (
	"errors"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/plugins/internal/dispatch"
)

// Failed ends the turn of a pod that could not be scheduled, before the scheduling queue has it
// back: it may come to the gate at once. It returns whether [Dispatcher.Again] has to bring it back.
// Whether it would fit if everything else were gone err says of pods, and Gang of gangs.
func (d *Dispatcher) Failed(pod *v1.Pod, err error) (again bool) {
	d.lock()
	defer d.mu.Unlock()
	if d.assumed[pod.UID] != "" {
		return false
	}
	want, _ := d.roster.Wants(pod)
	e := d.book.Fail(string(pod.UID), dispatch.Failure{Job: jobOf(pod, want), Gang: together(want), Hopeless: !together(want) && unresolvable(err)}, d.moment())
	d.do(e)
	return e.Again
}

// Again has a pod wait for its turn that PreFilter has refused: nothing else brings it back.
func (d *Dispatcher) Again(pod *v1.Pod) {
	want, undecided := d.roster.Wants(pod)
	if !undecided {
		return
	}
	name, making := jobOf(pod, want), d.makes(pod, want)
	d.lock()
	defer d.mu.Unlock()
	d.noteMaking(name, making)
	now, phase := d.current(pod), d.book.Phase(name)
	if phase != dispatch.Waiting && phase != dispatch.Admitted && now != nil && now.Spec.NodeName == "" {
		d.book.Offer(d.job(name, now, want), d.moment())
		d.turn()
	}
}

// unresolvable reports whether a pod failed for reasons that have nothing to do with what runs.
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
	d.lock()
	defer d.mu.Unlock()
	d.book.Find(string(member.UID), false, true)
}
