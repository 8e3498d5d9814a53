package queueing

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
)

const (
	// longestTurn is how long a turn lasts that leads to nothing: another gate may have kept the pod back
	// meanwhile. It comes again.
	longestTurn = 30 * time.Second
	// patience is how long a job waits, after no pod made way for it, until one may.
	patience = 30 * time.Second
	// spare is for how long nobody gives back again what is held, for a job that did not fit then.
	spare = time.Minute
)

// take returns the effects that gathered during an input.
func (b *Book) take() Effects {
	e := b.effects
	b.effects = Effects{}
	return e
}

// Offer sets what a job asks for now. If it is not its turn, it waits for that. No job gets its turn before the
// next input.
func (b *Book) Offer(offered Job, at Moment) {
	j := b.job(offered.Name)
	if j.phase == Admitted {
		return
	}
	since := at.Now
	if j.phase == Waiting {
		since = j.since
	}
	b.demand(j, offered.Pods, Hopeless)
	j.deserved = nil
	b.offer(offered)
	j.since = since
}

// First returns the job whose turn it is, if the window has room for another one; candidates, and jobs that have begun
// already, need no room. It is false if there is none. Jobs that would not come if they were called no longer wait
// then; see the effects.
func (b *Book) First(at Moment, which turns.Selection) (first Job, ok bool, e Effects) {
	for len(b.timed)+len(b.candidates) > 0 {
		from := selection{candidates: which == turns.AllJobs, begun: at.Synced, others: at.Synced &&
			b.admitted < b.limits.Window, now: at.Now}
		var next *job
		if which != turns.OverdueJobs {
			next = b.next(from)
		} else if from.others {
			next = b.late(at.Now)
		}
		switch {
		case next == nil:
			return Job{}, false, b.take()
		case next.candidate:
			return next.Job, true, b.take()
		case !at.IsWaiting(next.Pod):
			b.stopWaiting(next, at)
		case next.Together && !at.IsComplete(next.Pod):
			b.abandon(next)
		default:
			return next.Job, true, b.take()
		}
	}
	return Job{}, false, b.take()
}

// AddCandidate adds a gang that has not come to the gate, and would if it was its turn: First returns it in the order
// of all jobs, whatever the limits of its queue. Only its Name, Title, Queue, Gang, Priority, Created and Begun are
// known. If it is one already it is replaced.
func (b *Book) AddCandidate(gang Job) {
	b.RemoveCandidate(gang.Name)
	j := &job{asking: asking{Job: gang}, candidate: true}
	if j.arrival = math.MaxUint64; b.jobs[gang.Name] != nil {
		j.arrival = b.jobs[gang.Name].arrival // otherwise it comes after those that have come, by name
	}
	b.candidates[gang.Name] = j
	b.queue(gang.Queue)
	b.list(j)
}

// RemoveCandidate removes a candidate, if it is one: it has come to the gate, or rests.
func (b *Book) RemoveCandidate(name string) {
	if j := b.candidates[name]; j != nil {
		delete(b.candidates, name)
		b.unlist(j)
	}
}

// Admission is the begin of the turn of a job.
type Admission struct {
	Job
	// Waited is how long it has waited.
	Waited time.Duration
	// Releases are the jobs that have to give back what they hold so that the job keeps the ceilings of its queues.
	Releases []Job
}

// Admit begins the turn of a job that First has returned; false if it no longer waits.
func (b *Book) Admit(name string, at Moment) (Admission, bool) {
	j := b.jobs[name]
	if j == nil || j.phase != Waiting {
		return Admission{}, false
	}
	if !j.Begun {
		b.pass(j, at.Now)
		_, j.turn.overLimit = b.exceeded(j)
		b.overLimit += count(j.turn.overLimit)
	}
	b.admit(j)
	waited := at.Now.Sub(j.since)
	j.since = at.Now
	return Admission{Job: j.Job, Waited: waited, Releases: b.releases(j)}, true
}

// abandon ends the waiting of a job, or its turn, that would lead to nothing. It asks for nothing until it comes
// again.
func (b *Book) abandon(j *job) {
	b.done(j.Name)
	b.demand(j, nil, Hopeless)
}

