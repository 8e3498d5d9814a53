package gangstate

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// replan tries the round again around the members that have a place.
func (s *Gangs) replan(grp *group, now time.Time) {
	grp.replans++
	if grp.replans <= maxReplans {
		s.enterPhase(grp, inTurn, now)
		return
	}
	for _, g := range grp.gangs {
		if g.need() > 0 && g.failure.none() {
			g.failure = failure{reason: v1alpha1.ReasonPlacementFailed,
				message: fmt.Sprintf("gang %q: members did not fit on the nodes planned for them, %d times in a row", g.key,
					maxReplans+1)}
		}
	}
	s.failRound(grp, now)
}

// failRound ends a round that failed although a plan stood. The next attempt waits for a
// backoff, whatever happens: the plan may fit and fail again and again.
func (s *Gangs) failRound(grp *group, now time.Time) {
	grp.failures++
	grp.notBefore = now.Add(s.backoff.after(grp.failures))
	s.effects.RoundsFailed++
	s.endFailedRound(grp, now)
}

// endFailedRound ends a round. A Strict group gives back what it holds, a NonStrict one keeps it.
func (s *Gangs) endFailedRound(grp *group, now time.Time) {
	grp.replans = 0
	s.enterPhase(grp, awaiting, now)
	if grp.strict() {
		s.unreserve(grp)
	} else {
		s.keepPart(grp)
	}
}

// keepPart makes planned ones of members that wait for their binding, with the same places: a plan can move these, and
// they make way for other gangs. The scheduler rejects them first.
func (s *Gangs) keepPart(grp *group) {
	for _, m := range grp.notStarted(Held) {
		s.unreserveMember(m)
		m.keepsPlace = true
	}
}

// roundTime returns the shortest time of its gangs for a round. If nothing else limits how long
// capacity is held, the default wait time does.
func (g *group) roundTime() time.Duration {
	var round time.Duration
	for _, gang := range g.gangs {
		if t := gang.spec.RoundTime; t > 0 && (round == 0 || t < round) {
			round = t
		}
	}
	if round > 0 {
		return round
	}
	if wait, _ := g.waitTime(); wait > 0 {
		return 0
	}
	return g.gangs[0].spec.WaitTime
}

// hasRounds reports whether a round of the group ends with its time, and another begins.
func (g *group) hasRounds() bool {
	return slices.ContainsFunc(g.gangs, func(gang *gang) bool { return gang.spec.RoundTime > 0 })
}

// endRound gives back what is held. The group is tried again.
func (s *Gangs) endRound(grp *group, round time.Duration, now time.Time) {
	for _, g := range grp.gangs {
		if g.need() > 0 && g.failure.none() {
			g.failure = failure{reason: v1alpha1.ReasonPlacementFailed,
				message: fmt.Sprintf("gang %q did not reach its minimum of %d members in a round of %s; it is tried again", g.key,
					g.spec.Min, round)}
		}
	}
	s.failRound(grp, now)
	s.unreserve(grp)
	grp.clocks.round = time.Time{}
	s.mayFit(grp)
	for _, g := range grp.gangs {
		s.updatePhase(g, now)
	}
}

// Backoff spaces the attempts to place a gang.
type Backoff struct {
	Initial, Max time.Duration
}

// after returns the pause after the nth failure in a row, n from 1.
func (b Backoff) after(n int) time.Duration {
	pause := b.Initial
	for ; n > 1 && 0 < pause && pause < b.Max; n-- {
		if pause > math.MaxInt64/2 {
			return b.Max
		}
		pause *= 2
	}
	return min(pause, b.Max)
}
