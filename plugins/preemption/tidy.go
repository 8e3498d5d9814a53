package preemption

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/evictions"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
)

const (
	// tidyInterval is the interval of tidy.
	tidyInterval = 2 * time.Second
	// idleFor is how long capacity is held for a gang that cannot use it.
	idleFor = 10 * time.Second
)

// tidy finishes interrupted evictions, and drops what is held for preemptors that now wait for something else. Only the
// process that schedules runs it.
func (pl *GangPreemption) tidy(ctx context.Context) {
	now := pl.clock.Now()
	pl.evictor.Finish(ctx, now, pl.args.EvictBrokenGangs)
	pl.evictor.ReleaseStuck(now)
	pl.dropIdleNominations(now)
}

// retryAwaiting makes those look again who await the end of victims that do not end: the preemptors that these were
// evicted for, and all who are nominated to their nodes. They do so when their pauses are over: at once if they pause
// since the places of ending pods would do. The preemption that releases its own victims sees to itself.
func (pl *GangPreemption) retryAwaiting(by *evictions.Preemption, preemptions []*evictions.Preemption,
	nodes []string) {
	nominated, awaiting := pl.Holds.Nominations(), map[hold.Holder]types.UID{}
	for _, p := range preemptions {
		awaiting[p.Holder] = p.Leader.UID
	}
	for _, holder := range pl.Holds.Among(slices.Collect(maps.Keys(nominated)), slices.Values(nodes)) {
		awaiting[holder] = nominated[holder][0] // there is such a pod: a leader may be gone
	}
	if by != nil {
		delete(awaiting, by.Holder)
	}
	now := pl.clock.Now()
	for holder, pod := range awaiting {
		if holder.Profile != pl.fw.ProfileName() {
			continue
		}
		if pl.pauses.current(holder.Group, now).why == waitsForEnding {
			pl.pauses.end(holder.Group)
		}
		pl.retries.AddAfter(pod, pl.pauses.current(holder.Group, now).until.Sub(now))
	}
}

// dropIdleNominations drops the nominations of gangs that wait for something other than room on nodes for idleFor:
// missing members, a PodGroup that is gone, or a queue of which others have taken what it may use.
func (pl *GangPreemption) dropIdleNominations(now time.Time) {
	if !pl.Gangs.Synced() {
		return // no gang is placed yet
	}
	nominations := pl.Holds.Nominations()
	maps.DeleteFunc(pl.idleSince, func(holder hold.Holder, _ time.Time) bool { return nominations[holder] == nil })
	placing := map[gangspec.Key]bool{}
	for holder, pods := range nominations {
		if holder.Profile != pl.fw.ProfileName() || pl.Underway.Victims(holder) > 0 ||
			pl.lacksRoom(holder, pods, placing) && !pl.isAboveCeiling(pods) {
			delete(pl.idleSince, holder)
			continue
		}
		if pl.idleSince[holder].IsZero() {
			pl.idleSince[holder] = now
		}
		if now.Sub(pl.idleSince[holder]) < idleFor {
			continue
		}
		delete(pl.idleSince, holder)
		pl.Holds.DropNominations(holder)
	}
}

// isAboveCeiling reports whether pods wait since their queue would exceed its capability with them: the places that
// they are nominated to count as used by it.
func (pl *GangPreemption) isAboveCeiling(pods []types.UID) bool {
	pod, ok := pl.evictor.Pod(pods[0])
	if !ok {
		return false
	}
	return pl.Queues.CurrentWait(pod).Reason == queueing.Capability
}

// lacksRoom reports whether a holder waits only for capacity. A member placed alone does while it replaces one that its
// gang has lost; a member whose nomination is known only from its status does while its gang is being placed. placing
// caches the answer by gang, since it costs a pass over all members.
func (pl *GangPreemption) lacksRoom(holder hold.Holder, pods []types.UID, placing map[gangspec.Key]bool) bool {
	if !holder.IsSinglePod() {
		return pl.Gangs.Placing(holder)
	}
	pod, ok := pl.evictor.Pod(pods[0])
	if !ok {
		return true // its nomination goes with it
	}
	key, _, _ := gangspec.KeyOf(pod)
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
