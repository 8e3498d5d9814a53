package gangstate

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Groups that did not fit rest, and are tried again when something has changed that can help: in
// order of rank, one after the other, within a share of the scheduling thread's time. A change
// begins again with the first. A group that asks for no less than one of higher rank that did not
// fit since the last change is skipped without an attempt. So what becomes free goes to the first
// in rank that can use it, and what it costs to look does not grow with the number of groups that
// wait for the same.

const (
	// retryAnyway is when a group that does not fit is tried again even though nothing was seen to
	// happen.
	retryAnyway = time.Minute
	// retryShare is the most of the scheduling thread that attempts which place nothing may take while
	// something happens in the cluster all the time: one part in this.
	retryShare = 5
	// showUp is how long the leader of a group that is tried again may take to come. A leader that
	// does not is kept back by another plugin, or by pods before it in the queue; the next one is
	// let through, and the queue has them in order.
	showUp = 200 * time.Millisecond
	// longestAttempt is how long an attempt that has begun may take. It ends by itself; if its end
	// was not reported, the others go on.
	longestAttempt = 10 * time.Second
)

// view counts what happened in the cluster.
type view struct {
	// changes could help any group; nodes are those of them that are not about pods, and
	// help a group too that would not fit on empty nodes; ends are those that are the end of a
	// victim, of whichever preemptor. moves are pods that came to nodes.
	changes, nodes, ends, moves uint64
}

// withoutEnds returns the number of changes that are not the end of a victim.
func (v view) withoutEnds() uint64 { return v.changes - v.ends }

// retry is what is known of the last attempt of a group.
type retry struct {
	// seen is what the attempt knew of; stale: the group itself has changed since.
	seen  view
	stale bool
	// partial: members had yet to give back their nodes when it was made, and were left out.
	partial bool
	// fresh: there was none since the group came together. first: it is the first one since.
	fresh, first bool
	// at is when it ended, or was found to be of no use.
	at time.Time
	// hopeless and coupled say what can help.
	hopeless, coupled bool
	shape             Shape
	// holder is what room is made for if that is not the group.
	holder string
	// passed is the miss because of which an attempt was found to be of no use.
	passed *miss
}

// miss is an attempt that failed. Until the next change it speaks for others.
type miss struct {
	group string // as the ledger knows it
	rank  rank
	shape Shape
	at    time.Time
	// kept: the group keeps what fits of it, and so has left nothing for one that asks for no
	// less. What a group gives back may be of use to one that would keep it.
	kept bool
	// void: room is made for the group, so others may find some as well.
	void bool
}

// holder returns what room is made for when the group does not fit.
func (g *group) holder() string { return cmp.Or(g.retry.holder, g.key().String()) }

// pump makes resting groups ready to be tried again.
type pump struct {
	resting map[*group]bool
	// coupled is how many of them a pod that comes to a node may help; fresh, how many
	// were never tried.
	coupled, fresh int
	// view is what happened so far; cycle is what the running scheduling cycle knows of, if that
	// was reported.
	view, cycle view
	cycles      bool
	// misses are the attempts that failed since the last change.
	misses []*miss
	// trying is the group that was made ready last, until its attempt is over; visited:
	// it has begun.
	trying  *group
	since   time.Time
	visited bool
	// notBefore keeps attempts within their share.
	notBefore time.Time
	// look: there may be a group that is due. gap: one that was never tried may be, in the
	// pause after an attempt.
	look, gap bool
	// turn counts turns.
	turn int
}

// Changed records that room has become free in the cluster.
func (s *Gangs) Changed() { s.pump.changed() }

// VictimEnded records that a pod has ended which was evicted to make room for a group.
func (s *Gangs) VictimEnded() {
	s.pump.view.ends++
	s.pump.changed()
}

// NodesChanged records that something else than pods has changed that could help a group that does
// not fit: nodes, volumes, devices.
func (s *Gangs) NodesChanged() {
	s.pump.view.nodes++
	s.pump.changed()
}

// PodsMoved records that a pod has come to a node, or has got other labels there, which could help
// a group whose members depend on other pods.
func (s *Gangs) PodsMoved() {
	s.pump.view.moves++
	s.pump.look = s.pump.look || s.pump.coupled > 0
}

// Begin records that a scheduling cycle begins. The cycle does not know of what is reported from
// here on.
func (s *Gangs) Begin() { s.pump.cycle, s.pump.cycles = s.pump.view, true }

// PassOver records that something else keeps back the leader of a group that is ready.
func (s *Gangs) PassOver(leader types.UID) {
	if p := &s.pump; p.trying != nil && p.trying.leader == leader && !p.visited {
		p.done()
	}
}

