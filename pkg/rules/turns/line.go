package turns

import (
	"container/heap"
	"slices"
	"time"

	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/util/heaps"
	"github.com/lockstep-sh/lockstep/pkg/util/times"
)

const (
	// showUp is how long the pod of a job that was let in may take to come, also where other programs keep all cores
	// busy. If it does not, it is kept back elsewhere, or is behind other pods in the scheduling queue; the next job is
	// let in.
	showUp = time.Second
	// longestAttempt is how long an attempt that has begun may take. It ends by itself; if its end was not reported, the
	// others go on.
	longestAttempt = 10 * time.Second
	// maxFailedTurns is how many more turns in a row a job may have in vain until the next in order has one.
	maxFailedTurns = 10
	// maxHeadOfLineWait is how long the others wait, in a row, for the first in order while its attempts place nothing.
	// It is many times what an attempt takes, also where other programs keep all cores busy.
	maxHeadOfLineWait = 500 * time.Millisecond
	// lookAgain is how often a job is searched for that may go ahead of one which pauses.
	lookAgain = 100 * time.Millisecond
)

// Policy orders the jobs of queues: those that it has, since limits keep them waiting or since they are one pod, and
// the candidates.
type Policy interface {
	// AddCandidate tells the policy that a job is a candidate.
	AddCandidate(job Job)
	// RemoveCandidate tells the policy that a job is no longer a candidate.
	RemoveCandidate(name string)
	// First returns the first of these jobs in order, as things are; false for none. Limits apply to the jobs that the
	// policy has, and not to candidates.
	First(which Selection) (first Job, ok bool)
}

// Selection are the jobs among which a policy looks for the first.
type Selection int

const (
	// AllJobs are the jobs that it has, and the candidates.
	AllJobs Selection = iota
	// PolicyJobs are the jobs that it has.
	PolicyJobs
	// OverdueJobs are those of them that are overdue, see [OverdueAt], the longest first.
	OverdueJobs
)

// PreemptionState is what happens to a job that is decided elsewhere.
type PreemptionState interface {
	// Making reports whether room is being made for a holder: victims have not all ended.
	Making(holder hold.Holder) bool
	// Promised reports whether room is kept for a holder that no plan of its own holds.
	Promised(holder hold.Holder) bool
}

// Line has the jobs that wait. It is not safe for concurrent use.
type Line struct {
	policy    Policy
	elsewhere PreemptionState
	jobs      map[string]*job
	// resting are the jobs that a change or time may make candidates. coupled is how many of them a pod that comes to a
	// node may help.
	resting map[*job]bool
	coupled int
	// candidates are all of them, by when they are overdue. The policy knows of those in queues.
	candidates     heaps.Heap[*job]
	gangs, singles kind
	// view is what happened so far; cycle is what the running scheduling cycle knows of.
	view, cycle changeCounts
	// failed are the attempts that failed since the last change, by the key of their shape. restedCovered: all candidates
	// were compared with them.
	failed        map[uint64][]*failedAttempt
	restedCovered bool
	turn          turn
	// inVain is the job that had its last turns in vain, and turnsInVain how many more in a row.
	inVain      string
	turnsInVain int
	// overtaken: the last turn outside a pause of the first in order was not its own.
	overtaken bool
	// keptSince is since when the others wait for the first in order; zero if they do not; in the future: until then they
	// may go ahead of it.
	keptSince time.Time
	// look: resting jobs may have become candidates; they may by time alone at wakeAt.
	look   bool
	wakeAt time.Time
}

// kind is gangs or single pods.
type kind struct {
	// candidates are those in no queue, in order.
	candidates heaps.Heap[*job]
	// notBefore ends the pause after attempts that placed nothing.
	notBefore time.Time
}

// turn is the job that was let in last, until its attempt is over.
type turn struct {
	of *job
	// since is when it was let in, or when its attempt began.
	since time.Time
	begun bool
	// failed: its attempt placed nothing. ahead: it was let in ahead of the first in order. byPolicy: the policy had to
	// admit it.
	failed, ahead, byPolicy bool
	// changes is the count of changes when it was let in.
	changes uint64
}

