package fairshare

import (
	"context"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/plugins/internal/dispatch"
)

// turn admits whose turn it is, as long as the window has room; what has begun already in any
// case. All are activated but the
// one of the given name, which is on its way.
func (d *Dispatcher) turn(except string) {
	d.freed = false
	for d.opened && d.book.Waiting() > 0 && (d.book.Turns() < d.window || d.book.Urgent()) {
		j, ok := d.book.Next()
		if !ok {
			break
		}
		w := d.waiting[j.Name]
		if w != nil && !d.waits(w.pod) {
			d.leave(j.Name)
			continue
		}
		delete(d.waiting, j.Name)
		d.since[j.Name] = d.clock.Now()
		if w != nil {
			waitDuration.WithLabelValues(j.Queue).Observe(d.clock.Since(w.since).Seconds())
		}
		if j.Name != except && w != nil {
			d.called = append(d.called, w.pod)
		}
	}
	if len(d.called) > 0 {
		d.poke()
	}
}

// poke has call look whether there is anything to do.
func (d *Dispatcher) poke() {
	select {
	case d.calling <- struct{}{}:
	default: // it has been told
	}
}

// leave ends the waiting of a job of which the pod to activate does not wait any more.
// Another of its pods is activated, if there is one, and offers it again.
func (d *Dispatcher) leave(job string) {
	w := d.waiting[job]
	d.book.Done(job)
	delete(d.waiting, job)
	if i := slices.IndexFunc(w.pods, d.waits); i >= 0 {
		d.called = append(d.called, w.pods[i])
	}
}

// done ends the turn of a job, or its waiting.
func (d *Dispatcher) done(job string) {
	d.book.Done(job)
	delete(d.waiting, job)
	d.turn("")
}

// longestTurn is how long a turn lasts of which nothing comes: the pod may have been kept
// back by another gate meanwhile. It comes again.
const longestTurn = 30 * time.Second

// expire ends turns of which nothing came, and whatever else time ends. It returns whether gangs
// that failed may fit by now.
func (d *Dispatcher) expire() (retry bool) {
	d.lock()
	defer d.mu.Unlock()
	for name, since := range d.since {
		switch {
		case !d.book.Admitted(name):
			delete(d.since, name)
		case d.clock.Since(since) > longestTurn:
			d.book.Done(name)
			delete(d.since, name)
			d.demand(name, dispatch.Hopeless) // it asks for nothing until it comes again
		}
	}
	for name, w := range d.waiting {
		if !d.waits(w.pod) {
			d.leave(name)
		}
	}
	d.letOff()
	d.hurry()
	gangs := d.retry()
	d.turn("")
	for _, queue := range d.book.Freed() {
		waitDuration.Delete(map[string]string{"queue": queue})
	}
	return gangs
}

// patience is how long a job waits, after nobody made way for it, until somebody may.
const patience = 30 * time.Second

// hurry ends the patience of jobs.
func (d *Dispatcher) hurry() {
	for name, since := range d.patient {
		if d.clock.Since(since) < patience {
			continue
		}
		delete(d.patient, name)
		d.reenter(name)
	}
}

// letOff ends the waiting for jobs that have been waited for long enough.
func (d *Dispatcher) letOff() {
	waited := d.book.Waited()
	maps.DeleteFunc(d.waited, func(name string, _ time.Time) bool { _, still := waited[name]; return !still })
	for name, rounds := range waited {
		switch since, known := d.waited[name]; {
		case !known:
			d.waited[name] = d.clock.Now()
		case d.clock.Since(since) > d.bypassHold<<rounds:
			d.book.LetOff(name)
			delete(d.waited, name)
		}
	}
}

// call activates pods whose turn it is: not from where that is found out, which may be
// inside the scheduling queue.
func (d *Dispatcher) call(ctx context.Context) {
	ticker := d.clock.NewTicker(longestTurn / 10)
	defer ticker.Stop()
	for {
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
				d.roster.Changed()
			}
		case <-d.calling:
		}
		byProfile := map[string]map[string]*v1.Pod{}
		for _, pod := range d.respond() {
			profile := pod.Spec.SchedulerName
			if byProfile[profile] == nil {
				byProfile[profile] = map[string]*v1.Pod{}
			}
			byProfile[profile][pod.Namespace+"/"+pod.Name] = pod
		}
		for profile, pods := range byProfile {
			d.handle(profile).Activate(klog.FromContext(ctx), pods)
		}
	}
}

// respond takes the pods that are to be activated, of those too that wait for what the ledger has
// given back.
func (d *Dispatcher) respond() []*v1.Pod {
	d.lock()
	defer d.mu.Unlock()
	if d.freed {
		d.turn("")
	}
	pods := d.called
	d.called = nil
	return pods
}

func (d *Dispatcher) handle(profile string) fwk.Handle {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.handles[profile]
}
