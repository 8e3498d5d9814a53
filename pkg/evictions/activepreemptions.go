package evictions

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/util/nested"
	"github.com/lockstep-sh/lockstep/pkg/util/times"
)

// Preemption is a decision to evict pods for a preemptor.
type Preemption struct {
	// Holder holds the places of the preemptor. Claim is the decision in the ledger.
	Holder hold.Holder
	Claim  uint64
	// Leader is a pod of the preemptor. Preemptor and Need name it, and what it asks for, for users.
	Leader          *v1.Pod
	Preemptor, Need string
	// From are the nodes of its victims, as far as known.
	From map[types.UID]string
	// Stands reports whether the preemptor still needs the places. It is called without locks.
	Stands func() bool
}

// ActivePreemptions tracks the preemptions of all profiles whose victims have not all ended. It is safe for concurrent
// use.
type ActivePreemptions struct {
	mu sync.Mutex
	// victims have not ended, or have ended recently: the gangs' member counts may still have them.
	victims map[types.UID]*victimRecord
	// awaited is how many victims of each holder have not ended.
	awaited map[hold.Holder]int
	// evicted is when pods of a gang last ended as victims, by the holder whose decisions they were; without holder once
	// that has concluded.
	evicted map[Owner]map[hold.Holder]time.Time
	// refused are the pods whose eviction the API server refused, and when.
	refused map[types.UID]time.Time
	// unexpected is when an eviction was last refused that no dry run had predicted.
	unexpected time.Time
	onRelease  []func(by *Preemption, preemptions []*Preemption, nodes []string)
}

// victimRecord is a victim.
type victimRecord struct {
	// chosenBy is the preemption that evicts it. evictedFor is the one that it makes room for: the same, unless another
	// has taken the places of that preemptor.
	chosenBy, evictedFor *Preemption
	owner                Owner
	node                 string
	// ended is when it ended; zero if it has not.
	ended time.Time
}

func (v *victimRecord) hasEnded() bool { return !v.ended.IsZero() }

// refusedFor is how long a pod is no candidate after its eviction was refused.
const refusedFor = 10 * time.Second

// endedFor is much longer than one watcher lags behind another.
const endedFor = 30 * time.Second

// cautiousFor is how long every pod gets its own dry run after an unpredicted refusal.
const cautiousFor = time.Hour

// NewActivePreemptions returns an ActivePreemptions without preemptions.
func NewActivePreemptions() *ActivePreemptions {
	return &ActivePreemptions{
		victims: map[types.UID]*victimRecord{}, awaited: map[hold.Holder]int{},
		evicted: map[Owner]map[hold.Holder]time.Time{}, refused: map[types.UID]time.Time{},
	}
}

// OnRelease registers a function that is called when victims are released: with the preemption that releases its own,
// nil for none; with those that they were evicted for; and with their nodes, on which others may have awaited their
// end. It is called without locks, and must be registered before the first victim.
func (u *ActivePreemptions) OnRelease(tell func(by *Preemption, preemptions []*Preemption, nodes []string)) {
	u.onRelease = append(u.onRelease, tell)
}

// AddVictims adds victims that a preemption evicts, without those that have ended since they were chosen. It takes over
// those that others evict.
func (u *ActivePreemptions) AddVictims(gangs Gangs, p *Preemption, victims []*v1.Pod) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, pod := range victims {
		one := u.victims[pod.UID]
		switch {
		case one == nil:
			one = &victimRecord{owner: OwnerOf(gangs, pod), node: cmp.Or(p.From[pod.UID], pod.Spec.NodeName)}
			u.victims[pod.UID] = one
		case one.hasEnded() || one.chosenBy == p:
			continue
		}
		one.chosenBy = p
		u.assign(one, p)
	}
}

// AdoptVictims makes a preemption the one for which victims are evicted: those that were evicted for an earlier
// decision about its preemptor, or for one of the outranked holders, whose places it takes. It returns false, and
// changes nothing, if one of the victims has been released.
func (u *ActivePreemptions) AdoptVictims(p *Preemption, victims []types.UID, outranked []hold.Holder) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if slices.ContainsFunc(victims, func(pod types.UID) bool { return u.victims[pod] == nil }) {
		return false
	}
	for _, pod := range victims {
		one := u.victims[pod]
		if by := one.evictedFor.Holder; by == p.Holder || slices.Contains(outranked, by) {
			u.assign(one, p)
		}
	}
	return true
}

// assign makes a preemption the one for which a victim is evicted.
func (u *ActivePreemptions) assign(one *victimRecord, p *Preemption) {
	u.countAwaited(one, -1)
	one.evictedFor = p
	u.countAwaited(one, 1)
}

