package preemption

import (
	"sync"
	"time"
)

// pauses keep searches that find nothing, or nothing that can be carried out, to a small
// part of the time. It is safe for concurrent use.
type pauses struct {
	mu     sync.Mutex
	groups map[string]*pause
}

// pause is that of a preemptor.
type pause struct {
	until time.Time
	// withdrawn is how many decisions in a row were not carried out.
	withdrawn int
}

const (
	// pauseShare: searches that find nothing take at most one part in this of the
	// scheduling goroutine, all preemptors together.
	pauseShare = 20
	// longestPause is how late a preemptor may notice that there are victims now.
	longestPause = 30 * time.Second
	// firstPause is how long a preemptor pauses when a second decision in a row was not
	// carried out; each further one doubles it.
	firstPause = 200 * time.Millisecond
)

// left is how much of its pause a preemptor has left. withdrawn: it pauses because what was
// found was not carried out.
func (p *pauses) left(group string, now time.Time) (left time.Duration, withdrawn bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.groups[group]; one != nil {
		return one.until.Sub(now), one.withdrawn > 0
	}
	return 0, false
}

// failed notes a search that found nothing, and how long it took.
func (p *pauses) failed(group string, now time.Time, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.of(group, now)
	one.withdrawn = 0
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

// of is the pause of a preemptor. Those that have not come again are forgotten.
func (p *pauses) of(group string, now time.Time) *pause {
	for other, one := range p.groups {
		if now.Sub(one.until) > longestPause {
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
