package gangstate

import "time"

// nudgeAfter is how long members may take to act on an effect before it is repeated; from then on
// it doubles up to retryAnyway, since the effect may have arrived and they may be stuck. They may
// have been in a cycle when they were let through, or not yet waiting when they were released or
// rejected, and then the effect was lost.
const nudgeAfter = time.Second

// Elsewhere is what happens to a group, by its name, that is decided outside this package.
type Elsewhere interface {
	// Making reports whether room is being made for the group: victims have not all ended.
	Making(group string) bool
	// Promised reports whether room is kept for the group that no plan of its own holds.
	Promised(group string) bool
}

// nowhere is an Elsewhere where nothing happens.
type nowhere struct{}

func (nowhere) Making(string) bool   { return false }
func (nowhere) Promised(string) bool { return false }

// track notes whether time can move the group.
func (s *Gangs) track(grp *group) {
	if grp.phase == gathering && grp.clocks.held.IsZero() && grp.countIn(Planned)+grp.countIn(Released)+grp.countIn(Returning) == 0 {
		delete(s.timed, grp)
		return
	}
	s.timed[grp] = true
}

// Tick records that time has passed. It has to be called every now and then. A nil elsewhere is one where nothing
// happens.
func (s *Gangs) Tick(now time.Time, elsewhere Elsewhere) Effects {
	if elsewhere == nil {
		elsewhere = nowhere{}
	}
	for grp := range s.timed {
		s.tick(grp, now, elsewhere)
	}
	s.retryNext(now, elsewhere)
	s.ticked = now
	return s.take()
}

// Retry tries the next group again if it is time, and does nothing else of what Tick does.
func (s *Gangs) Retry(now time.Time, elsewhere Elsewhere) Effects {
	s.retryNext(now, elsewhere)
	return s.take()
}

func (s *Gangs) tick(grp *group, now time.Time, elsewhere Elsewhere) {
	if grp.clocks != (clocks{}) {
		if elsewhere.Making(grp.key().String()) {
			grp.clocks.stand(s.ticked, now)
		} else if s.runOut(grp, now) {
			return
		}
	}
	if now.Sub(grp.nudged) >= grp.patience {
		s.nudge(grp, now)
	}
	if grp.phase == resting && s.pump.due(grp, now, elsewhere) {
		s.pump.look = true
	}
}

// nudge repeats the effects that members have not acted on yet.
func (s *Gangs) nudge(grp *group, now time.Time) {
	grp.nudged, grp.patience = now, min(max(2*grp.patience, nudgeAfter), retryAnyway)
	for _, g := range grp.gangs {
		for _, m := range g.members {
			switch {
			case m.admitted && (m.state == Planned || m.state == Pending && grp.leader == m.uid()):
				s.effects.Activate = append(s.effects.Activate, m.pod)
			case m.state == Returning:
				s.effects.Reject = append(s.effects.Reject, m.uid())
			case m.state == Released && m.waiting:
				s.effects.Release = append(s.effects.Release, m.uid())
			}
		}
	}
}