// Due returns when Retry has to be called so that a group is tried again; false: Tick will do.
func (s *Gangs) Due() (time.Time, bool) {
	p := &s.pump
	at := p.notBefore
	if p.gap && p.fresh > 0 {
		at = time.Time{}
	}
	return at, p.look && p.trying == nil && len(p.resting) > 0
}

// Trying returns the leader of the group that was made ready last and has not come yet.
func (s *Gangs) Trying() (types.UID, bool) {
	if p := &s.pump; p.trying != nil && !p.visited {
		return p.trying.leader, true
	}
	return "", false
}

// awaitedFailures bounds how many attempts in a row may fail until the next one is not awaited any more: a group that
// always fails would be for ever.
const awaitedFailures = 3

// Awaits reports whether the group of a member is being tried, or will be as things are: what is reported about it may
// not be final. So it may be while victims make room for it, and in the first backoffs after attempts that failed.
// until is when it may be tried at the earliest, or when the attempt that keeps it from that is over; zero for at once.
func (s *Gangs) Awaits(uid types.UID, now time.Time, elsewhere Elsewhere) (awaits bool, until time.Time) {
	m := s.members[uid]
	if m == nil {
		return false, time.Time{}
	}
	p, grp := &s.pump, m.gang.group
	switch {
	case p.trying == grp:
		return true, p.busy()
	case !p.resting[grp]:
		return false, time.Time{}
	case p.due(grp, now, elsewhere) && p.spokenFor(grp, now) == nil:
		return true, later(p.notBefore, p.busy())
	case grp.failures <= awaitedFailures && p.due(grp, later(now, grp.notBefore), elsewhere) && p.spokenFor(grp, now) == nil: // its plan failed: there is a backoff
		return true, grp.notBefore
	default:
		return elsewhere.Making(grp.holder()), time.Time{}
	}
}

// busy returns when an attempt that has begun is over at the latest; zero if there is none.
func (p *pump) busy() time.Time {
	if p.trying == nil || !p.visited {
		return time.Time{}
	}
	return p.since.Add(longestAttempt)
}

func (p *pump) changed() {
	p.view.changes++
	p.misses, p.look = nil, true
}

// begin notes that an attempt begins.
func (p *pump) begin(grp *group) {
	r := &grp.retry
	r.seen, r.stale, r.passed = p.view, false, nil
	r.first, r.fresh = r.fresh, false
	r.partial = slices.ContainsFunc(grp.gangs, func(g *gang) bool { return g.returning > 0 })
	if p.cycles {
		r.seen = p.cycle
	}
	if p.trying == grp {
		p.visited = true
	}
}

// move notes that a group changes its phase.
func (p *pump) move(grp *group, next phase) {
	if p.trying == grp && next != ready {
		p.done()
	}
	if (grp.phase == resting) == (next == resting) {
		return
	}
	by := 1
	if next == resting {
		p.resting[grp], p.look = true, true
	} else {
		delete(p.resting, grp)
		by = -1
	}
	if grp.retry.coupled {
		p.coupled += by
	}
	if grp.retry.fresh {
		p.fresh += by
	}
}

// done ends the trying of a group.
func (p *pump) done() { p.trying, p.look, p.gap = nil, true, true }

// due reports whether a group that rests may fit by now. While victims make room for it, the end of a victim is no
// reason to try it: it needs all that were chosen for it, and what others leave is promised.
func (p *pump) due(grp *group, now time.Time, elsewhere Elsewhere) bool {
	r := &grp.retry
	switch {
	case now.Before(grp.notBefore), !grp.assembled():
		return false
	case r.stale, r.passed != nil && r.passed.void, p.isAged(grp, now):
		return true
	case r.coupled && r.seen.moves != p.view.moves:
		return true
	case r.hopeless:
		return r.seen.nodes != p.view.nodes
	case r.seen.withoutEnds() != p.view.withoutEnds():
		return true
	default:
		return r.seen.ends != p.view.ends && !elsewhere.Making(grp.holder())
	}
}

// isAged reports whether a group has not been looked at for so long that it is tried
// whatever happened.
func (p *pump) isAged(grp *group, now time.Time) bool { return now.Sub(grp.retry.at) >= retryAnyway }

// note keeps a miss, in place of the one that its group had, and of those that are too old to speak
// for others.
func (p *pump) note(one *miss) {
	p.misses = append(slices.DeleteFunc(p.misses, func(m *miss) bool { return m.group == one.group || m.old(one.at) }), one)
}

func (m *miss) old(now time.Time) bool { return now.Sub(m.at) >= retryAnyway }

