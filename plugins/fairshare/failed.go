package fairshare

import (
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/plugins/internal/dispatch"
)

// Failed ends the turn of a pod that could not be scheduled, before the scheduling queue has it
// back: it may come to the gate at once. One for which others would have to make way, and nobody
// did, is patient for a while. It returns whether [Dispatcher.Again] has to bring it back.
//
// Nobody is kept waiting for what would not fit if everything else were gone: err says so of
// pods, and Gang of gangs.
func (d *Dispatcher) Failed(pod *v1.Pod, err error) (again bool) {
	d.lock()
	defer d.mu.Unlock()
	want, _ := d.roster.Wants(pod)
	alone := want.Job == "" || want.Alone
	hopeless := d.hopeless[pod.UID] || alone && unresolvable(err)
	delete(d.hopeless, pod.UID)
	usage, known := d.book.Counted(string(pod.UID))
	refused := d.refused[pod.UID]
	delete(d.refused, pod.UID)
	if !known || d.assumed[pod.UID] != "" {
		return false
	}
	if usage.Job == "" {
		usage.Job = jobOf(pod, want) // it had a place, and came without a turn
	}
	if refused || len(d.book.Crowded(usage.Job)) > 0 {
		d.patient[usage.Job] = d.clock.Now()
	}
	demand := dispatch.Idle
	if hopeless {
		demand = dispatch.Hopeless
		d.book.Forget(usage.Job)
	} else {
		d.book.Miss(usage.Job)
	}
	d.demand(usage.Job, demand)
	d.done(usage.Job)
	d.fail(usage.Job, pod, !alone)
	return refused && alone
}

// Again has a pod wait for its turn that PreFilter has refused: nobody else brings it back.
func (d *Dispatcher) Again(pod *v1.Pod) {
	want, undecided := d.roster.Wants(pod)
	if !undecided {
		return
	}
	name, making := jobOf(pod, want), d.makes(pod, want)
	d.lock()
	defer d.mu.Unlock()
	d.noteMaking(name, making)
	if d.waiting[name] == nil && !d.book.Admitted(name) && d.waits(pod) {
		d.enter(name, pod, want)
		d.turn("")
	}
}

// demand notes how far what the pods of a job ask for counts until it comes again.
func (d *Dispatcher) demand(job string, demand dispatch.Demand) {
	for uid := range d.jobs[job] {
		d.ask(uid, job, demand)
	}
}

// ask notes how far what a pod of a job asks for counts.
func (d *Dispatcher) ask(uid types.UID, job string, demand dispatch.Demand) {
	if usage, known := d.book.Counted(string(uid)); known && usage.Job == job && usage.Demand != demand {
		usage.Demand = demand
		d.book.Count(string(uid), usage)
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
	d.hopeless[member.UID] = true
}

// failure is a job that did not fit, and waits for the scheduler to look at it again.
type failure struct {
	pod   *v1.Pod
	queue string
	gang  bool
	// deserved is the least that its queue has deserved since.
	deserved dispatch.Vector
}

// retry brings back jobs that did not fit and of which the queue deserves more by now: it may
// reclaim then, and no event of the cluster says so. It returns whether there are gangs among
// them, which Gang brings back.
func (d *Dispatcher) retry() (gangs bool) {
	for name, f := range d.failed {
		if !d.waits(f.pod) {
			delete(d.failed, name)
			continue
		}
		grows := false
		now := d.book.Deserved(f.queue)
		for resource, amount := range now {
			grows = grows || amount > f.deserved[resource]
			f.deserved[resource] = min(amount, f.deserved[resource])
		}
		if !grows {
			continue
		}
		delete(d.failed, name)
		if gangs = gangs || f.gang; !f.gang {
			d.called = append(d.called, f.pod)
		}
	}
	return gangs
}

// fail notes a job that did not fit.
func (d *Dispatcher) fail(job string, pod *v1.Pod, gang bool) {
	queue := d.queueOf(pod)
	f := &failure{pod: pod, queue: queue, gang: gang, deserved: dispatch.Vector{}}
	f.deserved.Add(d.book.Deserved(queue), 1)
	d.failed[job] = f
}
