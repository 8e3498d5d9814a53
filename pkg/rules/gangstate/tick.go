package gangstate

import "time"

// firstResend is how long members may take to act on an effect before it is repeated; from then on
// it doubles up to a minute, since the effect may have arrived and they may be stuck. They may
// have been in a cycle when they were let through, or not yet waiting when they were released or
// rejected, and then the effect was lost.
const (
	firstResend = time.Second
	lastResend  = time.Minute
	// leaderKept is the pause after the calls of a leader that end a round which is planned again, 7 s after it began: a
	// limit of its queue may keep the leader for as long as it likes, and what the others hold must not wait for that.
	leaderKept = 4 * firstResend
)

// track notes whether time can move the group.
func (s *Gangs) track(grp *group) {
	if grp.phase == gathering && grp.clocks.held.IsZero() &&
		grp.countIn(Planned)+grp.countIn(Released)+grp.countIn(Returning) == 0 {
		delete(s.timed, grp)
		return
	}
	s.timed[grp] = true
}

// Tick records that time has passed. It has to be called every now and then. making reports whether room is being made
// for a group, by its name: victims have not all ended.
func (s *Gangs) Tick(now time.Time, making func(group string) bool) Effects {
	for grp := range s.timed {
		s.tick(grp, now, making)
	}
	s.ticked = now
	return s.takeEffects()
}

func (s *Gangs) tick(grp *group, now time.Time, making func(group string) bool) {
	if grp.clocks != (clocks{}) {
		if making(grp.key().String()) {
			grp.clocks.pause(s.ticked, now)
		} else if s.expireTimeouts(grp, now) {
			return
		}
	}
	switch {
	case now.Sub(grp.sent) < grp.resendAfter:
	case grp.phase == inTurn && grp.replans > 0 && !grp.visited && grp.resendAfter >= leaderKept:
		s.failRound(grp, now)
		s.updatePhase(grp.gangs[0], now)
	default:
		s.resend(grp, now)
	}
}

// resend repeats the effects that members have not acted on yet.
func (s *Gangs) resend(grp *group, now time.Time) {
	grp.sent, grp.resendAfter = now, min(max(2*grp.resendAfter, firstResend), lastResend)
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
