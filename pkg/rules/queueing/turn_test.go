package queueing

import (
	"maps"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
)

// wait makes a job wait. One that names no pods has those that are counted in it and not placed, if they ask for what
// it needs; or else it gets some that do, and count in no share.
func (b *Book) wait(j Job) {
	if known := b.jobs[j.Name]; known != nil && len(j.Pods) == 0 {
		var asked []Usage
		for pod := range known.counted {
			if u := b.usages[pod]; !u.placed() {
				j.Pods, asked = append(j.Pods, pod), append(asked, u)
			}
		}
		if !cmp.Equal(Options(asked)[0], j.Options[0]) {
			j.Pods = nil
		}
	}
	if len(j.Pods) == 0 {
		for _, queue := range slices.Sorted(maps.Keys(j.Options[0])) {
			pod, u := "pod of "+j.Name+" in "+queue, Usage{Queue: queue, Job: j.Name, Gang: j.Gang, Priority: j.Priority, Amount: j.Options[0][queue], Demand: Hopeless}
			for _, other := range j.Options[1:] {
				u.Or = append(u.Or, other[queue])
			}
			b.Count(pod, u)
			j.Pods = append(j.Pods, pod)
		}
	}
	b.offer(j)
}

// giveTurns gives turns as long as there are any, as a caller does that lets several in at once, and adds the pods that
// are called to the effects of an input; except is a job whose pod is on its way.
func (b *Book) giveTurns(at Moment, except string, e Effects) called {
	c := called{Call: e.BringToGate, Again: e.OfferAgain, Retry: e.Retry, Freed: e.Freed}
	for {
		next, ok, more := b.First(at, turns.PolicyJobs)
		c.Call = append(c.Call, more.BringToGate...)
		if !ok {
			return c
		}
		admitted, _ := b.Admit(next.Name, at)
		c.Began = append(c.Began, began{admitted.Queue, admitted.Waited})
		if next.Name != except {
			c.Call = append(c.Call, admitted.Pod)
		}
	}
}

// called is the effects of an input, and the turns that began then.
type called struct {
	Call         []string
	Began        []began
	Again, Retry bool
	Freed        []string
}

// began is how long a job of a queue waited for its turn.
type began struct {
	Queue  string
	Waited time.Duration
}

func yes(string) bool { return true }

var start = time.Unix(1000, 0)

// ready is a moment at which all is read, every gang is whole, and all pods wait for room.
var ready = Moment{Now: start, Synced: true, IsWaiting: yes, WaitsForRoom: yes, IsComplete: yes}

// opened returns a book with limits, so many GPUs, and queues.
func opened(limits Limits, total int64, queues ...Queue) *Book {
	b := newBook(tier)
	b.limits = limits
	if total > 0 {
		b.SetTotal(gpus(total))
	}
	for _, q := range queues {
		q.Weight = max(q.Weight, 1)
		b.SetQueues(q)
	}
	return b
}

// comes makes a gang of one pod, which asks for some GPUs, come to the gate.
func comes(b *Book, queue string, i int, n int64, at Moment) string {
	j := of(queue, i, gpus(n))
	j.Pod, j.Pods, j.Together = j.Name, []string{j.Name}, true
	b.Count(j.Name, Usage{Queue: queue, Job: j.Name, Amount: gpus(n)})
	b.Come(j, at)
	return j.Name
}

// fails makes such a gang come, and fail.
func fails(b *Book, queue string, i int, n int64, at Moment) string {
	name := comes(b, queue, i, n, at)
	b.failNow(name, Failure{Job: name, Together: true}, at)
	return name
}

func (b *Book) Look(at Moment) called { return b.giveTurns(at, "", Effects{}) }

func (b *Book) Come(offered Job, at Moment) called {
	b.Offer(offered, at)
	return b.giveTurns(at, offered.Name, b.take())
}

func (b *Book) failNow(pod string, how Failure, at Moment) called {
	return b.giveTurns(at, "", b.Fail(pod, how, at))
}
func (b *Book) goneNow(pod string, at Moment) called { return b.giveTurns(at, "", b.PodEnded(pod, at)) }
func (b *Book) tickNow(at Moment) called             { return b.giveTurns(at, "", b.Tick(at)) }

// admitNext gives the next job its turn, and returns it; false if there is none.
func (b *Book) admitNext() (Job, bool) {
	next := b.next(selection{begun: true, others: true})
	if next == nil {
		return Job{}, false
	}
	b.Admit(next.Name, Moment{})
	return next.Job, true
}
