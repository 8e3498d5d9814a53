package queueing

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
)

// candidate returns a gang of a queue, made so many seconds after the others.
func candidate(queue string, after int) Job {
	return Job{Name: fmt.Sprint(queue, "-", after), Queue: queue, Priority: 0, Created: start.Add(time.Duration(after) * time.Second)}
}

// TestCandidates: a candidate comes in the order of all jobs, by what queues use now, whatever its limits are.
func TestCandidates(t *testing.T) {
	at := ready
	come := func(b *Book, queue string, after int) {
		j := candidate(queue, after)
		j.Pod, j.Pods, j.Options = j.Name, []string{j.Name}, []Needs{{queue: gpus(1)}}
		b.Count(j.Pod, Usage{Queue: queue, Job: j.Name, Amount: gpus(1)})
		b.Offer(j, at)
	}
	for sentence, c := range map[string]struct {
		prepare func(b *Book)
		which   turns.Selection
		want    string
	}{
		"before a pod of its queue that came later": {func(b *Book) {
			come(b, "a", 2)
			b.AddCandidate(candidate("a", 1))
		}, turns.AllJobs, "a-1"},
		"after one that came before": {func(b *Book) {
			come(b, "a", 1)
			b.AddCandidate(candidate("a", 2))
		}, turns.AllJobs, "a-1"},
		"by what its queue uses when it is asked": {func(b *Book) {
			b.Count("runs", Usage{Queue: "a", Amount: gpus(2), Runs: true})
			come(b, "b", 1)
			b.AddCandidate(candidate("b", 2))
			b.AddCandidate(candidate("a", 3))
			b.Count("also-runs", Usage{Queue: "b", Amount: gpus(3), Runs: true})
		}, turns.AllJobs, "a-3"},
		"not among the jobs that have come to the gate": {func(b *Book) {
			come(b, "a", 2)
			b.AddCandidate(candidate("a", 1))
		}, turns.PolicyJobs, "a-2"},
		"not once it is removed": {func(b *Book) {
			b.AddCandidate(candidate("a", 1))
			b.RemoveCandidate("a-1")
			b.RemoveCandidate("a-1")
		}, turns.AllJobs, ""},
		"by name where they came in one second": {func(b *Book) {
			for _, name := range []string{"a-3", "a-1", "a-2"} {
				one := candidate("a", 1)
				one.Name = name
				b.AddCandidate(one)
			}
		}, turns.AllJobs, "a-1"},
		"as it is said last": {func(b *Book) {
			b.AddCandidate(candidate("a", 1))
			moved := candidate("b", 2)
			moved.Name = "a-1"
			b.AddCandidate(moved)
			b.AddCandidate(candidate("b", 1))
		}, turns.AllJobs, "b-1"},
		"though its queue is at its ceiling": {func(b *Book) {
			b.SetQueues(Queue{Name: "a", Weight: 1, Capability: gpus(0)})
			b.AddCandidate(candidate("a", 1))
		}, turns.AllJobs, "a-1"},
		"first of all where its queue lets nobody in": {func(b *Book) {
			come(b, "a", 1)
			b.AddCandidate(candidate("nowhere", 9))
		}, turns.AllJobs, "nowhere-9"},
		"first of all if it has begun": {func(b *Book) {
			come(b, "a", 1)
			begun := candidate("b", 9)
			begun.Begun = true
			b.AddCandidate(begun)
		}, turns.AllJobs, "b-9"},
		"alone where the window is full": {func(b *Book) {
			b.limits = Limits{Window: 1}
			come(b, "a", 1)
			b.Admit("a-1", at)
			come(b, "a", 2)
			b.AddCandidate(candidate("a", 3))
		}, turns.AllJobs, "a-3"},
	} {
		b := newBook(Policies{QueueOrder: []config.PolicyName{config.PolicyProportion}})
		b.SetTotal(gpus(8))
		b.limits = Limits{Window: 9}
		b.SetQueues(Queue{Name: "a", Weight: 1}, Queue{Name: "b", Weight: 1})
		c.prepare(b)
		if first, ok, _ := b.First(at, c.which); first.Name != c.want || ok != (c.want != "") {
			t.Errorf("%s: %q is first, want %q", sentence, first.Name, c.want)
		}
		for _, name := range []string{"a-1", "a-2", "a-3", "b-1", "b-2", "b-9", "nowhere-9"} {
			b.RemoveCandidate(name)
		}
		b.forgetQueues()
		if left := len(b.candidates) + len(b.urgent); left > 0 || b.queues["nowhere"] != nil {
			t.Errorf("%s: %d candidates are left", sentence, left)
		}
	}
}

// TestFirstOfAll: whatever candidates come and go, and whatever queues use, the first is what a search of all finds.
func TestFirstOfAll(t *testing.T) {
	at := ready
	random := rand.New(rand.NewPCG(3, 5))
	for range 200 {
		b := newBook(Policies{QueueOrder: []config.PolicyName{config.PolicyProportion}, JobOrder: []config.PolicyName{config.PolicyPriority, config.PolicyDRF}})
		b.SetTotal(gpus(64))
		b.limits = Limits{Window: 9}
		queues := []string{"a", "b", "c"}
		for i, name := range queues {
			b.SetQueues(Queue{Name: name, Weight: int64(i + 1)})
		}
		known := map[string]Job{}
		for step := range 60 {
			j := candidate(queues[random.IntN(3)], random.IntN(12))
			j.Gang, j.Priority = "group of "+j.Name, int32(random.IntN(2))
			switch random.IntN(4) {
			case 0:
				b.RemoveCandidate(j.Name)
				delete(known, j.Name)
			case 1: // a part of it runs, or not any more
				b.Count("runs "+j.Name, Usage{Queue: j.Queue, Gang: j.Gang, Amount: gpus(random.Int64N(4)), Runs: true})
			default:
				b.AddCandidate(j)
				known[j.Name] = j
			}
			var want Job
			for _, one := range known {
				if want.Name == "" || b.compare(b.candidates[one.Name], b.candidates[want.Name]) < 0 {
					want = one
				}
			}
			if first, _, _ := b.First(at, turns.AllJobs); first.Name != want.Name {
				t.Fatalf("step %d: %q is first, want %q", step, first.Name, want.Name)
			}
		}
	}
}
