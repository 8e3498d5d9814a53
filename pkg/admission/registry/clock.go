package registry

import (
	"context"
	"slices"
	"time"

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
		p.UpdateGangs(ctx, func(s *gangstate.Gangs, now time.Time) gangstate.Effects { return s.Open(now) })
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

// run turns the passing of time into inputs.
func (r *Registry) run(ctx context.Context) {
	ticker := r.clock.NewTicker(tickEvery)
	defer ticker.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		r.tick(ctx)
		if n%measureEvery == 0 {
			r.measure()
		}
	}
}

// tick passes on that time has passed.
func (r *Registry) tick(ctx context.Context) {
	for _, p := range r.all() {
		p.UpdateGangs(ctx, func(s *gangstate.Gangs, now time.Time) gangstate.Effects { return s.Tick(now, p.makes) })
	}
}

// makes reports whether victims of a group have not all ended.
func (p *Profile) makes(group string) bool { return p.victims != nil && p.victims(p.Holder(group)) > 0 }
