package fairshare

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/plugins/internal/dispatch"
)

// moment is now, with what is known of pods.
func (d *Dispatcher) moment() dispatch.Moment {
	return dispatch.Moment{Now: d.clock.Now(), Read: d.opened, Waits: func(uid string) bool {
		s, seen := d.seen[types.UID(uid)]
		return seen && d.waits(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.name, UID: types.UID(uid)}})
	}}
}

// turn looks whose turn it is.
func (d *Dispatcher) turn() {
	d.freed = false
	d.do(d.book.Look(d.moment()))
}

// do carries out what an input has effected. Pods are activated by call.
func (d *Dispatcher) do(e dispatch.Effects) {
	for _, uid := range e.Call {
		if pod := d.known(types.UID(uid)); pod != nil {
			d.called = append(d.called, pod)
		}
	}
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

// poke has call look whether there is anything to do.
func (d *Dispatcher) poke() {
	select {
	case d.calling <- struct{}{}:
	default: // it has been told
	}
}

// expireEvery is how often is looked what time has ended.
const expireEvery = 3 * time.Second

// expire ends what time ends. It returns whether gangs that failed may fit by now.
func (d *Dispatcher) expire() (retry bool) {
	d.lock()
	defer d.mu.Unlock()
	e := d.book.Tick(d.moment())
	d.do(e)
	return e.Retry
}

// call activates pods whose turn it is: not from where that is found out, which may be
// inside the scheduling queue.
func (d *Dispatcher) call(ctx context.Context) {
	ticker := d.clock.NewTicker(expireEvery)
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
		d.turn()
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
