package preemption

import (
	"sync"
	"time"
)

// pauses bounds the time spent on searches that find nothing, nothing that can be carried out, or only pods that end
// anyway. It is safe for concurrent use.
type pauses struct {
	mu     sync.Mutex
	groups map[string]*pause
}

// pause is the pause of a preemptor.
type pause struct {
	until time.Time
	// aborts is how many decisions in a row were aborted, and late how many searches in a row were cut short before they
	// found any victims.
	aborts, late int
	why          cause
}

// cause is why a preemptor pauses.
type cause int

const (
	// foundNothing: there are no victims.
	foundNothing cause = iota
	// aborted: the decision was not carried out.
	aborted
	// waitsForEnding: the places of ending pods suffice.
	waitsForEnding
	// foundProtected: there are no victims, but some gangs are protected for a while.
	foundProtected
	// foundTooLate: the search was cut short before it found any.
	foundTooLate
	// foundOverBudget: queues, or jobs, may not lose as much as is needed.
	foundOverBudget
)

// expired reports whether the preemptor has not returned for long.
func (p *pause) expired(now time.Time) bool { return now.Sub(p.until) > longestPause }

const (
	// pauseShare: searches that find no victim take at most 1/pauseShare of the scheduling goroutine's time, those of all
	// preemptors together, except where longestPause shortens a pause. Those that were cut short, and whose next has twice
	// the time, take at most 1/cutShortShare.
	pauseShare, cutShortShare = 20, 4
	// longestPause is how late a preemptor may notice new victims. It doubles with the time that its searches have.
	longestPause = 30 * time.Second
	// mostDoublings bounds how often the time of searches that are cut short is doubled.
	mostDoublings = 4
	// longestSearch is the most time that a search has after others that were cut short, unless searchTimeout is longer.
	longestSearch = 10 * time.Second
	// firstPause is the pause after a second decision in a row was aborted; each further one doubles it.
	firstPause = 200 * time.Millisecond
)

// remaining returns how much of its pause a preemptor has left, and why it pauses.
func (p *pauses) remaining(group string, now time.Time) (time.Duration, cause) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.groups[group]; one != nil && !one.expired(now) {
		return one.until.Sub(now), one.why
	}
	return 0, foundNothing
}

// timeFor returns how long the next search of a preemptor may take: least, doubled for each one in a row that was cut
// short before it found any victims, up to longestSearch.
func (p *pauses) timeFor(group string, now time.Time, least time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.groups[group]; one != nil && !one.expired(now) {
		return max(least, min(least<<min(one.late, mostDoublings), longestSearch))
	}
	return least
}

// recordFailure records a search that found no victim, how long it took, and why.
func (p *pauses) recordFailure(group string, now time.Time, took time.Duration, why cause) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.pauseOf(group, now)
	one.aborts, one.why = 0, why
	if why != foundTooLate {
		one.late = 0
	}
	longest, share := longestPause<<min(one.late, mostDoublings), pauseShare
	if why == foundTooLate {
		if one.late < mostDoublings {
			share = cutShortShare
		}
		one.late++
	}
	one.until = now.Add(min(longest, took*time.Duration(share*len(p.groups))))
}

// recordAbort records that a decision was aborted. It returns how long the preemptor pauses: least, and after the first
// abort at least firstPause.
func (p *pauses) recordAbort(group string, now time.Time, least time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.pauseOf(group, now)
	length := least
	if one.aborts > 0 {
		length = min(longestPause, max(least, firstPause)<<min(one.aborts-1, 10))
	}
	one.aborts++
	one.why, one.until = aborted, now.Add(length)
	return length
}

// pauseOf returns the pause of a preemptor, and drops expired ones.
func (p *pauses) pauseOf(group string, now time.Time) *pause {
	for other, one := range p.groups {
		if one.expired(now) {
			delete(p.groups, other)
		}
	}
	one := p.groups[group]
	if one == nil {
		if p.groups == nil {
			p.groups = map[string]*pause{}
		}
		one = &pause{until: now}
		p.groups[group] = one
	}
	return one
}

// end ends the pause of a preemptor.
func (p *pauses) end(group string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.groups, group)
}
