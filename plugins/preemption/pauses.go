package preemption

import (
	"sync"
	"time"
)

// pauses keep searches that find nothing, nothing that can be carried out, or nothing but what
// ends anyhow, to a small part of the time. It is safe for concurrent use.
type pauses struct {
	mu     sync.Mutex
	groups map[string]*pause
}

// pause is the pause of a preemptor.
type pause struct {
	until time.Time
	// withdrawn is how many decisions in a row were not carried out.
	withdrawn int
	// found is what the last search came to.
	found cause
}

// cause is why a preemptor pauses.
type cause int

const (
	// foundNothing: there are no victims.
	foundNothing cause = iota
	// notCarriedOut: what was found was not.
	notCarriedOut
	// waitsForEnding: pods are ending whose place will do.
	waitsForEnding
	// foundSpared: there are no victims, but gangs that are left alone for a while.
	foundSpared
)

func (p *pause) cause() cause {
	if p.withdrawn > 0 {
		return notCarriedOut
	}
	return p.found
}

// forgotten reports whether the preemptor has not come again for long.
func (p *pause) forgotten(now time.Time) bool { return now.Sub(p.until) > longestPause }

const (
	// pauseShare: searches that find no pod to evict take at most one part in this of the
	// scheduling goroutine, all preemptors together.
	pauseShare = 20
	// longestPause is how late a preemptor may notice that there are victims now.
	longestPause = 30 * time.Second
	// firstPause is how long a preemptor pauses when a second decision in a row was not
	// carried out; each further one doubles it.
	firstPause = 200 * time.Millisecond
)

// left returns how much of its pause a preemptor has left, and why it pauses.
func (p *pauses) left(group string, now time.Time) (time.Duration, cause) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.groups[group]; one != nil && !one.forgotten(now) {
		return one.until.Sub(now), one.cause()
	}
	return 0, foundNothing
}

// failed notes a search that found no pod to evict, how long it took, and why.
func (p *pauses) failed(group string, now time.Time, took time.Duration, why cause) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.of(group, now)
	one.withdrawn, one.found = 0, why
	one.until = now.Add(min(longestPause, took*time.Duration(pauseShare*len(p.groups))))
}

// withdrawn notes that a decision was not carried out. It returns how long the preemptor
// pauses: not at all the first time, since things change; least is at least so long.
func (p *pauses) withdrawn(group string, now time.Time, least time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.of(group, now)
	length := least
	if one.withdrawn > 0 {
		length = min(longestPause, max(least, firstPause)<<min(one.withdrawn-1, 10))
	}
	one.withdrawn++
	one.until = now.Add(length)
	return length
}

// of returns the pause of a preemptor. Pauses of preemptors that have not come again are
// forgotten.
func (p *pauses) of(group string, now time.Time) *pause {
	for other, one := range p.groups {
		if one.forgotten(now) {
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

// forget ends the pause of a preemptor: room is made for it.
func (p *pauses) forget(group string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.groups, group)
}
