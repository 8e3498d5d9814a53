// Package roster tells which gangs run, for plugins that have to know what the end of a
// pod does to its gang. The Gang plugin of each profile answers for the gangs of its
// profile; one Roster serves all profiles of a process.
package roster

import (
	"context"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
)

// Source knows the gangs of a profile.
type Source interface {
	// Running returns what runs of a gang and of those that start together with it, by
	// key; none where it knows no such gang.
	Running(key gang.Key) []gang.Footprint
	// Hoards lists the holders of less than a priority that hold capacity without being
	// complete; Yield has such holders, of whichever profile, give it back.
	Hoards(below int32) []hold.Holder
	Yield(ctx context.Context, holders []hold.Holder)
	// Wants returns what is to be placed if a pod is scheduled; false where its place is
	// decided.
	Wants(pod *v1.Pod) (gang.Want, bool)
	// QueueOf is the queue that the PodGroup of a gang names; empty for none.
	QueueOf(key gang.Key) string
	// Synced reports whether all gangs are known that there were at the start.
	Synced() bool
	// Changed tells that something has changed that may help gangs which did not fit.
	Changed()
	// Explain has the users of gangs told why they wait, if that has changed.
	Explain(keys []gang.Key)
	// Placing reports whether a holder of this profile waits for nothing but room.
	Placing(holder hold.Holder) bool
}

// Roster is the gangs of all profiles. It is safe for concurrent use.
type Roster struct {
	mu      sync.RWMutex
	sources map[string]Source
	moved   []func(profile string, key gang.Key)
	keeper  Keeper
}

// Keeper keeps gangs waiting that could be placed.
type Keeper interface {
	// Keeps tells why a member of a gang waits; an empty reason is that it does not.
	Keeps(member *v1.Pod) (reason, message string)
	// Waiting reports whether a pod waits for its turn, whoever has been told so.
	Waiting(pod *v1.Pod) bool
	// Hopeless tells that what a pod stands for would not fit if everything else were gone:
	// it is of no use to keep others waiting for it.
	Hopeless(pod *v1.Pod)
}

// New makes a roster without profiles.
func New() *Roster { return &Roster{sources: map[string]Source{}} }

// Register makes a source answer for the gangs of a profile.
func (r *Roster) Register(profile string, source Source) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sources[profile] = source
}

// OnMove has a function called whenever the PodGroup of a gang names another queue than
// before. It may ask the roster.
func (r *Roster) OnMove(moved func(profile string, key gang.Key)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moved = append(r.moved, moved)
}

// Moved tells that the PodGroup of a gang names another queue than before.
func (r *Roster) Moved(profile string, key gang.Key) {
	r.mu.RLock()
	moved := slices.Clone(r.moved)
	r.mu.RUnlock()
	for _, f := range moved {
		f(profile, key)
	}
}

// SetKeeper names who keeps gangs waiting; there is one at most.
func (r *Roster) SetKeeper(keeper Keeper) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keeper = keeper
}

// Keeps tells why a member of a gang is kept waiting; an empty reason is that it is not.
func (r *Roster) Keeps(member *v1.Pod) (reason, message string) {
	r.mu.RLock()
	keeper := r.keeper
	r.mu.RUnlock()
	if keeper == nil {
		return "", ""
	}
	return keeper.Keeps(member)
}

// Waiting reports whether a pod is kept waiting, whoever has been told so.
func (r *Roster) Waiting(pod *v1.Pod) bool {
	r.mu.RLock()
	keeper := r.keeper
	r.mu.RUnlock()
	return keeper != nil && keeper.Waiting(pod)
}

// Hopeless tells whoever keeps gangs waiting that what a pod stands for would not fit if
// everything else were gone.
func (r *Roster) Hopeless(pod *v1.Pod) {
	r.mu.RLock()
	keeper := r.keeper
	r.mu.RUnlock()
	if keeper != nil {
		keeper.Hopeless(pod)
	}
}

// Changed tells that something has changed that may help gangs which did not fit.
func (r *Roster) Changed() {
	for _, source := range r.all() {
		source.Changed()
	}
}

// Explain has the users of gangs of a profile told why they wait, if that has changed.
func (r *Roster) Explain(profile string, keys []gang.Key) {
	if source := r.source(profile); source != nil {
		source.Explain(keys)
	}
}

// Synced reports whether all gangs of all profiles are known that there were at the start.
func (r *Roster) Synced() bool {
	for _, source := range r.all() {
		if !source.Synced() {
			return false
		}
	}
	return true
}

// Hoards lists the holders of less than a priority, in all profiles but one, that hold
// capacity without being complete.
func (r *Roster) Hoards(below int32, but string) []hold.Holder {
	var holders []hold.Holder
	for profile, source := range r.all() {
		if profile != but {
			holders = append(holders, source.Hoards(below)...)
		}
	}
	slices.SortFunc(holders, hold.Holder.Compare)
	return holders
}

// Yield has these holders give back what they hold without being complete.
func (r *Roster) Yield(ctx context.Context, holders []hold.Holder) {
	for _, source := range r.all() {
		source.Yield(ctx, holders)
	}
}

// Placing reports whether a holder, of whichever profile, waits for nothing but room.
func (r *Roster) Placing(holder hold.Holder) bool {
	for _, source := range r.all() {
		if source.Placing(holder) {
			return true
		}
	}
	return false
}

func (r *Roster) all() map[string]Source {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return maps.Clone(r.sources)
}

// Wants returns what is to be placed if a pod of a profile is scheduled: where nobody knows
// the profile's gangs, the pod.
func (r *Roster) Wants(pod *v1.Pod) (gang.Want, bool) {
	if source := r.source(pod.Spec.SchedulerName); source != nil {
		return source.Wants(pod)
	}
	return gang.Want{Pods: []*v1.Pod{pod}}, true
}

// QueueOf is the queue that the PodGroup of a gang of a profile names; empty for none.
func (r *Roster) QueueOf(profile string, key gang.Key) string {
	if source := r.source(profile); source != nil {
		return source.QueueOf(key)
	}
	return ""
}

func (r *Roster) source(profile string) Source {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.sources[profile]
}

// Running returns what runs of a gang of a profile, and of those that start together with
// it; none where nobody knows it.
func (r *Roster) Running(profile string, key gang.Key) []gang.Footprint {
	if source := r.source(profile); source != nil {
		return source.Running(key)
	}
	return nil
}
