package queueing

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// Phase is how far a job is.
type Phase int

// Phases. A job is in exactly one.
const (
	// Outside: it is placed, or has not come to the gate.
	Outside Phase = iota
	// Waiting: it waits for its turn.
	Waiting
	// Admitted: it is its turn, and what it asks for counts as used.
	Admitted
	// Failed: it did not fit. It comes again when the cluster changes, or its queue deserves more.
	Failed
)

// Moment is when an input comes, and what is known then.
type Moment struct {
	Now time.Time
	// Synced: all queues and pods have been read. Before, no job is admitted.
	Synced bool
	// IsWaiting reports whether a pod is there and has no node. It may know of the end of a pod before the book is told.
	IsWaiting func(pod string) bool
	// WaitsForRoom reports whether what waits with a pod waits only for room on nodes, as far as is known of gangs.
	WaitsForRoom func(pod string) bool
	// IsComplete reports whether all that must be placed with a pod is there.
	IsComplete func(pod string) bool
}

// Effects is what the caller has to do after an input.
type Effects struct {
	// BringToGate: bring these pods to the gate. They have to offer their jobs again.
	BringToGate []string
	// OfferAgain: nothing else brings the pod back that has failed; it has to be offered again.
	OfferAgain bool
	// Retry: gangs that failed may fit by now.
	Retry bool
	// Freed are queues of which nothing is left.
	Freed []string
}

// job is all that is known of a job. It is kept as long as a pod of it is counted, or its phase or a note has
// something to say.
type job struct {
	asking
	history
	phase Phase
	// since is when the phase began.
	since time.Time
	// candidate: it has not come to the gate, see [Book.AddCandidate]; what it asks for is not known.
	candidate bool

	// What follows ends with the phase.
	listed
	turn turn
	// waits is why it waits for its turn; lookAgain is when to look whether that is still so.
	waits     reported
	lookAgain time.Time
	// deserved is the least that its queue has deserved since it failed, in phase Failed.
	deserved Vector
}

// history is what is known of a job beyond its phase.
type history struct {
	// arrival is its number among the jobs that have come: of two that were created in one second, the first comes first.
	arrival uint64
	// counted are its pods that are counted.
	counted map[string]bool
	// failed is when it failed last; zero if it has not.
	failed time.Time
	// tried is when no pod made way for it, which makes it patient until patience is over; zero if it is not.
	tried time.Time
	// yieldSuspendedUntil is until when no others give back what they hold for its turn, since that did not help; zero if
	// they may.
	yieldSuspendedUntil time.Time
	// waitsElsewhere: since it failed last, or while it waits for its turn, it waits for something else than room.
	waitsElsewhere bool
	// limit is what would keep it from more nodes, found when it failed before, or since.
	limit reported
}

// listed is where a job is that waits: kind is that of the list that it is in, and index its place in the list's heap,
// -1 if it is not there.
type listed struct {
	kind  kind
	index int
}

// turn is the turn of a job.
type turn struct {
	// pods are the pods to be placed in it, as they asked when it began.
	pods map[string]Usage
	// lacks is what the pods that have no place asked for, and left is their number. held is the number of those for
	// which a place is held.
	lacks      Needs
	left, held int
	// got: some have their places, or had.
	got bool
	// overLimit: when the turn began, its queue was at a limit, and other pods had to make way.
	overLimit bool
	// released: others gave back what they held for it.
	released bool
}

// asking is what a job asks for. Of a job that has failed only Name, Title, Queue, Pod, Pods, Together, Priority and
// Created are known.
type asking struct {
	Job
	// at is the one of its options by which it is judged and charged.
	at int
	// needs are the resources that it asks for, in order.
	needs []v1.ResourceName
}

// newJob returns a job as the book keeps it.
func newJob(offered Job) *job {
	j := &job{asking: asking{Job: offered}}
	j.take(0)
	return j
}

// patient reports whether no pod makes way for it.
func (j *job) patient() bool { return j.NeverPreempts || !j.tried.IsZero() }

// Phase returns the phase of a job.
func (b *Book) Phase(name string) Phase {
	if j := b.jobs[name]; j != nil {
		return j.phase
	}
	return Outside
}

// Jobs returns the jobs that wait for their turn, have it, or did not fit.
func (b *Book) Jobs(phase Phase) (jobs []Job) {
	for _, j := range b.timed {
		if j.phase == phase {
			jobs = append(jobs, j.Job)
		}
	}
	return jobs
}

// Unplaced returns how many jobs wait for their turn, have it, or did not fit, by queue.
func (b *Book) Unplaced() map[string]int {
	jobs := map[string]int{}
	for _, j := range b.timed {
		jobs[j.Queue] += count(j.phase != Outside)
	}
	return jobs
}

