package preemption

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// pauses bounds the time spent on searches that find nothing, nothing that can be carried out, or only pods that end
// anyway. It is safe for concurrent use.
type pauses struct {
	mu     sync.Mutex
	groups map[string]*pause
}

// pause is the pause of a preemptor; the zero value is none.
type pause struct {
	until time.Time
	why   cause
	// message is for users: why it does not search.
	message string
	// aborts is how many decisions in a row were aborted, and late how many searches in a row were cut short before they
	// found any victims.
	aborts, late int
	// ending are the pods that were ending at its last search.
	ending map[types.UID]bool
}

// cause is why a preemptor pauses.
type cause int

const (
	// foundNothing: there are no victims.
	foundNothing cause = iota
	// foundTooLate: the search was cut short before it found any.
	foundTooLate
	// waitsForEnding: the places of ending pods suffice.
	waitsForEnding
	// aborted: the decision was not carried out.
	aborted
)

const (
	// pauseShare: searches that find no victim take at most 1/pauseShare of the time of the scheduling goroutine, all
	// preemptors together, except where longestPause shortens a pause. A search that was cut short is repeated with twice
	// the time; these take at most 1/cutShortShare.
	pauseShare, cutShortShare = 20, 4
	// longestPause is how late a preemptor may notice new victims. It doubles with the time that its searches have. A
	// single search that took long makes it longer.
	longestPause = 30 * time.Second
	// mostDoublings bounds how often the time of searches that are cut short is doubled.
	mostDoublings = 4
	// longestSearch is the most time that a search has after others that were cut short, unless searchTimeout is longer.
	longestSearch = 10 * time.Second
	// firstPause is the pause after a second decision in a row was aborted; each further one doubles it.
	firstPause = 200 * time.Millisecond
)

// expired reports whether the preemptor has not returned for long.
func (p *pause) expired(now time.Time) bool { return now.Sub(p.until) > longestPause }

// searchTime returns how long the next search of the preemptor may take: least, doubled for each one in a row that was
// cut short before it found any victims, up to longestSearch.
func (p *pause) searchTime(least time.Duration) time.Duration {
	return max(least, min(least<<min(p.late, mostDoublings), longestSearch))
}

// current returns the pause of a preemptor, which may be over.
func (p *pauses) current(group string, now time.Time) pause {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.groups[group]; one != nil && !one.expired(now) {
		return *one
	}
	return pause{}
}

// record begins a pause of a preemptor, and returns its length. cost is how long the search took. After a decision that
// was aborted it is the least length: the first pause is so long, and further ones in a row double.
func (p *pauses) record(group string, now time.Time, cost time.Duration, why cause, message string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.groups, func(_ string, one *pause) bool { return one.expired(now) })
	one := p.groups[group]
	if one == nil {
		if p.groups == nil {
			p.groups = map[string]*pause{}
		}
		one = &pause{}
		p.groups[group] = one
	}
	all, length := cost*time.Duration(len(p.groups)), cost
	switch why {
	case foundNothing, waitsForEnding:
		length = min(max(longestPause, pauseShare*cost), pauseShare*all)
		one.aborts, one.late = 0, 0
	case foundTooLate:
		share := time.Duration(cutShortShare)
		if one.late >= mostDoublings {
			share = pauseShare
		}
		length = min(max(longestPause<<min(one.late, mostDoublings), share*cost), share*all)
		one.aborts, one.late = 0, one.late+1
	case aborted:
		if one.aborts > 0 {
			length = min(longestPause, max(cost, firstPause)<<min(one.aborts-1, 10))
		}
		one.aborts++
	}
	one.until, one.why, one.message = now.Add(length), why, message
	return length
}

// recordEnding records the pods that were ending when a preemptor searched. It has no effect unless that pauses.
func (p *pauses) recordEnding(group string, ending map[types.UID]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.groups[group]; one != nil {
		one.ending = ending
	}
}

// end ends the pause of a preemptor.
func (p *pauses) end(group string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.groups, group)
}
