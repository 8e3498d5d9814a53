package evictions

import (
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
)

// ActivePreemptions tracks the preemptions of all profiles whose victims have not all ended. It is safe for concurrent
// use.
type ActivePreemptions struct {
	mu sync.Mutex
	// victims have not ended, or have ended recently: the gangs' member counts may still have them. byHolder has the same
	// by preemptor.
	victims  map[types.UID]*victimRecord
	byHolder map[hold.Holder]map[types.UID]*victimRecord
	// evicted is when pods of a gang last ended as victims, and by which holder's decisions, as long as these stand.
	evicted map[Owner]recentEviction
	// refused are the pods whose eviction the API server refused, and when.
	refused map[types.UID]time.Time
	// unexpected is when an eviction was last refused that no dry run had predicted.
	unexpected time.Time
	// invalidated are the holders whose decisions relied on victims that do not end.
	invalidated map[hold.Holder]bool
}

// victimRecord is a victim.
type victimRecord struct {
	// holder is the preemptor that evicts it.
	holder hold.Holder
	owner  Owner
	// reliedOn are the preemptors that rely on its end, and the claims for which it is evicted even when holder no longer
	// needs it; 0 for a preemptor that only learns that it stays.
	reliedOn map[hold.Holder]uint64
	// ended is when it ended; zero if it has not.
	ended time.Time
}

func (v *victimRecord) hasEnded() bool { return !v.ended.IsZero() }

// recentEviction is a completed eviction; without holder once that has concluded.
type recentEviction struct {
	at     time.Time
	holder hold.Holder
}

// refusedFor is how long a pod is no candidate after its eviction was refused.
const refusedFor = 10 * time.Second

// endedFor is much longer than one watcher lags behind another.
const endedFor = 30 * time.Second

// cautiousFor is how long every pod gets its own dry run after an unpredicted refusal.
const cautiousFor = time.Hour

// NewActivePreemptions returns an ActivePreemptions without preemptions.
func NewActivePreemptions() *ActivePreemptions {
	return &ActivePreemptions{
		victims: map[types.UID]*victimRecord{}, byHolder: map[hold.Holder]map[types.UID]*victimRecord{},
		evicted: map[Owner]recentEviction{}, refused: map[types.UID]time.Time{}, invalidated: map[hold.Holder]bool{},
	}
}

// AddVictims adds victims of a preemptor, without those that have ended since they were chosen. They are no longer
// another preemptor's, though others may rely on their end.
func (u *ActivePreemptions) AddVictims(gangs Gangs, holder hold.Holder, victims []*v1.Pod) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, pod := range victims {
		one := &victimRecord{holder: holder, owner: OwnerOf(gangs, pod), reliedOn: map[hold.Holder]uint64{}}
		if before := u.victims[pod.UID]; before != nil {
			if before.hasEnded() {
				continue
			}
			one.reliedOn = before.reliedOn
			u.remove(pod.UID)
		}
		u.victims[pod.UID] = one
		if u.byHolder[holder] == nil {
			u.byHolder[holder] = map[types.UID]*victimRecord{}
		}
		u.byHolder[holder][pod.UID] = one
	}
}

// RelyOn records that a preemptor's decision relies on the end of earlier victims. If they were chosen for this
// preemptor, or for one that it outranks and whose places it takes, they are evicted even when their own preemptor no
// longer needs the room. Otherwise the preemptor only learns that they stay. RelyOn returns false, and records nothing,
// if one of the victims has been released.
func (u *ActivePreemptions) RelyOn(holder hold.Holder, claim uint64, victims []types.UID,
	outranked []hold.Holder) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, pod := range victims {
		if u.victims[pod] == nil {
			return false
		}
	}
	for _, pod := range victims {
		one := u.victims[pod]
		inherits := slices.ContainsFunc(slices.Concat(outranked, []hold.Holder{holder}),
			func(by hold.Holder) bool { return by == one.holder || one.reliedOn[by] != 0 })
		one.reliedOn[holder] = 0
		if inherits {
			one.reliedOn[holder] = claim
		}
	}
	return true
}

// ReliedOnBy returns the decisions of others for which some of these victims are evicted even if their preemptor no
// longer needs it, by holder.
func (u *ActivePreemptions) ReliedOnBy(victims []*v1.Pod) map[hold.Holder]uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	by := map[hold.Holder]uint64{}
	for _, pod := range victims {
		if one := u.victims[pod.UID]; one != nil && !one.hasEnded() {
			for holder, claim := range one.reliedOn {
				if claim != 0 {
					by[holder] = max(by[holder], claim)
				}
			}
		}
	}
	return by
}

// RecordEnd records that a pod has ended. It reports whether the pod is a victim, or was one until recently.
func (u *ActivePreemptions) RecordEnd(pod types.UID, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	victim := u.victims[pod]
	if victim == nil || victim.hasEnded() {
		return victim != nil
	}
	victim.ended = now
	if !victim.owner.IsPod() {
		u.evicted[victim.owner] = recentEviction{now, victim.holder}
	}
	return true
}

