package registry

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
)

// start admits members once everything that the API server has was seen.
func (r *Registry) start(ctx context.Context) {
	if !r.awaitSync(ctx) {
		return // the scheduler is shutting down
	}
	for _, p := range r.all() {
		p.Input(ctx, func(s *gangstate.Gangs, now time.Time) gangstate.Effects { return s.Open(now) })
	}
	close(r.opened)
	r.run(ctx)
}

// awaitSync returns true when everything that the API server has was seen, and false when ctx is done.
func (r *Registry) awaitSync(ctx context.Context) bool {
	synced := func(context.Context) (bool, error) {
		return !slices.ContainsFunc(r.synced, func(has cache.InformerSynced) bool { return !has() }), nil
	}
	return wait.PollUntilContextCancel(ctx, syncPoll, true, synced) == nil
}

// syncPoll is how often it is checked whether everything was seen: the first scheduling cycle waits for it.
const syncPoll = 10 * time.Millisecond

// AwaitOpen returns true when members are admitted, and false when ctx is done.
func (r *Registry) AwaitOpen(ctx context.Context) bool {
	if len(r.all()) == 0 {
		return true
	}
	select {
	case <-r.opened:
		return true
	case <-ctx.Done():
		return false
	}
}

const (
	// tickEvery is how often Tick runs: the resolution of pauses and of wait times.
	tickEvery = 100 * time.Millisecond
	// measureEvery is how many ticks lie between two updates of the gauges.
	measureEvery = 50
)

// run turns the passing of time into inputs, and starts retries of groups.
func (r *Registry) run(ctx context.Context) {
	ticker, timer := r.clock.NewTicker(tickEvery), r.clock.NewTimer(tickEvery)
	defer ticker.Stop()
	defer timer.Stop()
	for n := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			r.tick(ctx)
			if n++; n%measureEvery == 0 {
				r.measure()
			}
		case <-timer.C():
		case <-r.wake:
		}
		if pause := r.Next(ctx); pause > 0 {
			timer.Reset(pause)
		}
	}
}

// tick passes on that time has passed.
func (r *Registry) tick(ctx context.Context) {
	for _, p := range r.all() {
		p.Input(ctx, func(s *gangstate.Gangs, now time.Time) gangstate.Effects { return s.Tick(now, elsewhere{p}) })
	}
}

// Next activates the leader of the group whose turn it is, if there is one. Its pod is in the scheduling queue when Next
// returns. It returns how long it takes until a group may be due by time alone; 0 for never.
//
// The scheduling thread calls it before it takes a pod, so it takes no pod of lower rank in place of a group that a
// change may help. While the thread waits for a pod, the goroutine that passes on a cluster event calls it, before the
// event reaches other pods. It costs a look-up, and after a change a look at each group that rests.
func (r *Registry) Next(ctx context.Context) time.Duration {
	r.asking.Lock()
	defer r.asking.Unlock()
	if freed := r.holds.Freed(); freed != r.freed {
		r.freed = freed
		r.changed((*gangstate.Gangs).Changed)
	}
	var next time.Duration
	for _, p := range r.all() {
		if pause := p.retry(ctx); pause > 0 && (next == 0 || pause < next) {
			next = pause
		}
	}
	return next
}

// retry tries groups again that are due, one after the other as their attempts end.
func (p *Profile) retry(ctx context.Context) time.Duration {
	for ctx.Err() == nil {
		var at time.Time
		var due bool
		p.Look(func(s *gangstate.Gangs) { at, due = s.Due() })
		if !due {
			return 0
		}
		if pause := at.Sub(p.clock.Now()); pause > 0 {
			return pause
		}
		p.Input(ctx, func(s *gangstate.Gangs, now time.Time) gangstate.Effects { return s.Retry(now, elsewhere{p}) })
		p.passOver()
	}
	return 0
}

// passOver lets the next group be tried where the leader of this one waits for its turn: the leader
// came to all gates when it was activated.
func (p *Profile) passOver() {
	if p.turns == nil {
		return
	}
	var leader *v1.Pod
	waits := false
	p.Look(func(s *gangstate.Gangs) {
		if uid, trying := s.Trying(); trying {
			leader, waits = s.Pending(uid)
		}
	})
	if waits && p.turns.Waiting(leader) {
		p.Look(func(s *gangstate.Gangs) { s.PassOver(leader.UID) })
	}
}

// elsewhere is what is known of groups outside their state machine. It is used under the lock.
type elsewhere struct{ p *Profile }

// Making reports whether victims of a group have not all ended.
func (e elsewhere) Making(group string) bool {
	return e.p.victims != nil && e.p.victims(e.p.Holder(group)) > 0
}

// Promised reports whether room is kept for a group by nominations.
func (e elsewhere) Promised(group string) bool { return e.p.holds.Nominated(e.p.Holder(group)) }