// countAwaited counts a victim that has not ended for its preemptor, or no longer.
func (u *ActivePreemptions) countAwaited(one *victimRecord, by int) {
	if one.evictedFor == nil || one.hasEnded() {
		return
	}
	holder := one.evictedFor.Holder
	if u.awaited[holder] += by; u.awaited[holder] == 0 {
		delete(u.awaited, holder)
	}
}

// NeededBy returns the preemption that needs the end of some of these victims; nil if none does.
func (u *ActivePreemptions) NeededBy(victims []*v1.Pod) *Preemption {
	var last *Preemption
	for _, pod := range victims {
		u.mu.Lock()
		p := last
		if one := u.victims[pod.UID]; one != nil && !one.hasEnded() {
			p = one.evictedFor
		}
		u.mu.Unlock()
		if p != last && p.Stands() {
			return p
		}
		last = p
	}
	return nil
}

// RecordEnd records that a pod has ended. It reports whether the pod is a victim, or was one until recently.
func (u *ActivePreemptions) RecordEnd(pod types.UID, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	victim := u.victims[pod]
	if victim == nil || victim.hasEnded() {
		return victim != nil
	}
	u.countAwaited(victim, -1)
	victim.ended = now
	if !victim.owner.IsPod() {
		nested.Set(u.evicted, victim.owner, victim.evictedFor.Holder, now)
	}
	return true
}

// dropOldEnded drops the victims that ended long ago, and evictions older than any cool-down.
func (u *ActivePreemptions) dropOldEnded(now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.victims,
		func(_ types.UID, one *victimRecord) bool { return one.hasEnded() && now.Sub(one.ended) > endedFor })
	for of, ends := range u.evicted {
		for holder, at := range ends {
			if now.Sub(at) > config.MaxEvictionCooldown {
				nested.Delete(u.evicted, of, holder)
			}
		}
	}
}

// LastEvicted returns when pods of a gang last ended as victims of a preemptor other than but, as far as this process
// has seen in the last day; zero for never. A preemptor some of whose victims have ended may evict the rest, until it
// has concluded.
func (u *ActivePreemptions) LastEvicted(of Owner, but hold.Holder) (last time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for holder, at := range u.evicted[of] {
		if holder != but {
			last = times.Later(last, at)
		}
	}
	return last
}

// ConcludeDecisions records that no decision of a preemptor stands. What was evicted for it then counts like what was
// evicted for others: it may start anew, or run again under its name.
func (u *ActivePreemptions) ConcludeDecisions(holder hold.Holder) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for of, ends := range u.evicted {
		if at, ok := ends[holder]; ok {
			nested.Delete(u.evicted, of, holder)
			nested.Set(u.evicted, of, hold.Holder{}, times.Later(at, ends[hold.Holder{}]))
		}
	}
}

// LastFreed returns when a victim of a preemptor last ended; zero if that is longer ago than any watcher lags, or never
// happened.
func (u *ActivePreemptions) LastFreed(holder hold.Holder) (last time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, one := range u.victims {
		if one.evictedFor.Holder == holder && one.ended.After(last) {
			last = one.ended
		}
	}
	return last
}

// ReleaseVictims records that victims do not end, or not in time, and calls the functions of OnRelease. It ignores
// those that another preemption evicts by now; with nil none.
func (u *ActivePreemptions) ReleaseVictims(by *Preemption, victims ...types.UID) {
	var preemptions []*Preemption
	var nodes []string
	u.mu.Lock()
	for _, pod := range victims {
		if one := u.victims[pod]; one != nil && !one.hasEnded() && (by == nil || by == one.chosenBy) {
			preemptions, nodes = append(preemptions, one.evictedFor), append(nodes, one.node)
			u.countAwaited(one, -1)
			delete(u.victims, pod)
		}
	}
	u.mu.Unlock()
	if len(nodes) == 0 {
		return
	}
	for _, tell := range u.onRelease {
		tell(by, preemptions, nodes)
	}
}

// Victims returns how many victims of a preemptor have not ended.
func (u *ActivePreemptions) Victims(holder hold.Holder) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.awaited[holder]
}

// VictimsOf lists the victims of a preemptor that have not ended.
func (u *ActivePreemptions) VictimsOf(holder hold.Holder) (victims []types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for pod, one := range u.victims {
		if one.evictedFor.Holder == holder && !one.hasEnded() {
			victims = append(victims, pod)
		}
	}
	return victims
}

// AllVictims lists the victims, including those that have ended recently.
func (u *ActivePreemptions) AllVictims() map[types.UID]bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := make(map[types.UID]bool, len(u.victims))
	for victim := range u.victims {
		all[victim] = true
	}
	return all
}
