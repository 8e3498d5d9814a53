package turns

import (
	"cmp"
	"time"

	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/util/bools"
	"github.com/lockstep-sh/lockstep/pkg/util/heaps"
)

// Job is what starts together: the gangs of a group, or one pod.
type Job struct {
	// Name is unique among the jobs of all profiles.
	Name string
	Rank Rank
	// Queue is the queue that it waits in, which the policy knows; empty for none.
	Queue string
	// Single: it is one pod that is placed alone, in no queue, and did not fit.
	Single bool
	// Strict: it keeps nothing of a place that does not suffice.
	Strict bool
	// Holder is how the ledger knows it.
	Holder hold.Holder
	// Tried: attempts have been made since it came together.
	Tried bool
	// Blocked: it cannot be tried now; members have yet to give back their nodes.
	Blocked bool
	// NotBefore ends a pause after Failures rounds in a row that failed although a plan stood.
	NotBefore time.Time
	Failures  int
	// Changes counts what has changed about the job itself: it may fit then, whatever happens.
	Changes int
}

// Rank orders jobs.
type Rank struct {
	Priority int32
	// Begun: part of it runs, which is useless without the rest. Surplus: it adds to a gang that has its minimum.
	Begun, Surplus bool
	Created        time.Time
	// Name is namespace/name of its first gang, or of its pod.
	Name string
}

// Compare orders by: 1. priority, high first; 2. jobs that have begun to run, before others; surplus after these;
// 3. creation, old first; 4. name.
func (r Rank) Compare(other Rank) int {
	return cmp.Or(cmp.Compare(other.Priority, r.Priority), bools.Compare(other.Begun, r.Begun),
		bools.Compare(r.Surplus, other.Surplus), r.Created.Compare(other.Created), cmp.Compare(r.Name, other.Name))
}

// phase is how far a job is.
type phase uint8

const (
	// resting: its last attempt failed, and nothing has happened that could help it.
	resting phase = iota
	// candidate: it may be tried.
	candidate
	// in: it was let in, and its attempt is not over. The policy may keep it waiting.
	in
)

// job is what is known of a job that waits.
type job struct {
	Job
	phase phase
	// fresh: it was not tried since it came.
	fresh bool
	// called: something may help it that the Line does not see: see [Line.Recall] and [Line.Enters].
	called bool
	// gaveBack: it has given back its turn since it was tried.
	gaveBack bool
	// begun: an attempt is under way.
	begun bool
	last  attempt
	// inOrder is its place among the candidates of its kind in no queue, and inTime that among all candidates.
	inOrder, inTime int
}

// attempt is what is known of the last attempt of a job.
type attempt struct {
	// seen is what the attempt knew of, and changes the count of those of the job itself.
	seen    changeCounts
	changes int
	// at is when it ended or was skipped as useless; for a job that was never tried, when the job came.
	at time.Time
	// hopeless and coupled say what can help.
	hopeless, coupled bool
	shape             Shape
	why               uint64
	// holder is what room is made for, if that is not the job.
	holder hold.Holder
	// coveredBy is the failed attempt of another job which showed that one of this job would fail.
	coveredBy *failedAttempt
}

// changeCounts counts what happened in the cluster.
type changeCounts struct {
	// changes could help any job. Of these, nodes are not about pods, and could help even a job that would not fit on
	// empty nodes, and ends are the ends of any preemptor's victims. moves are pods that came to nodes.
	changes, nodes, ends, moves uint64
}

// withoutEnds returns the number of changes that are not the end of a victim.
func (v changeCounts) withoutEnds() uint64 { return v.changes - v.ends }

// holder returns what room is made for when the job does not fit.
func (j *job) holder() hold.Holder {
	if j.last.holder.IsNone() {
		return j.Holder
	}
	return j.last.holder
}

// failedAttempt is an attempt that failed. Until the next change it shows that jobs which ask for no less would fail.
type failedAttempt struct {
	job   string
	rank  Rank
	shape Shape
	why   uint64
	at    time.Time
	// holder is what room is made for when the job does not fit.
	holder hold.Holder
	// kept: the job keeps what fits of it, and so has left nothing for one that asks for no less. What a job gives back
	// may help one that would keep it.
	kept bool
	// void: it covers no other job. Room is made for the job, so others may find some as well, or no pod could be evicted
	// for it.
	void bool
}

func (m *failedAttempt) old(now time.Time) bool { return now.Sub(m.at) >= retryAnyway }

// overdueAt returns when the job, if it is a candidate then, was not looked at for too long.
func (j *job) overdueAt() time.Time { return OverdueAt(j.last.at, !j.fresh) }

// inOrder returns a heap of candidates, by rank.
func inOrder() heaps.Heap[*job] {
	return heaps.Heap[*job]{Compare: compareRanks, Index: func(j *job) *int { return &j.inOrder }}
}

// inTime returns a heap of candidates, by when they are overdue.
func inTime() heaps.Heap[*job] {
	return heaps.Heap[*job]{
		Compare: func(a, b *job) int { return cmp.Or(a.overdueAt().Compare(b.overdueAt()), compareRanks(a, b)) },
		Index:   func(j *job) *int { return &j.inTime },
	}
}

func compareRanks(a, b *job) int { return cmp.Or(a.Rank.Compare(b.Rank), cmp.Compare(a.Name, b.Name)) }
