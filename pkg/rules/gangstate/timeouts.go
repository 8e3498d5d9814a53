package gangstate

import (
	"fmt"
	"time"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/util/times"
)

// clocks are the times of a group that can run out. Both stand still while victims of
// the group are still ending.
type clocks struct {
	// held is when the first member was held, for the wait time, after which no member is tried
	// again; zero while nothing is held. If a user wrote a wait time it runs on through what ends a
	// round: the failures of a Strict group, which holds members only for a moment, and the time of
	// rounds.
	held time.Time
	// round is when the first member of this round was held; zero while none is.
	round time.Time
}

// start begins the clocks that do not run yet.
func (c *clocks) start(now time.Time) {
	if c.held.IsZero() {
		c.held = now
	}
	if c.round.IsZero() {
		c.round = now
	}
}

// wouldHold records that members would have been held if all had fit.
func (c *clocks) wouldHold(g *group, now time.Time) {
	if _, set := g.waitTime(); set && c.held.IsZero() {
		c.held = now
	}
}

// pause makes the clocks pause still from one moment to another.
func (c *clocks) pause(from, to time.Time) {
	for _, began := range []*time.Time{&c.held, &c.round} {
		if !began.IsZero() {
			*began = began.Add(to.Sub(times.Later(*began, from)))
		}
	}
}

// waitTime returns the shortest time after which the group is not tried again, and whether a user
// wrote any; 0 for none. It is the annotation, if there is one: a NonStrict gang without any has
// the default, unless it has time for its rounds; a Strict one has none.
func (g *group) waitTime() (wait time.Duration, set bool) {
	strict, rounds := g.strict(), g.hasRounds()
	for _, gang := range g.gangs {
		set = set || gang.spec.WaitTimeSet
	}
	for _, gang := range g.gangs {
		has := gang.spec.WaitTimeSet || !strict && gang.spec.RoundTime == 0 && (set || !rounds)
		if has && (wait == 0 || gang.spec.WaitTime < wait) {
			wait = gang.spec.WaitTime
		}
	}
	return wait, set
}

// setClocks begins the clocks if something is held, and ends them once nothing is.
func (g *group) setClocks(now time.Time) {
	if g.holding() > 0 {
		g.clocks.start(now)
		return
	}
	g.clocks.round = time.Time{}
	if _, set := g.waitTime(); !set || !g.strict() && !g.hasRounds() {
		g.clocks.held = time.Time{}
	}
}

// expireTimeouts ends what has had its time, and reports whether anything did.
func (s *Gangs) expireTimeouts(grp *group, now time.Time) bool {
	if wait, _ := grp.waitTime(); wait > 0 && !grp.clocks.held.IsZero() && now.Sub(grp.clocks.held) >= wait {
		s.expire(grp, wait, now)
		return true
	}
	if limit := grp.roundTime(); limit > 0 && !grp.clocks.round.IsZero() && now.Sub(grp.clocks.round) >= limit {
		s.endRound(grp, limit, now)
		return true
	}
	return false
}

// expire gives everything back and marks the members that waited; none of them is tried again until
// the user acts.
func (s *Gangs) expire(grp *group, wait time.Duration, now time.Time) {
	if grp.holding() > 0 {
		s.effects.RoundsFailed++
	}
	for _, g := range grp.gangs {
		if g.hasStarted() {
			continue
		}
		for _, m := range g.sorted(func(m *member) bool { return !m.runs() && !m.expired }) {
			g.change(m, func() { m.expired = true })
			s.effects.Expire = append(s.effects.Expire, m.pod)
		}
		g.failure = failure{reason: v1alpha1.ReasonTimedOut,
			message: fmt.Sprintf("gang %q did not reach its minimum of %d members within %s of holding the first", g.key,
				g.spec.Min, wait)}
	}
	s.unreserve(grp)
	for _, g := range grp.gangs {
		s.updatePhase(g, now)
	}
}