// New returns an empty line.
func New(policy Policy, elsewhere PreemptionState) *Line {
	return &Line{policy: policy, elsewhere: elsewhere, jobs: map[string]*job{}, resting: map[*job]bool{},
		candidates: inTime(), gangs: kind{candidates: inOrder()}, singles: kind{candidates: inOrder()},
		failed: map[uint64][]*failedAttempt{}}
}

// Offer adds a job that waits, or updates it. If it was let in, its attempt is over.
func (l *Line) Offer(offered Job, now time.Time) {
	j := l.jobs[offered.Name]
	if j == nil {
		j = &job{Job: offered, phase: in, fresh: !offered.Tried,
			last: attempt{at: now, changes: offered.Changes - 1, seen: l.view}}
		l.jobs[offered.Name] = j
	}
	before := j.phase
	l.take(j)
	j.Job = offered
	if before == candidate && !j.Blocked && !now.Before(j.NotBefore) {
		l.enter(j)
	} else {
		l.rest(j)
	}
}

// Enters reports whether the pod of a single job may enter the scheduling queue: it is not known to have failed, or
// has its turn. Otherwise it is a candidate from now on: kube-scheduler brings a pod to the gate if something may help
// it.
func (l *Line) Enters(name string) bool {
	if j := l.jobs[name]; j == nil || j.phase == in {
		return true
	}
	l.Recall(name)
	return false
}

// Recall makes a resting job a candidate although nothing has changed in the cluster.
func (l *Line) Recall(name string) {
	if j := l.jobs[name]; j != nil && j.phase != in {
		j.called, l.look = true, true
	}
}

// Renew records that a job has changed itself: it may fit then, whatever happens.
func (l *Line) Renew(name string, now time.Time) {
	switch j := l.jobs[name]; {
	case j == nil:
	case j.phase == in:
		j.Changes++ // which the attempt may not know of
	default:
		changed := j.Job
		changed.Changes++
		l.Offer(changed, now)
	}
}

// Rerank changes the rank of a single job.
func (l *Line) Rerank(name string, rank Rank) {
	j := l.jobs[name]
	if j == nil || j.Rank == rank {
		return
	}
	if j.Rank = rank; j.phase == candidate {
		heap.Fix(&l.candidates, j.inTime)
		heap.Fix(&l.singles.candidates, j.inOrder)
	}
}

// Withdraw removes a job that no longer waits.
func (l *Line) Withdraw(name string) {
	if j := l.jobs[name]; j != nil {
		l.take(j)
		delete(l.jobs, name)
	}
}

// Change is what has happened in the cluster.
type Change int

const (
	// Freed: there may be more room.
	Freed Change = iota
	// VictimEnded: a pod has ended which was evicted to make room for a job.
	VictimEnded
	// NodesChanged: something else than pods has changed, which could help a job too that would not fit on empty nodes:
	// nodes, volumes, devices.
	NodesChanged
	// PodsMoved: a pod has come to a node, or has got other labels there. It could help a job that depends on other pods.
	PodsMoved
)

// RecordChange records what has happened.
func (l *Line) RecordChange(change Change) {
	switch change {
	case VictimEnded:
		l.view.ends++
	case NodesChanged:
		l.view.nodes++
	case PodsMoved:
		l.view.moves++
		l.look = l.look || l.coupled > 0
		return
	case Freed:
	}
	l.view.changes++
	clear(l.failed)
	l.look = true
}

// BeginCycle records that a scheduling cycle begins. It does not know of what happens from here on.
func (l *Line) BeginCycle() { l.cycle = l.view }

// Begin records that the attempt of a job that was let in begins, in the present cycle.
func (l *Line) Begin(name string, now time.Time) {
	j := l.jobs[name]
	if j == nil || j.phase != in {
		return
	}
	l.begin(j)
	if l.turn.of == j {
		l.turn.begun, l.turn.since = true, now
	}
}

func (l *Line) begin(j *job) {
	j.begun, j.gaveBack, j.last.seen, j.last.changes, j.last.coveredBy = true, false, l.cycle, j.Changes, nil
}

