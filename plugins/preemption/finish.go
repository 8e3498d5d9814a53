package preemption

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
)

// since remembers for which pods something holds, and since when that is known. It is safe
// for concurrent use.
type since struct {
	mu   sync.Mutex
	pods map[types.UID]time.Time
}

func (s *since) note(pod types.UID, holds bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !holds {
		delete(s.pods, pod)
		return
	}
	if s.pods == nil {
		s.pods = map[types.UID]time.Time{}
	}
	if _, ok := s.pods[pod]; !ok {
		s.pods[pod] = now
	}
}

func (s *since) longerThan(d time.Duration, now time.Time) []types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	var pods []types.UID
	for pod, at := range s.pods {
		if now.Sub(at) >= d {
			pods = append(pods, pod)
		}
	}
	return pods
}

const (
	// tidyEvery is how often is looked for what has to be finished or given back.
	tidyEvery = 2 * time.Second
	// finishAfter is how long a pod that was marked may run on.
	finishAfter = 5 * time.Second
	// idleFor is how long capacity is held for a gang that could not use it.
	idleFor = 10 * time.Second
)

// tidy finishes evictions that were begun and interrupted, and gives back what is held for
// preemptors that wait for something else by now, as long as this process schedules.
func (pl *GangPreemption) tidy(ctx context.Context) {
	pl.Leading.Every(ctx, pl.clock, tidyEvery, func() {
		now := pl.clock.Now()
		pl.finish(ctx, now)
		pl.giveUp(now)
		pl.giveBack(now)
	})
}

// finish evicts pods that were marked and run on in a gang that is below its minimum by
// now: it goes whole, and must not stay in part. Where the gang can run on, or the pod is in
// none, nothing was lost yet, and the mark is taken back: if the pod has to go, the preemptor
// chooses it again.
func (pl *GangPreemption) finish(ctx context.Context, now time.Time) {
	underway := pl.Underway.all()
	for _, uid := range pl.unfinished.longerThan(finishAfter, now) {
		pod, ok := pl.podByUID(uid)
		if !ok || underway[uid] || !pl.marked(pod) {
			continue
		}
		var together []gang.Footprint
		if of := ownerOf(pod); of.pod == "" {
			var err error
			if together, err = pl.runningWith(of, pod); err != nil {
				klog.FromContext(ctx).Error(err, "Failed to finish an eviction; trying again", "pod", klog.KObj(pod))
				continue
			}
		}
		if !slices.ContainsFunc(together, func(f gang.Footprint) bool { return len(f.Running) < f.Min }) {
			pl.unmark(ctx, pod)
			continue
		}
		for _, f := range together {
			for _, m := range f.Running {
				// Where broken gangs are to be left alone, only what was begun is finished.
				if one, ok := pl.podByUID(m.Pod.UID); ok && one.Spec.NodeName != "" && (pl.args.EvictBrokenGangs || pl.marked(one)) {
					pl.finishEviction(ctx, one)
				}
			}
		}
	}
}

// giveUp has nobody wait any more for victims that should have ended long ago: a node that is
// down ends no pod. Preemptors look for others, and their clocks run.
func (pl *GangPreemption) giveUp(now time.Time) {
	for uid := range pl.Underway.all() {
		if pod, ok := pl.podByUID(uid); ok && stuck(pod, now) {
			pl.Underway.spared(uid)
		}
	}
}

// giveBack ends the nominations of gangs that wait for something else than room: members
// that are missing, or a PodGroup that is gone. Members that are made anew have a while.
func (pl *GangPreemption) giveBack(now time.Time) {
	if !pl.Roster.Synced() {
		return // nobody is placed yet
	}
	nominations := pl.Holds.Nominations()
	maps.DeleteFunc(pl.idle, func(holder hold.Holder, _ time.Time) bool { return nominations[holder] == nil })
	placing := map[gang.Key]bool{}
	for holder, pods := range nominations {
		if holder.Profile != pl.fw.ProfileName() || pl.lacksRoom(holder, pods, placing) {
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
// itself, or of which only the status tells that it was nominated, does as long as its gang
// runs or is being placed. What was found out of gangs is kept in placing: to ask costs a look
// at all their members.
func (pl *GangPreemption) lacksRoom(holder hold.Holder, pods []types.UID, placing map[gang.Key]bool) bool {
	if !holder.IsSinglePod() {
		return pl.Roster.Placing(holder)
	}
	pod, ok := pl.podByUID(pods[0])
	if !ok {
		return true // its nomination goes with it
	}
	key, _, _ := gang.KeyOf(pod)
	if known, ok := placing[key]; ok {
		return known
	}
	want, undecided := pl.Roster.Wants(pod)
	if !undecided || want.Job == "" {
		return true
	}
	placing[key] = want.Ready || pl.Roster.Placing(hold.Holder{Profile: pl.fw.ProfileName(), Group: want.Job})
	return placing[key]
}
