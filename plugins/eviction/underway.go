package eviction

import (
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
)

// Underway has the preemptions of all profiles whose victims have not all ended, by the
// holder that they make room for. It is safe for concurrent use.
type Underway struct {
	mu       sync.Mutex
	byHolder map[hold.Holder]map[types.UID]bool
	chosen   map[types.UID]chosen
	// ended are victims that have ended, and when. For a moment the scheduler's cache may
	// still have them, and so may the counts of the members of their gangs.
	ended map[types.UID]time.Time
	// evicted is when pods of a gang last ended as victims, and of which holder's decisions, as long as these stand; swept, when old
	// entries were last removed.
	evicted map[Owner]lately
	swept   time.Time
	// freed is when a victim of a preemptor last ended.
	freed map[hold.Holder]time.Time
	// refused are the pods whose eviction the API server refused, and when.
	refused map[types.UID]time.Time
	// wanted are the decisions of other holders that count on the end of a victim, by holder.
	wanted map[types.UID]map[hold.Holder]uint64
}

// chosen is the holder that a victim makes room for, and what the victim is part of.
type chosen struct {
	holder hold.Holder
	of     Owner
}

// lately is an eviction that was carried out, for no holder once it has concluded.
type lately struct {
	at     time.Time
	holder hold.Holder
}

// refusedFor is how long a pod is left alone after its eviction was refused.
const refusedFor = 10 * time.Second

// endedFor is much longer than one watcher lags behind another.
const endedFor = 30 * time.Second

// NewUnderway returns an Underway without preemptions.
func NewUnderway() *Underway {
	return &Underway{
		byHolder: map[hold.Holder]map[types.UID]bool{}, chosen: map[types.UID]chosen{}, ended: map[types.UID]time.Time{}, freed: map[hold.Holder]time.Time{},
		evicted: map[Owner]lately{}, refused: map[types.UID]time.Time{}, wanted: map[types.UID]map[hold.Holder]uint64{},
	}
}

// Begin notes victims of a preemptor, beside those that it has. They are no other preemptor's from then on.
func (u *Underway) Begin(gangs Gangs, holder hold.Holder, victims []*v1.Pod) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, pod := range victims {
		u.disown(pod.UID)
		if u.byHolder[holder] == nil {
			u.byHolder[holder] = map[types.UID]bool{}
		}
		u.byHolder[holder][pod.UID] = true
		u.chosen[pod.UID] = chosen{holder, OwnerOf(gangs, pod)}
	}
}

// Want notes that a decision of a preemptor counts on the end of victims of others: they are evicted even
// if those others do not need it any more. It returns false, and notes nothing, where one of them has been
// spared meanwhile.
func (u *Underway) Want(holder hold.Holder, claim uint64, victims []types.UID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, pod := range victims {
		if _, ended := u.ended[pod]; u.chosen[pod].holder.IsNone() && !ended {
			return false
		}
	}
	for _, pod := range victims {
		if u.chosen[pod].holder.IsNone() {
			continue
		}
		if u.wanted[pod] == nil {
			u.wanted[pod] = map[hold.Holder]uint64{}
		}
		u.wanted[pod][holder] = claim
	}
	return true
}

// Wanted returns the decisions of others that count on the end of some of these victims, by holder.
func (u *Underway) Wanted(victims []*v1.Pod) map[hold.Holder]uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	var by map[hold.Holder]uint64
	for _, pod := range victims {
		for holder, claim := range u.wanted[pod.UID] {
			if by == nil {
				by = map[hold.Holder]uint64{}
			}
			by[holder] = max(by[holder], claim)
		}
	}
	return by
}

// Gone notes that a pod has ended, if it is a victim.
func (u *Underway) Gone(pod types.UID, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	victim, ok := u.chosen[pod]
	if !ok {
		return
	}
	for other, at := range u.ended {
		if now.Sub(at) > endedFor {
			delete(u.ended, other)
		}
	}
	maps.DeleteFunc(u.freed, func(_ hold.Holder, at time.Time) bool { return now.Sub(at) > endedFor })
	u.ended[pod], u.freed[victim.holder] = now, now
	u.remove(pod)
	if !victim.of.IsPod() {
		u.noteEvicted(victim, now)
	}
}

// noteEvicted notes that pods of a gang were evicted. Now and then it removes entries that are older than any cool-down.
func (u *Underway) noteEvicted(victim chosen, now time.Time) {
	u.evicted[victim.of] = lately{now, victim.holder}
	if now.Sub(u.swept) > config.MaxEvictionCooldown {
		maps.DeleteFunc(u.evicted, func(_ Owner, last lately) bool { return now.Sub(last.at) > config.MaxEvictionCooldown })
		u.swept = now
	}
}

// Evicted returns when pods of a gang last ended as victims of another preemptor than but, as far as this process has seen in the
// last day; zero for never. A preemptor some of whose victims have ended may take the rest, until it has concluded.
func (u *Underway) Evicted(of Owner, but hold.Holder) time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	if last := u.evicted[of]; last.holder != but {
		return last.at
	}
	return time.Time{}
}

// Conclude notes that no decision of a preemptor stands any more. What was evicted for it counts like what was evicted for others
// from then on: it may start anew, or run again under its name.
func (u *Underway) Conclude(holder hold.Holder) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for of, last := range u.evicted {
		if last.holder == holder {
			u.evicted[of] = lately{at: last.at}
		}
	}
}

// refuse notes that the eviction of a victim was refused.
func (u *Underway) refuse(victim types.UID, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.refused[victim] = now
	u.remove(victim)
}

// Freed returns when a victim of a preemptor last ended; zero where that is longer ago than any watcher lags, or never happened.
func (u *Underway) Freed(holder hold.Holder) time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.freed[holder]
}

// Refusals lists the pods whose eviction was refused not long ago.
func (u *Underway) Refusals(now time.Time) map[types.UID]bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	list := map[types.UID]bool{}
	for pod, at := range u.refused {
		if now.Sub(at) > refusedFor {
			delete(u.refused, pod)
		} else {
			list[pod] = true
		}
	}
	return list
}

// Spared notes that a victim did not have to end.
func (u *Underway) Spared(victim types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.remove(victim)
}

// SparedBy notes that a victim of a preemptor did not have to end. If it is another preemptor's victim
// meanwhile, it stays that.
func (u *Underway) SparedBy(holder hold.Holder, victim types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.chosen[victim].holder == holder {
		u.remove(victim)
	}
}

func (u *Underway) remove(victim types.UID) {
	u.disown(victim)
	delete(u.wanted, victim)
}

// disown takes a victim from its preemptor. Other preemptors that count on its end still do.
func (u *Underway) disown(victim types.UID) {
	holder := u.chosen[victim].holder
	delete(u.chosen, victim)
	delete(u.byHolder[holder], victim)
	if len(u.byHolder[holder]) == 0 {
		delete(u.byHolder, holder)
	}
}

// Victims returns how many victims of a preemptor have not ended, by its holder.
func (u *Underway) Victims(holder hold.Holder) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.byHolder[holder])
}

// Of lists the victims of a preemptor that have not ended.
func (u *Underway) Of(holder hold.Holder) []types.UID {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Collect(maps.Keys(u.byHolder[holder]))
}

// All lists the victims, including those that have just ended.
func (u *Underway) All() map[types.UID]bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := make(map[types.UID]bool, len(u.chosen))
	for victim := range u.chosen {
		all[victim] = true
	}
	for victim := range u.ended {
		all[victim] = true
	}
	return all
}
