package fairshare

import (
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/plugins/holds"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
)

// madeEvery is how often is looked whether those have ended that make way for jobs: we may hear
// of the end of the last one before those do who count them.
const madeEvery = 100 * time.Millisecond

// makes is the holder of what a pod is placed with, if others are evicted for it and have not all
// ended; empty if not. It is asked with no lock held.
func (d *Dispatcher) makes(pod *v1.Pod, want gang.Want) string {
	group := want.Job
	if group == "" {
		group = holds.PodGroup(pod.UID)
	}
	if holder := holds.Holder(pod.Spec.SchedulerName, group); d.victims(holder) > 0 {
		return holder
	}
	return ""
}

// noteMaking notes for which holder others are evicted so that a job may be placed; empty if
// nobody is.
func (d *Dispatcher) noteMaking(job, holder string) {
	if d.book.Make(job, holder) {
		d.poke() // they are to be looked after from now on
	}
}

// made takes in for which jobs others have made way. It reports whether there are more.
func (d *Dispatcher) made() bool {
	d.mu.Lock()
	making := d.book.Making()
	d.mu.Unlock()
	left := len(making)
	maps.DeleteFunc(making, func(_, holder string) bool { return d.victims(holder) > 0 })
	if len(making) == 0 {
		return left > 0
	}
	d.lock()
	defer d.mu.Unlock()
	for job := range making {
		d.noteMaking(job, "")
	}
	d.turn()
	return left > len(making)
}
