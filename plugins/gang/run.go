package gang

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
)

// start lets members through once all that the API server has was seen.
func (pl *Gang) start(ctx context.Context) {
	if !cache.WaitForCacheSync(ctx.Done(), pl.synced...) {
		return // the scheduler is going down
	}
	pl.input(ctx, func(s *gang.Gangs, now time.Time) gang.Effects { return s.Open(now) })
	pl.opened.Store(true)
	pl.run(ctx)
}

const (
	// tickEvery is how often time is looked at: the resolution of pauses and of wait times.
	tickEvery = 100 * time.Millisecond
	// measureEvery is how many ticks lie between two looks at the gauges.
	measureEvery = 50
)

// run turns the passing of time into inputs, and has groups tried again.
func (pl *Gang) run(ctx context.Context) {
	ticker, timer := pl.clock.NewTicker(tickEvery), pl.clock.NewTimer(tickEvery)
	defer ticker.Stop()
	defer timer.Stop()
	for n := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			pl.tick(ctx)
			if n++; n%measureEvery == 0 {
				pl.measure()
			}
		case <-timer.C():
		case <-pl.wake:
		}
		if pause := pl.retry(ctx); pause > 0 {
			timer.Reset(pause)
		}
	}
}

// tick takes in that time has passed.
func (pl *Gang) tick(ctx context.Context) {
	pl.input(ctx, func(s *gang.Gangs, now time.Time) gang.Effects {
		if freed := pl.holds.Freed(); freed != pl.freed {
			pl.freed = freed
			s.Changed()
		}
		return s.Tick(now, elsewhere{pl})
	})
}

// retry has groups tried again that are due, one after the other as their attempts end. It
// answers how long to wait until the next may be; 0 for no matter.
func (pl *Gang) retry(ctx context.Context) time.Duration {
	for ctx.Err() == nil {
		pl.mu.Lock()
		at, due := pl.gangs.Due()
		pause := at.Sub(pl.clock.Now())
		pl.mu.Unlock()
		switch {
		case !due:
			return 0
		case pause > 0:
			return pause
		}
		pl.input(ctx, func(s *gang.Gangs, now time.Time) gang.Effects { return s.Retry(now, elsewhere{pl}) })
		pl.passOver()
	}
	return 0
}

// passOver has the next group tried where somebody else keeps the leader of this one: it
// has come to all gates when it was activated.
func (pl *Gang) passOver() {
	pl.mu.Lock()
	uid, trying := pl.gangs.Trying()
	pl.mu.Unlock()
	if !trying {
		return
	}
	leader, waits := pl.pending(uid)
	if !waits || !pl.roster.Waiting(leader) {
		return
	}
	pl.mu.Lock()
	pl.gangs.PassOver(uid)
	pl.mu.Unlock()
}

// look has run look at once whether a group is to be tried again.
func (pl *Gang) look() {
	select {
	case pl.wake <- struct{}{}:
	default: // it has been told
	}
}

// changed notes something that may help groups that did not fit.
func (pl *Gang) changed(note func(*gang.Gangs)) {
	pl.mu.Lock()
	note(pl.gangs)
	_, due := pl.gangs.Due()
	pl.mu.Unlock()
	if due {
		pl.look()
	}
}

// Changed tells that something has changed that may help gangs which did not fit.
func (pl *Gang) Changed() { pl.changed((*gang.Gangs).Changed) }

// Begin notes that a scheduling cycle begins.
func (pl *Gang) Begin() {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	pl.gangs.Begin()
}

// Failed notes that the cycle of a pod came to nothing: not every one of a leader gets as far as
// PostFilter or Reserve.
func (pl *Gang) Failed(ctx context.Context, pod *v1.Pod, _ error) {
	if pod.Spec.SchedulerName != pl.handle.ProfileName() || pl.outside(pod) {
		return
	}
	pl.input(ctx, func(s *gang.Gangs, now time.Time) gang.Effects { return s.Failed(pod.UID, now) })
}

// elsewhere is what happens to groups outside their state machine. It is used under the lock.
type elsewhere struct{ pl *Gang }

// Making reports whether victims of a group have not all ended.
func (e elsewhere) Making(group string) bool {
	return e.pl.victims != nil && e.pl.victims(e.pl.holder(group)) > 0
}

// Promised reports whether room is kept for a group by nominations.
func (e elsewhere) Promised(group string) bool { return e.pl.holds.Nominated(e.pl.holder(group)) }

// measure sets the gauges.
func (pl *Gang) measure() {
	pl.mu.Lock()
	c := pl.gangs.Count()
	pl.mu.Unlock()
	profile := pl.handle.ProfileName()
	membersHeld.WithLabelValues(profile).Set(float64(c.Held))
	gangsGauge.WithLabelValues(profile, "incomplete").Set(float64(c.Incomplete))
	gangsGauge.WithLabelValues(profile, "unschedulable").Set(float64(c.Unschedulable))
	gangsGauge.WithLabelValues(profile, "running").Set(float64(c.Running))
	for _, reason := range hold.Reasons() {
		holdsGauge.WithLabelValues(string(reason)).Set(float64(pl.holds.Count(reason)))
	}
}