// stopWaiting ends the waiting of a job, or its turn, if the pod to call no longer waits. Another of its pods is
// called, if there is one, and offers it again.
func (b *Book) stopWaiting(j *job, at Moment) {
	pods := j.Pods
	b.done(j.Name)
	if i := slices.IndexFunc(pods, at.IsWaiting); i >= 0 {
		b.effects.BringToGate = append(b.effects.BringToGate, pods[i])
	}
}

// RecordFinding records what was found about a pod in its cycle: it has to wait until others of its queue have made
// way, or its gang would not fit on an empty cluster. It counts until Fail.
func (b *Book) RecordFinding(pod string, refused, hopeless bool) {
	if u, known := b.usages[pod]; known {
		u.refused, u.hopeless = u.refused || refused, u.hopeless || hopeless
		b.usages[pod] = u
	}
}

// Failure is how a pod failed.
type Failure struct {
	// Job is what it would have been offered with, if it came without a turn. Title is what users know it by.
	Job, Title string
	// Together: it stands for a gang, which another plugin brings back.
	Together bool
	// Hopeless: it would not fit on an empty cluster.
	Hopeless bool
	// WaitsElsewhere: it waits for something else than room.
	WaitsElsewhere bool
}

// Fail records that a pod could not be scheduled: the turn of its job ends. A job for which others would have to
// make way, and none did, is patient for a while. A job that would not fit if everything else were gone keeps
// nothing waiting.
func (b *Book) Fail(pod string, how Failure, at Moment) Effects {
	u, known := b.usages[pod]
	if !known {
		return Effects{}
	}
	refused, name, demand := u.refused, cmp.Or(u.Job, how.Job), Idle
	if u.hopeless || how.Hopeless {
		demand = Hopeless
		delete(b.missed, name)
	} else {
		b.miss(name)
	}
	u.refused, u.hopeless = false, false
	b.usages[pod] = u
	crowded := len(b.overLimitBounds(b.jobs[name])) > 0
	b.demand(b.job(name), nil, demand)
	before := *b.job(name)
	b.done(name)
	j := b.job(name)
	if b.move(j, Failed); refused || crowded {
		j.tried = at.Now
	}
	j.since, j.Queue, j.Pod, j.Together, j.deserved = at.Now, u.Queue, pod, how.Together, Vector{}
	j.deserved.Add(b.own(u.Queue).Deserved, 1)
	j.Title, j.Priority, j.Created, j.Pods = how.Title, u.Priority, before.Created, before.Pods
	j.waitsElsewhere = how.WaitsElsewhere || !at.WaitsForRoom(pod)
	if j.failed = at.Now; before.turn.released {
		j.yieldSuspendedUntil = at.Now.Add(spare) // it did not help
	}
	j.limit.update(b.limitOf(j), at.Now, false)
	j.limit.news = j.limit.news && how.Together // a pod in no gang gets it as it fails
	b.effects.OfferAgain = refused && !how.Together
	return b.take()
}

// PodEnded records that a pod is gone, or has ended.
func (b *Book) PodEnded(pod string, at Moment) Effects {
	if u, known := b.usages[pod]; known {
		b.Uncount(pod)
		delete(b.missed, u.Job) // if it is still there it will be missed again
		j := b.job(u.Job)
		j.tried = time.Time{}
		speaks := j.Pod == pod
		switch {
		case j.phase == Failed && speaks:
			b.replaceSpeaker(j, at)
		case j.phase == Waiting && speaks:
			b.stopWaiting(j, at)
		}
		b.indexTimed(j)
	}
	return b.take()
}

// replaceSpeaker makes another pod that waits speak for a gang that failed, since the one that did is gone. Where there
// is none, or the job is one pod, it is outside then.
func (b *Book) replaceSpeaker(j *job, at Moment) {
	waiting := slices.DeleteFunc(slices.Sorted(maps.Keys(j.counted)), func(pod string) bool { return !at.IsWaiting(pod) })
	if !j.Together || len(waiting) == 0 {
		b.end(j)
		return
	}
	j.Pod = waiting[0]
}

