package preemption

import (
	"context"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
)

const (
	// tidyEvery is the interval of looking for what has to be finished or given back.
	tidyEvery = 2 * time.Second
	// idleFor is how long capacity is held for a gang that could not use it.
	idleFor = 10 * time.Second
)

// tidy finishes evictions that were begun and interrupted, and gives back what is held for
// preemptors that wait for something else by now. It is for the process that schedules.
func (pl *GangPreemption) tidy(ctx context.Context) {
	now := pl.clock.Now()
	pl.evictor.Finish(ctx, now, pl.args.EvictBrokenGangs)
	pl.evictor.GiveUp(now)
	pl.giveBack(now)
}

// giveBack ends the nominations of gangs that wait for something else than room: members that
// are missing, or a PodGroup that is gone. Members that are made anew have a while, and so have
// preemptors that waited for victims to end.
func (pl *GangPreemption) giveBack(now time.Time) {
	if !pl.Gangs.Synced() {
		return // no gang is placed yet
	}
	nominations := pl.Holds.Nominations()
	maps.DeleteFunc(pl.idle, func(holder hold.Holder, _ time.Time) bool { return nominations[holder] == nil })
	placing := map[gang.Key]bool{}
	for holder, pods := range nominations {
		if holder.Profile != pl.fw.ProfileName() || pl.Underway.Victims(holder) > 0 || pl.lacksRoom(holder, pods, placing) {
			delete(pl.idle, holder)
			continue
		}
		if pl.idle[holder].IsZero() {
			pl.idle[holder] = now
		}
		if now.Sub(pl.idle[holder]) < idleFor {
			continue
		}
		delete(pl.idle, holder)
		pl.Holds.DropNominations(holder)
	}
}

// lacksRoom reports whether a holder waits for nothing but room. A member that is placed by
// itself does while it makes up for one that its gang has lost; a member whose nomination is
// known only from its status does while its gang is being placed. What was found out about such
// gangs is kept in placing: to ask costs a look at all their members.
func (pl *GangPreemption) lacksRoom(holder hold.Holder, pods []types.UID, placing map[gang.Key]bool) bool {
	if !holder.IsSinglePod() {
		return pl.Gangs.Placing(holder)
	}
	pod, ok := pl.podByUID(pods[0])
	if !ok {
		return true // its nomination goes with it
	}
	key, _, _ := gang.KeyOf(pod)
	if known, ok := placing[key]; ok {
		return known
	}
	want, undecided := pl.Gangs.Wants(pod)
	switch {
	case !undecided || want.Job == "":
		return true
	case want.Alone:
		return !want.Ready
	}
	placing[key] = pl.Gangs.Placing(hold.Holder{Profile: pl.fw.ProfileName(), Group: want.Job})
	return placing[key]
}