// spokenFor returns the miss that shows that an attempt would be of no use; nil for none.
func (p *pump) spokenFor(grp *group, now time.Time) *miss {
	if grp.retry.stale {
		return nil
	}
	for _, m := range p.misses {
		if !m.void && (m.kept || grp.strict()) && !m.old(now) && m.rank.compare(grp.rankOf()) <= 0 && grp.retry.shape.asksNoLessThan(m.shape) {
			return m
		}
	}
	return nil
}

// waiting lists the groups that are due and may fit.
func (p *pump) waiting(now time.Time, elsewhere Elsewhere) []*group {
	var due []*group
	for grp := range p.resting {
		if !p.due(grp, now, elsewhere) {
			continue
		}
		if m := p.spokenFor(grp, now); m != nil && !elsewhere.Promised(grp.holder()) {
			grp.retry.seen, grp.retry.at, grp.retry.passed = p.view, now, m
			continue
		}
		due = append(due, grp)
	}
	return due
}

// next returns the group whose turn it is; nil for none. It is the first in rank of the groups that
// are due and may fit. Every other turn goes to groups that have not been looked at for long, or
// were never tried, if there are any: while changes come faster than attempts can be made, the last
// in rank would not be tried.
func (p *pump) next(now time.Time, elsewhere Elsewhere) *group {
	due := p.waiting(now, elsewhere)
	p.turn++
	if p.turn%2 == 0 {
		aged := first(due, func(grp *group) bool { return p.isAged(grp, now) })
		way, _ := wayOfNewcomer(due, now)
		switch {
		case way != nil && (aged == nil || p.turn%4 == 0):
			return way
		case aged != nil:
			return aged
		}
	}
	return first(due, func(*group) bool { return true })
}

// first returns the first in rank of the groups that pass the test; nil for none.
func first(groups []*group, test func(*group) bool) *group {
	var found *group
	for _, grp := range groups {
		if test(grp) && (found == nil || compareRank(grp, found) < 0) {
			found = grp
		}
	}
	return found
}

// listen stops misses from speaking for others once room is made for their groups: a preemptor
// finds victims that the next one may find, too.
func (p *pump) listen(elsewhere Elsewhere) {
	for _, m := range p.misses {
		if !m.void && (elsewhere.Making(m.group) || elsewhere.Promised(m.group)) {
			m.void, p.look = true, true
		}
	}
}

// retryNext makes the next group ready, if it is time.
func (s *Gangs) retryNext(now time.Time, elsewhere Elsewhere) {
	p := &s.pump
	p.listen(elsewhere)
	if p.trying != nil {
		patience := showUp
		if p.visited {
			patience = longestAttempt
		}
		if now.Sub(p.since) < patience {
			return
		}
		p.done()
	}
	var grp *group
	switch {
	case !p.look:
		return
	case !now.Before(p.notBefore):
		grp = p.next(now, elsewhere)
		p.look = grp != nil
	case p.fresh > 0:
		grp = p.nextInPause(now, elsewhere)
		p.gap = grp != nil
	}
	if grp == nil {
		return
	}
	p.trying, p.since, p.visited = grp, now, false
	s.enterPhase(grp, ready, now)
}

// miss records that an attempt failed, and lets the group rest. polite: it may not evict others as
// far as gangs of the same shape may.
func (s *Gangs) miss(grp *group, o Outcome, polite bool, now time.Time) {
	p, r := &s.pump, &grp.retry
	// A hopeless group is not helped by any pod that comes to a node.
	r.at, r.hopeless, r.coupled, r.shape, r.holder = now, o.Hopeless, o.Coupled && !o.Hopeless, o.Shape, o.Holder
	if r.shape.Key != 0 && r.seen == p.view {
		p.note(&miss{group: grp.holder(), rank: grp.rankOf(), shape: r.shape, at: now, kept: !grp.strict(), void: polite})
	}
	p.pause(grp, o.Cost, now)
	if grp.replans > 0 {
		s.failRound(grp, now)
	} else {
		s.rest(grp, now)
	}
}

// pause keeps attempts that fail within their share of the thread. The pauses of newcomers do not
// add up: each is tried once, and the others need not wait for all that came.
func (p *pump) pause(grp *group, cost time.Duration, now time.Time) {
	pause := min(cost*(retryShare-1), retryAnyway)
	if grp.retry.first {
		p.notBefore = later(p.notBefore, now.Add(pause))
		return
	}
	p.notBefore = later(p.notBefore, now).Add(pause)
	if limit := now.Add(retryAnyway); p.notBefore.After(limit) {
		p.notBefore = limit
	}
}
