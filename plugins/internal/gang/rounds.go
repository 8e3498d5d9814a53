package gang

import (
	"fmt"
	"time"
)

// settle brings the group of a gang into the phase that the facts call for. It
// runs after every input that touched the gang.
func (s *Gangs) settle(g *gang, now time.Time) {
	s.effects.Changed = append(s.effects.Changed, g.key)
	grp := g.group
	s.noteRunning(g, now)
	if !s.able(grp) {
		if grp.phase != gathering {
			s.enterPhase(grp, gathering, now)
			s.giveBack(grp)
		}
		return
	}
	need := 0
	for _, member := range grp.gangs {
		need += member.need()
	}
	s.advance(grp, need, now)
	s.release(grp, now)
}

// noteRunning lets members go alone once their gang runs, and gates them again
// when it no longer does.
func (s *Gangs) noteRunning(g *gang, now time.Time) {
	if g.satisfied() != g.ran {
		g.ran = !g.ran
		s.admitGang(g)
		s.settleAwaiting(g, now)
	}
}

// settleAwaiting looks again at gangs that name g and are not grouped with it.
func (s *Gangs) settleAwaiting(g *gang, now time.Time) {
	for key := range s.naming[g.key] {
		if other := s.gangs[key]; other != nil && other.group != g.group {
			s.settle(other, now)
		}
	}
}

// able tells whether every gang of the group could reach its minimum.
func (s *Gangs) able(grp *group) bool {
	for _, g := range grp.gangs {
		if ok, _ := g.complete(); !ok {
			return false
		}
		if _, waits := s.awaited(g); waits {
			return false
		}
	}
	return true
}

// advance moves a group that is able, and has need members still to place.
func (s *Gangs) advance(grp *group, need int, now time.Time) {
	switch grp.phase {
	case gathering:
		if need > 0 {
			grp.failures, grp.replans = 0, 0
			s.enterPhase(grp, ready, now)
		}
	case ready:
		if need == 0 {
			s.afterPlan(grp, now)
		} else if leader := s.members[grp.leader]; leader == nil || !leader.eligible() {
			s.lead(grp, now)
		}
	case following:
		if need > 0 {
			s.replan(grp, now)
		} else {
			s.afterPlan(grp, now)
		}
	case resting:
		switch {
		case need == 0:
			s.afterPlan(grp, now)
		case grp.readyMembers() > grp.triedReady && grp.triedReady < grp.total():
			// The round waits to have tried total-number members: newcomers are part
			// of it, without a pause.
			s.enterPhase(grp, ready, now)
		}
	}
}

// afterPlan is the phase of a group that has nobody left to place.
func (s *Gangs) afterPlan(grp *group, now time.Time) {
	next := gathering
	if grp.countIn(Planned) > 0 {
		next = following
	}
	if grp.phase != next {
		s.enterPhase(grp, next, now)
	}
}

func (s *Gangs) enterPhase(grp *group, next phase, now time.Time) {
	grp.phase, grp.leader, grp.since = next, "", now
	if next == ready {
		s.lead(grp, now)
		return
	}
	s.track(grp)
	s.admitGroup(grp)
}

// lead lets exactly one member through.
func (s *Gangs) lead(grp *group, now time.Time) {
	grp.leader, grp.since = "", now
	if leader := grp.pickLeader(); leader != nil {
		grp.leader = leader.uid()
	}
	s.track(grp)
	s.admitGroup(grp)
}

// replan tries the round again around the members that have a place.
func (s *Gangs) replan(grp *group, now time.Time) {
	grp.replans++
	if grp.replans > maxReplans {
		s.fail(grp, now)
		return
	}
	s.enterPhase(grp, ready, now)
}

// fail ends a round. A Strict group gives back what it holds, a NonStrict one
// keeps it.
func (s *Gangs) fail(grp *group, now time.Time) {
	grp.failures++
	grp.replans = 0
	grp.notBefore = now.Add(max(s.backoff.after(grp.failures), s.share(grp.cost)))
	s.enterPhase(grp, resting, now)
	if !grp.strict() {
		return
	}
	held := grp.held
	s.giveBack(grp)
	if _, set := grp.waitTime(); set {
		// The round did hold members. A user who wrote a wait time wants to hear
		// when it is over, though a Strict round holds them only for a moment.
		grp.held = held
		s.track(grp)
	}
}

// retryShare is the most of the scheduling thread that attempts which fail may
// take while something happens in the cluster all the time: one part in this.
const retryShare = 5

// share is the pause after an attempt of the given cost that keeps all groups
// that rest within their share of the scheduling thread.
func (s *Gangs) share(cost time.Duration) time.Duration {
	return cost * time.Duration(retryShare*len(s.timed))
}