// Representative returns the pod that stands at the gate for a job that waits; empty for any other.
func (b *Book) Representative(name string) string {
	if j := b.jobs[name]; j != nil && j.phase == Waiting {
		return j.Pod
	}
	return ""
}

// job returns the job of a name, which is known from then on.
func (b *Book) job(name string) *job {
	j := b.jobs[name]
	if j == nil {
		b.arrivals++
		j = &job{asking: asking{Job: Job{Name: name}}, history: history{arrival: b.arrivals, counted: map[string]bool{}}}
		b.jobs[name] = j
	}
	return j
}

// active returns a job that waits or is admitted; nil for others.
func (b *Book) active(name string) *job {
	if j := b.jobs[name]; j != nil && (j.phase == Waiting || j.phase == Admitted) {
		return j
	}
	return nil
}

// move puts a job in another phase.
func (b *Book) move(j *job, to Phase) {
	b.admitted += count(to == Admitted) - count(j.phase == Admitted)
	j.phase = to
	b.indexTimed(j)
}

// indexTimed notes whether time can move a job, and forgets a job of which there is nothing to know.
func (b *Book) indexTimed(j *job) {
	if b.jobs[j.Name] == j {
		b.wishes.touch(j)
	}
	switch {
	case j.phase != Outside || !j.tried.IsZero():
		b.timed[j.Name] = j
	default:
		delete(b.timed, j.Name)
		if len(j.counted) == 0 && b.jobs[j.Name] == j {
			delete(b.jobs, j.Name)
			delete(b.holding, j)
			b.wishes.forget(j.Name)
			delete(b.missed, j.Name) // no job waits for one that is not there
		}
	}
}

// assign notes that a pod is part of another job; empty for none. A job that waited with it no longer does, and one
// that failed and has no other pod is gone: what the pod asks for counts for the other job now.
func (b *Book) assign(pod, from, to string) {
	if from == to {
		return
	}
	if to != "" {
		b.job(to).counted[pod] = true
	}
	j := b.jobs[from]
	if j == nil {
		return
	}
	switch delete(j.counted, pod); {
	case to != "" && j.phase == Waiting && j.Pod == pod:
		b.done(from)
	case to != "" && j.phase == Failed && len(j.counted) == 0:
		delete(b.missed, from)
		b.end(j)
	default:
		b.indexTimed(j)
	}
}

// offer makes a job wait for its turn, or updates it. A job that is admitted already stays so, and counts as it
// did.
func (b *Book) offer(offered Job) {
	j := b.job(offered.Name)
	if j.phase == Admitted {
		return
	}
	asked := newJob(offered)
	b.queue(offered.Queue)
	for _, option := range offered.Options {
		for queue := range option {
			b.queue(queue)
		}
	}
	if j.phase == Waiting {
		b.drop(j)
	} else {
		b.move(j, Waiting)
	}
	j.asking = asked.asking
	b.wishes.touch(j)
	b.list(j)
}

// drop takes an active job out of its queues.
func (b *Book) drop(j *job) {
	if j.phase == Waiting {
		b.unlist(j)
	} else {
		b.overLimit -= count(j.turn.overLimit)
		b.chargeAll(j, -1)
	}
}

// admit begins the turn of a job that waits.
func (b *Book) admit(j *job) {
	b.unlist(j)
	b.move(j, Admitted)
	j.turn.pods = map[string]Usage{}
	for _, pod := range j.Pods {
		if u, known := b.usages[pod]; known {
			j.turn.pods[pod] = u
		}
	}
	b.retake(j, j.at)
}

// done ends the turn of a job, or its waiting.
func (b *Book) done(name string) {
	if j := b.active(name); j != nil {
		b.drop(j)
		b.end(j)
	}
}

// end ends the phase of a job, and what belongs to it: it is outside then.
func (b *Book) end(j *job) {
	*j = job{asking: asking{Job: Job{Name: j.Name}}, history: j.history, phase: j.phase}
	b.move(j, Outside)
}

// relist moves a job that waits to the list where it belongs now.
func (b *Book) relist(j *job) {
	b.unlist(j)
	b.list(j)
}

// demand makes what some pods of a job ask for count in full, and that of its other pods as given.
func (b *Book) demand(j *job, full []string, others DemandScope) {
	demands := map[string]DemandScope{}
	for pod := range j.counted {
		demands[pod] = others
	}
	for _, pod := range full {
		demands[pod] = Full
	}
	for pod := range j.counted {
		if u := b.usages[pod]; u.Demand != demands[pod] {
			u.Demand = demands[pod]
			b.Count(pod, u)
		}
	}
}