// dropOldEnded drops the victims that ended long ago, and evictions older than any cool-down.
func (u *ActivePreemptions) dropOldEnded(now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for pod, one := range u.victims {
		if one.hasEnded() && now.Sub(one.ended) > endedFor {
			u.remove(pod)
		}
	}
	maps.DeleteFunc(u.evicted,
		func(_ Owner, last recentEviction) bool { return now.Sub(last.at) > config.MaxEvictionCooldown })
}

// LastEvicted returns when pods of a gang last ended as victims of a preemptor other than but, as far as this process
// has seen in the last day; zero for never. A preemptor some of whose victims have ended may evict the rest, until it
// has concluded.
func (u *ActivePreemptions) LastEvicted(of Owner, but hold.Holder) time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	if last := u.evicted[of]; last.holder != but {
		return last.at
	}
	return time.Time{}
}

// Conclude records that no decision of a preemptor stands. What was evicted for it then counts like what was evicted
// for others: it may start anew, or run again under its name.
func (u *ActivePreemptions) Conclude(holder hold.Holder) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for of, last := range u.evicted {
		if last.holder == holder {
			u.evicted[of] = recentEviction{at: last.at}
		}
	}
}

// refuse records that the eviction of a victim was refused.
func (u *ActivePreemptions) refuse(victim types.UID, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.refused[victim] = now
	u.release(victim)
}

// refuseUnexpectedly records that the eviction of a victim was refused although no dry run had predicted it.
func (u *ActivePreemptions) refuseUnexpectedly(victim types.UID, now time.Time) {
	u.mu.Lock()
	u.unexpected = now
	u.mu.Unlock()
	u.refuse(victim, now)
}

// cautious reports whether an unpredicted refusal happened within cautiousFor.
func (u *ActivePreemptions) cautious(now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return !u.unexpected.IsZero() && now.Sub(u.unexpected) < cautiousFor
}

// LastFreed returns when a victim of a preemptor last ended; zero if that is longer ago than any watcher lags, or never
// happened.
func (u *ActivePreemptions) LastFreed(holder hold.Holder) (last time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, one := range u.byHolder[holder] {
		if one.ended.After(last) {
			last = one.ended
		}
	}
	return last
}

// Refusals lists the pods whose eviction was refused recently.
func (u *ActivePreemptions) Refusals(now time.Time) map[types.UID]bool {
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

// Release records that a victim does not end.
func (u *ActivePreemptions) Release(victim types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.release(victim)
}

// GiveUp records that a victim does not end in time: its preemptor has to decide anew, too.
func (u *ActivePreemptions) GiveUp(victim types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if one := u.victims[victim]; one != nil && !one.hasEnded() {
		u.invalidated[one.holder] = true
	}
	u.release(victim)
}

// ReleaseFrom records that a victim of a preemptor does not end. It ignores a victim that is another preemptor's by
// now.
func (u *ActivePreemptions) ReleaseFrom(holder hold.Holder, victim types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if one := u.victims[victim]; one != nil && one.holder == holder {
		u.release(victim)
	}
}

// TakeInvalidated returns and clears the holders of a profile whose decisions relied on victims that do not end.
func (u *ActivePreemptions) TakeInvalidated(profile string) (holders []hold.Holder) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for holder := range u.invalidated {
		if holder.Profile == profile {
			holders = append(holders, holder)
			delete(u.invalidated, holder)
		}
	}
	return holders
}

func (u *ActivePreemptions) release(victim types.UID) {
	one := u.victims[victim]
	if one == nil || one.hasEnded() {
		return
	}
	for holder := range one.reliedOn {
		u.invalidated[holder] = true
	}
	u.remove(victim)
}

func (u *ActivePreemptions) remove(victim types.UID) {
	holder := u.victims[victim].holder
	delete(u.victims, victim)
	if delete(u.byHolder[holder], victim); len(u.byHolder[holder]) == 0 {
		delete(u.byHolder, holder)
	}
}

// Victims returns how many victims of a preemptor have not ended.
func (u *ActivePreemptions) Victims(holder hold.Holder) int { return len(u.VictimsOf(holder)) }

// VictimsOf lists the victims of a preemptor that have not ended.
func (u *ActivePreemptions) VictimsOf(holder hold.Holder) (victims []types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for pod, one := range u.byHolder[holder] {
		if !one.hasEnded() {
			victims = append(victims, pod)
		}
	}
	return victims
}

// All lists the victims, including those that have ended recently.
func (u *ActivePreemptions) All() map[types.UID]bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := make(map[types.UID]bool, len(u.victims))
	for victim := range u.victims {
		all[victim] = true
	}
	return all
}
