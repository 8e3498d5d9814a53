package fairshare

import (
	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/plugins/internal/dispatch"
)

// failure is a job that did not fit, and waits for the scheduler to look at it again.
type failure struct {
	pod   *v1.Pod
	queue string
	gang  bool
	// deserved is the least that its queue has deserved since.
	deserved dispatch.Vector
}

// retry brings back jobs that did not fit and of which the queue deserves more by now: it may
// reclaim then, and no event of the cluster says so. It answers whether there are gangs among
// them, which Gang brings back.
func (d *Dispatcher) retry() (gangs bool) {
	for name, f := range d.failed {
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