// giveBack voids the plan of a group and takes back what its members hold.
func (s *Gangs) giveBack(grp *group) {
	for _, g := range grp.gangs {
		if g.count[Planned]+g.count[Held] == 0 {
			continue
		}
		for _, m := range g.members {
			switch m.state {
			case Planned:
				s.effects.Unhold = append(s.effects.Unhold, m.uid())
				s.unplan(m)
			case Held:
				s.effects.Reject = append(s.effects.Reject, m.uid())
				g.change(m, func() { m.state = Returning })
			}
		}
		s.effects.Freed = true
		s.effects.Changed = append(s.effects.Changed, g.key)
	}
	grp.held = time.Time{}
	s.track(grp)
	s.admitGroup(grp)
}

func (s *Gangs) unplan(m *member) {
	m.gang.change(m, func() { m.state, m.node = Pending, "" })
}

// release lets go of a group whose every minimum is held, and of members of
// gangs that run already.
func (s *Gangs) release(grp *group, now time.Time) {
	if !grp.reached() {
		return
	}
	for _, g := range grp.gangs {
		if g.count[Held] == 0 {
			continue
		}
		for _, m := range g.sorted(func(m *member) bool { return m.state == Held }) {
			g.change(m, func() { m.state = Released })
			s.effects.Release = append(s.effects.Release, m.uid())
		}
		g.failure = ""
	}
	grp.held = time.Time{}
	grp.failures, grp.replans = 0, 0
	s.track(grp)
	for _, g := range grp.gangs {
		s.noteRunning(g, now)
	}
}

// admissible tells whether the queue may let a member through.
func (s *Gangs) admissible(m *member) bool {
	g := m.gang
	switch m.state {
	case Pending:
		if !m.eligible() {
			return false
		}
		return g.satisfied() || (g.group.phase == ready && g.group.leader == m.uid())
	case Planned:
		return g.group.phase == following || g.group.phase == ready && g.group.replans > 0 || g.satisfied()
	default:
		return true // it is past the queue
	}
}

func (s *Gangs) admit(m *member) {
	want := s.admissible(m)
	if want && !m.admitted && (m.state == Pending || m.state == Planned) {
		s.effects.Activate = append(s.effects.Activate, m.pod)
	}
	m.admitted = want
}

func (s *Gangs) admitGang(g *gang) {
	for _, m := range g.members {
		s.admit(m)
	}
}

func (s *Gangs) admitGroup(grp *group) {
	for _, g := range grp.gangs {
		s.admitGang(g)
	}
}

// track notes whether time can move the group.
func (s *Gangs) track(grp *group) {
	if grp.phase == gathering && grp.held.IsZero() {
		delete(s.timed, grp)
		return
	}
	s.timed[grp] = true
}

const (
	// nudgeAfter is how long members that were let through may stay away before
	// the queue is asked again; they may have been in a cycle when they were let
	// through, and then the queue did not hear.
	nudgeAfter = time.Second
	// retryAnyway is when a group that does not fit is tried again even though
	// nothing was seen to happen.
	retryAnyway = time.Minute
)

// Tick takes in that time has passed.
func (s *Gangs) Tick(now time.Time) Effects {
	for grp := range s.timed {
		s.tick(grp, now)
	}
	return s.take()
}

func (s *Gangs) tick(grp *group, now time.Time) {
	if wait, _ := grp.waitTime(); !grp.held.IsZero() && now.Sub(grp.held) >= wait {
		s.expire(grp, now)
		return
	}
	switch grp.phase {
	case resting:
		if now.Before(grp.notBefore) {
			return
		}
		if grp.seen != s.changes || now.Sub(grp.since) >= retryAnyway {
			s.enterPhase(grp, ready, now)
		}
	case ready, following:
		if now.Sub(grp.since) < nudgeAfter {
			return
		}
		grp.since = now
		for _, g := range grp.gangs {
			for _, m := range g.members {
				if m.admitted && (m.state == Pending || m.state == Planned) {
					s.effects.Activate = append(s.effects.Activate, m.pod)
				}
			}
		}
	}
}

// expire gives everything back and marks who waited; nobody of them is tried
// again until the user acts (seed 002, WaitTime).
func (s *Gangs) expire(grp *group, now time.Time) {
	wait, _ := grp.waitTime()
	for _, g := range grp.gangs {
		if g.satisfied() {
			continue
		}
		for _, m := range g.sorted(func(m *member) bool { return m.state != Bound && m.state != Released && !m.expired }) {
			g.change(m, func() { m.expired = true })
			s.effects.Expire = append(s.effects.Expire, m.pod)
		}
		g.failure = fmt.Sprintf("gang %q did not reach its minimum of %d members within %s of holding the first", g.key, g.spec.Min, wait)
	}
	s.giveBack(grp)
	for _, g := range grp.gangs {
		s.settle(g, now)
	}
}