// AttemptFailure is what an attempt that failed has found.
type AttemptFailure struct {
	// Cost is how long it kept the scheduling thread.
	Cost time.Duration
	// Some: it placed some members. Only attempts that place nothing keep others waiting.
	Some bool
	// Hopeless: the job would not fit either if all nodes were empty.
	Hopeless bool
	// Coupled: the job depends on other pods, so a pod that comes to a node may help it.
	Coupled bool
	// Shape is what the attempt asked for, if that says all about why it failed.
	Shape Shape
	// Why stands for the reasons that a single pod was given. A pod that was given others is tried all the same, so that
	// its condition stays true.
	Why uint64
	// Holder is what room is made for, if that is not the job.
	Holder hold.Holder
	// EvictsNone: no pod could be evicted for it. For a job of the same shape one may be, so it covers none of them.
	EvictsNone bool
}

// Fail records that the attempt of a job failed. The job rests.
func (l *Line) Fail(missed Job, o AttemptFailure, now time.Time) {
	name := missed.Name
	if l.jobs[name] == nil {
		missed.Tried = true
		l.Offer(missed, now)
	}
	j := l.jobs[name]
	if !j.begun {
		l.begin(j) // it was placed without its turn, as far as it got
	}
	l.take(j)
	a := &j.last
	// A hopeless job is not helped by any pod that comes to a node.
	a.at, a.hopeless, a.coupled, a.shape, a.why, a.holder = now, o.Hopeless, o.Coupled &&
		!o.Hopeless, o.Shape, o.Why, o.Holder
	j.fresh, j.begun = false, false
	// A pod that came to a node meanwhile helps no job with a shape.
	if a.shape.Key != 0 && a.seen.changes == l.view.changes {
		key := a.shape.Key
		l.failed[key] = append(slices.DeleteFunc(l.failed[key], func(m *failedAttempt) bool {
			if m.job == name { // those that it covers are compared with the new one
				m.void, l.look = true, true
			}
			return m.job == name || m.old(now)
		}),
			&failedAttempt{job: name, rank: j.Rank, shape: a.shape, why: a.why, at: now, holder: j.holder(), kept: !j.Strict,
				void: o.EvictsNone})
		l.restedCovered = false
	}
	if l.turn.failed = !o.Some; o.Some {
		l.keptSince = time.Time{}
	}
	if o.Some || l.inVain != name {
		l.inVain, l.turnsInVain = name, 0
	} else {
		l.turnsInVain++
	}
	if kind := l.kindOf(j); !o.Some {
		kind.notBefore = times.Later(kind.notBefore, now.Add(min(o.Cost*(retryShare-1), retryAnyway)))
	}
	l.rest(j)
}

// PassOver ends the turn of a job that was let in, and does not come: something else keeps it back. It stays let in.
func (l *Line) PassOver(name string) {
	if j := l.turn.of; j != nil && j.Name == name {
		l.end(j)
	}
}

// RecordEmptyAttempt records an attempt that placed nothing and has no other report.
func (l *Line) RecordEmptyAttempt() { l.turn.failed = true }

// Turn returns the job that was let in last, until its attempt is over, and whether the attempt has begun.
func (l *Line) Turn() (name string, begun bool) {
	if l.turn.of == nil {
		return "", false
	}
	return l.turn.of.Name, l.turn.begun
}

// end ends the turn of a job.
func (l *Line) end(j *job) {
	if l.turn.of == j {
		l.turn.of = nil
	}
}

// take takes a job out of its phase.
func (l *Line) take(j *job) {
	switch j.phase {
	case resting:
		if j.last.coupled {
			l.coupled--
		}
		delete(l.resting, j)
	case candidate:
		heap.Remove(&l.candidates, j.inTime)
		if j.Queue == "" {
			heap.Remove(&l.kindOf(j).candidates, j.inOrder)
		} else {
			l.policy.RemoveCandidate(j.Name)
		}
	case in:
		l.end(j)
	}
}

// kindOf returns the kind of a job.
func (l *Line) kindOf(j *job) *kind {
	if j.Single {
		return &l.singles
	}
	return &l.gangs
}

// enter makes a job a candidate.
func (l *Line) enter(j *job) {
	j.phase, j.called = candidate, false
	heap.Push(&l.candidates, j)
	if j.Queue == "" {
		heap.Push(&l.kindOf(j).candidates, j)
	} else {
		l.policy.AddCandidate(j.Job)
	}
}