// Tick records that time has passed. It ends turns that led to nothing, the waiting of jobs that have no pod to call,
// or lack members, the patience of jobs, and the waiting for jobs that do not fit; and it retries jobs that failed and
// may fit by now.
func (b *Book) Tick(at Moment) Effects {
	for _, j := range b.timed {
		switch {
		case j.phase == Admitted && at.Now.Sub(j.since) > longestTurn:
			b.abandon(j)
		case j.phase == Admitted && j.Together && j.turn.held == 0 && !b.isComplete(j, at):
			b.abandon(j) // it has lost a member since
		case j.phase == Waiting && !at.IsWaiting(j.Pod):
			b.stopWaiting(j, at)
		case j.phase == Waiting && j.Together && !at.IsComplete(j.Pod):
			b.abandon(j)
		case (j.phase == Failed || j.phase == Waiting) && j.Together && at.WaitsForRoom(j.Pod) == j.waitsElsewhere:
			j.waitsElsewhere = !j.waitsElsewhere
			b.wishes.touch(j)
		}
		if !j.yieldSuspendedUntil.IsZero() && !at.Now.Before(j.yieldSuspendedUntil) {
			if j.yieldSuspendedUntil = (time.Time{}); j.phase == Waiting {
				b.relist(j)
			}
		}
		if !j.tried.IsZero() && at.Now.Sub(j.tried) >= patience {
			if j.tried = (time.Time{}); j.phase == Waiting {
				b.relist(j)
			}
			b.indexTimed(j)
		}
	}
	b.expireReservations(at.Now)
	b.expireEvicted(at.Now)
	b.retry(at)
	b.effects.Freed = b.forgetQueues()
	return b.take()
}

// RetryFirst brings back of each queue the first job in order that is one pod and did not fit.
func (b *Book) RetryFirst(at Moment) Effects {
	first := map[string]*job{}
	for _, j := range b.timed {
		if j.phase != Failed || j.Together || !at.IsWaiting(j.Pod) {
			continue
		}
		if best := first[j.Queue]; best == nil || b.compare(j, best) < 0 {
			first[j.Queue] = j
		}
	}
	for _, j := range first {
		b.effects.BringToGate = append(b.effects.BringToGate, j.Pod)
		b.end(j)
	}
	return b.take()
}

// isComplete reports whether all that must be placed in the turn of a gang is still there. If the pod that speaks for
// it no longer waits, or is in another gang by now, another one of its pods does from now on: what it lacks is known
// only from its own pods.
func (b *Book) isComplete(j *job, at Moment) bool {
	speaks := func(pod string) bool {
		u := b.usages[pod]
		return u.Job == j.Name && u.Gang == j.Gang && at.IsWaiting(pod)
	}
	if !speaks(j.Pod) {
		i := slices.IndexFunc(j.Pods, speaks)
		if i < 0 {
			return false
		}
		j.Pod = j.Pods[i]
	}
	return at.IsComplete(j.Pod)
}

// retry brings back jobs that have failed and may fit or reclaim by now, of which no event of the cluster says so:
// their queue deserves more, limits have changed, or there is more to reclaim.
func (b *Book) retry(at Moment) {
	retryFailed, reclaimable := b.retryFailed, b.reclaimable
	b.retryFailed, b.reclaimable = false, false
	for _, j := range b.timed {
		if j.phase != Failed {
			continue
		}
		waits, grows := at.IsWaiting(j.Pod), retryFailed || reclaimable && b.mayReclaim(j)
		for resource, amount := range b.own(j.Queue).Deserved {
			grows = grows || amount > j.deserved[resource]
			j.deserved[resource] = min(amount, j.deserved[resource])
		}
		if waits && !grows {
			continue
		}
		if waits && j.Together {
			b.effects.Retry = true
			// Another plugin knows whether it is worth a try; until then it has failed.
			maps.Copy(j.deserved, b.own(j.Queue).Deserved)
			continue
		}
		if waits {
			b.effects.BringToGate = append(b.effects.BringToGate, j.Pod)
		}
		b.end(j)
	}
}

// mayReclaim reports whether a job's queue would have no more of contested resources than it deserves with the job's
// representative pod.
func (b *Book) mayReclaim(j *job) bool {
	has, own, u := b.queue(j.Queue).mine, b.own(j.Queue), b.usages[j.Pod]
	return slices.ContainsFunc(append([]Vector{u.Amount}, u.Or...), func(option Vector) bool {
		for name, amount := range option {
			if amount > 0 && own.Contested[name] && has[name]+amount > own.Deserved[name] {
				return false
			}
		}
		return true
	})
}
