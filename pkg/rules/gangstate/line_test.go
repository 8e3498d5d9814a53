package gangstate

import (
	"time"

	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
)

// waitingLine is where the groups of a Gangs wait for their turns.
type waitingLine struct {
	*turns.Line
	s         *Gangs
	elsewhere elsewhere
}

func newLine(s *Gangs) *waitingLine {
	r := &waitingLine{s: s}
	r.Line = turns.New(noQueues{}, &r.elsewhere)
	return r
}

// noQueues is the policy where no job is in a queue.
type noQueues struct{}

func (noQueues) AddCandidate(turns.Job)                  {}
func (noQueues) RemoveCandidate(string)                  {}
func (noQueues) First(turns.Selection) (turns.Job, bool) { return turns.Job{}, false }

// note takes in what effects say of groups.
func (r *waitingLine) note(e Effects, now time.Time) {
	for _, missed := range e.Missed {
		o := missed.AttemptFailure
		if missed.RoomFor != "" {
			o.Holder = hold.Holder{Group: missed.RoomFor}
		}
		r.Fail(r.job(missed.Group), o, now)
	}
	for key := range e.Changed {
		group := key.String()
		switch t, waits := r.s.Turn(group); {
		case !waits:
			r.Withdraw(group)
		case !t.Has:
			r.Offer(r.job(group), now)
		}
	}
}

func (r *waitingLine) job(group string) turns.Job {
	t, _ := r.s.Turn(group)
	t.Job.Name, t.Job.Holder = group, hold.Holder{Group: group}
	return t.Job
}

// next gives the next group its turn; false if it is no one's.
func (r *waitingLine) next(now time.Time) (Effects, bool) {
	job, _, ok, _ := r.Next(now, true)
	if !ok {
		return Effects{}, false
	}
	leader, e := r.s.Lead(job.Name, now)
	if leader == nil {
		r.Withdraw(job.Name)
	}
	return e, true
}

// elsewhere are the groups for which room is being made, or is kept.
type elsewhere struct{ making, promised map[string]bool }

func (e elsewhere) Making(holder hold.Holder) bool   { return e.makes(holder.Group) }
func (e elsewhere) Promised(holder hold.Holder) bool { return e.promised[holder.Group] }
func (e elsewhere) makes(group string) bool          { return e.making[group] }
