package queueing

import (
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/share"
	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
)

// TestPolicies: FairShare derives the same policies from tiers, see its TestPoliciesOf.
func TestPolicies(t *testing.T) {
	const (
		priority, gang, drf, proportion, capacity = config.PolicyPriority, config.PolicyGang, config.PolicyDRF, config.PolicyProportion, config.PolicyCapacity
	)
	type list = []config.PolicyName
	byPriority := Policies{QueueOrder: list{priority}, JobOrder: list{priority, priority}, Preempt: Lower}
	high := func(j Job) Job { j.Priority = 10; return j }
	ready := func(j Job, group string) Job { j.Ready, j.Gang = true, group; return j }
	runs := func(queue, group string, n int64) Usage {
		return Usage{Queue: queue, Gang: group, Amount: gpus(n), Runs: true}
	}
	waits := func(queue string, n int64) Usage { return Usage{Queue: queue, Amount: gpus(n)} }
	two := []Queue{{Name: "a", Deserved: gpus(6), Guarantee: gpus(1)}, {Name: "b", Weight: 3, Priority: 1}}
	for sentence, c := range map[string]struct {
		policies Policies
		queues   []Queue
		count    map[string]Usage
		jobs     []Job
		want     string
	}{
		"none: jobs by age, queues by name, and no shares": {
			queues: two, count: map[string]Usage{"1": runs("a", "", 8), "2": waits("b", 9)},
			jobs: []Job{of("b", 1, gpus(1)), high(of("b", 2, gpus(1))), of("a", 3, gpus(1))}, want: "a-3 b-1 b-2",
		},
		"priority, of queues and of jobs": {
			policies: byPriority, queues: two,
			jobs: []Job{of("b", 1, gpus(1)), high(of("b", 2, gpus(1))), of("a", 3, gpus(1))}, want: "b-2 b-1 a-3",
		},
		"priority that only orders jobs": {
			policies: Policies{JobOrder: list{priority}}, queues: two,
			jobs: []Job{of("b", 1, gpus(1)), high(of("b", 2, gpus(1))), of("a", 3, gpus(1))}, want: "a-3 b-2 b-1",
		},
		"priority of branches, not of leaves": {
			policies: byPriority, queues: []Queue{{Name: "a"}, {Name: "a1", Parent: "a", Priority: 5}, {Name: "b", Priority: 1}},
			jobs: []Job{of("a1", 1, gpus(1)), of("b", 2, gpus(1))}, want: "b-2 a1-1",
		},
		"gang before priority": {
			policies: Policies{QueueOrder: list{priority}, JobOrder: list{gang, priority, priority}, Preempt: Anything}, jobs: []Job{ready(high(of("default", 1, gpus(1))), "g"), of("default", 2, gpus(1))}, want: "default-2 default-1",
		},
		"priority before gang": {
			policies: Policies{QueueOrder: list{priority}, JobOrder: list{priority, gang, priority}, Preempt: Anything}, jobs: []Job{ready(high(of("default", 1, gpus(1))), "g"), of("default", 2, gpus(1))}, want: "default-1 default-2",
		},
		"drf before priority": {
			policies: Policies{QueueOrder: list{priority}, JobOrder: list{drf, priority, priority}, Preempt: Lower}, count: map[string]Usage{"1": runs("default", "g", 2), "2": runs("default", "h", 1)},
			jobs: []Job{ready(high(of("default", 1, gpus(1))), "g"), ready(of("default", 2, gpus(1)), "h"), of("default", 3, gpus(1))}, want: "default-3 default-2 default-1",
		},
		"proportion: by weight, whatever is stated": {
			policies: Policies{QueueOrder: list{proportion}, Overused: list{proportion}, Rules: share.Rules{Weighted: true}, Reclaim: true}, queues: two, count: map[string]Usage{"1": runs("a", "", 2), "2": runs("b", "", 5), "3": waits("a", 9), "4": waits("b", 9)},
			jobs: []Job{of("a", 1, gpus(1)), of("b", 2, gpus(1)), of("b", 3, gpus(1))}, want: "b-2", // 2 and 6 of 8
		},
		"capacity: what is stated, and what is guaranteed where nothing is": {
			policies: Policies{QueueOrder: list{capacity}, Overused: list{capacity}, Rules: share.Rules{Stated: true}, Reclaim: true}, queues: two, count: map[string]Usage{"1": runs("a", "", 5), "2": runs("b", "", 1), "3": waits("a", 9), "4": waits("b", 9)},
			jobs: []Job{of("a", 1, gpus(1)), of("a", 2, gpus(1)), of("b", 3, gpus(1)), of("b", 4, gpus(1))}, want: "a-1 b-3", // 6 and 0, and one is lent
		},
		"capacity and proportion: what is stated, and the rest by weight": {
			policies: Policies{QueueOrder: list{capacity, proportion}, Overused: list{capacity, proportion}, Rules: share.Rules{Stated: true, Weighted: true}, Reclaim: true}, queues: two, count: map[string]Usage{"1": runs("a", "", 5), "3": waits("a", 9), "4": waits("b", 9)},
			jobs: []Job{of("a", 1, gpus(1)), of("a", 2, gpus(1)), of("b", 3, gpus(1)), of("b", 4, gpus(1)), of("b", 5, gpus(1))}, want: "b-3 b-4 a-1", // 6 and 2
		},
		"no pod of its queue makes way for a member beyond a minimum": {
			policies: Policies{QueueOrder: list{proportion, priority}, JobOrder: list{priority}, Overused: list{proportion}, Rules: share.Rules{Weighted: true}, Preempt: Lower, Reclaim: true}, queues: []Queue{{Name: "a"}, {Name: "b"}},
			count: map[string]Usage{"1": runs("a", "g", 4), "2": waits("a", 9), "3": runs("b", "", 4), "4": waits("b", 9)}, jobs: []Job{ready(high(of("a", 1, gpus(1))), "h"), high(of("b", 2, gpus(1)))}, want: "b-2",
		},
		"of queues that rank alike first the one that stays inside its share": {
			policies: Policies{QueueOrder: list{capacity, proportion}, Overused: list{capacity, proportion}, Rules: share.Rules{Stated: true, Weighted: true}, Reclaim: true},
			queues:   []Queue{{Name: "a", Deserved: gpus(4)}, {Name: "b", Deserved: gpus(4)}}, count: map[string]Usage{"1": runs("a", "", 2), "2": runs("b", "", 2), "3": waits("a", 4), "4": waits("b", 2)},
			jobs: []Job{of("a", 1, gpus(4)), of("b", 2, gpus(2))}, want: "b-2 a-1",
		},
		"likewise of branches": {
			policies: Policies{QueueOrder: list{capacity, proportion}, Overused: list{capacity, proportion}, Rules: share.Rules{Stated: true, Weighted: true}, Reclaim: true},
			queues:   []Queue{{Name: "a", Deserved: gpus(4)}, {Name: "a1", Parent: "a", Deserved: gpus(8)}, {Name: "b", Deserved: gpus(4)}, {Name: "b1", Parent: "b"}},
			count:    map[string]Usage{"1": runs("a1", "", 2), "2": runs("b1", "", 2), "3": waits("a1", 4), "4": waits("b1", 2)},
			jobs:     []Job{of("a1", 1, gpus(4)), of("b1", 2, gpus(2))}, want: "b1-2 a1-1",
		},
		"not before a queue that is served less": {
			policies: Policies{QueueOrder: list{capacity, proportion}, Overused: list{capacity, proportion}, Rules: share.Rules{Stated: true, Weighted: true}, Reclaim: true},
			queues:   []Queue{{Name: "a", Deserved: gpus(4)}, {Name: "b", Deserved: gpus(4)}}, count: map[string]Usage{"1": runs("a", "", 1), "2": runs("b", "", 2), "3": waits("a", 4), "4": waits("b", 2)},
			jobs: []Job{of("a", 1, gpus(4)), of("b", 2, gpus(2))}, want: "a-1 b-2",
		},
		"overused is for who answers it": {
			policies: Policies{QueueOrder: list{proportion}, Rules: share.Rules{Weighted: true}},
			queues:   []Queue{{Name: "a"}, {Name: "b"}}, count: map[string]Usage{"1": runs("a", "", 8), "2": waits("b", 8)}, jobs: []Job{of("a", 1, gpus(1))}, want: "a-1",
		},
		"with drf anybody may make way": {
			policies: Policies{QueueOrder: list{proportion, priority}, JobOrder: list{priority, drf, priority}, Overused: list{proportion}, Rules: share.Rules{Weighted: true}, Preempt: Anything, Reclaim: true}, queues: []Queue{{Name: "a"}, {Name: "b"}},
			count: map[string]Usage{"1": runs("a", "g", 4), "2": waits("a", 9), "3": runs("b", "", 4), "4": waits("b", 9)}, jobs: []Job{of("a", 1, gpus(1))}, want: "a-1",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			b := newBook(c.policies)
			b.SetTotal(gpus(8))
			for _, q := range c.queues {
				q.Weight = max(q.Weight, 1)
				b.SetQueues(q)
			}
			for name, u := range c.count {
				b.Count(name, u)
			}
			for _, j := range c.jobs {
				b.wait(j)
			}
			if diff := gocmp.Diff(c.want, turnsOf(b)); diff != "" {
				t.Errorf("turns (-want +got):\n%s", diff)
			}
		})
	}
}

// TestQueuePriorities: by their queues' priorities alone jobs come before others where the branches of these part; not
// by names, shares, or what they are themselves.
func TestQueuePriorities(t *testing.T) {
	build := func(policies Policies) *Book {
		b := newBook(policies)
		b.SetTotal(gpus(8))
		for _, q := range []Queue{{Name: "a"}, {Name: "a1", Parent: "a", Priority: 9}, {Name: "b", Priority: 1}, {Name: "c", Priority: 1}} {
			q.Weight = 1
			b.SetQueues(q)
		}
		b.Count("1", Usage{Queue: "b", Amount: gpus(8), Runs: true})
		for _, j := range []Job{of("a1", 1, gpus(1)), of("b", 2, gpus(1)), of("b", 3, gpus(1)), of("c", 4, gpus(1))} {
			b.wait(j)
		}
		return b
	}
	b := build(Policies{QueueOrder: []config.PolicyName{config.PolicyProportion, config.PolicyPriority}})
	for pair, want := range map[[2]string]int{
		{"b-2", "a1-1"}: -1, {"a1-1", "c-4"}: 1, {"b-2", "b-3"}: 0, {"b-2", "c-4"}: 0, {"b-2", "unknown"}: 0, {"unknown", "b-2"}: 0,
	} {
		if got := b.CompareQueuePriorities(pair[0], pair[1]); got != want {
			t.Errorf("%v: %d, want %d", pair, got, want)
		}
	}
	if got := build(Policies{}).CompareQueuePriorities("b-2", "a1-1"); got != 0 {
		t.Errorf("where priorities of queues do not count: %d, want 0", got)
	}
}

// TestLate: of the jobs that were not looked at for too long the one that waits longest has its turn, unless a limit
// keeps it.
func TestLate(t *testing.T) {
	b := newBook(Policies{QueueOrder: []config.PolicyName{config.PolicyPriority}})
	b.SetTotal(gpus(8))
	b.limits = Limits{Window: 1}
	b.SetQueues(Queue{Name: "urgent", Weight: 1, Priority: 9}, Queue{Name: "low", Weight: 1, Capability: gpus(1)}, Queue{Name: "full", Weight: 1, Capability: gpus(0)})
	at := ready
	come := func(queue string, n int) {
		j := of(queue, n, gpus(1))
		j.Pod, j.Pods = j.Name, []string{j.Name}
		b.Count(j.Pod, Usage{Queue: queue, Job: j.Name, Amount: gpus(1)})
		b.Offer(j, at)
	}
	late := func(want string) {
		t.Helper()
		if j, ok, _ := b.First(at, turns.OverdueJobs); ok != (want != "") || j.Name != want {
			t.Errorf("%q has waited for too long, want %q", j.Name, want)
		}
	}
	come("full", 1)
	come("low", 2)
	at.Now = at.Now.Add(500 * time.Millisecond)
	come("urgent", 3)
	late("")
	at.Now = at.Now.Add(500 * time.Millisecond)
	late("low-2")
	if j, _, _ := b.First(at, turns.PolicyJobs); j.Name != "urgent-3" {
		t.Errorf("%q is first in order", j.Name)
	}
	b.Admit("low-2", at)
	b.Fail("low-2", Failure{}, at)
	come("low", 2)
	at.Now = at.Now.Add(30 * time.Second)
	late("urgent-3")
	b.Admit("urgent-3", at)
	b.done("urgent-3")
	late("")
	at.Now = at.Now.Add(30 * time.Second)
	late("low-2")
	b.Count("runs", Usage{Queue: "low", Runs: true, Amount: gpus(1)})
	late("")
	b.PodEnded("runs", at)
	late("") // its minute begins anew
	at.Now = at.Now.Add(time.Minute)
	late("low-2")
	come("urgent", 9) // as long as low-2 by then, and its queue comes first
	b.jobs["urgent-9"].since = b.jobs["low-2"].since
	b.jobs["urgent-9"].failed = b.jobs["low-2"].failed
	late("urgent-9")
}

// TestFirstCome: of jobs that were made in one second the first to come comes first, also when it comes again.
func TestFirstCome(t *testing.T) {
	b := opened(Limits{}, 8)
	for _, name := range []string{"z", "a", "m"} {
		j := Job{Name: name, Queue: "default", Pod: name, Pods: []string{name}, Created: time.Unix(1, 0), Options: []Needs{{"default": gpus(1)}}}
		b.Count(name, Usage{Queue: "default", Job: name, Amount: gpus(1)})
		b.wait(j)
	}
	at := ready
	again := b.jobs["z"].Job
	b.Fail("z", Failure{}, at)
	b.Offer(again, at)
	if got := turnsOf(b); got != "z a m" {
		t.Errorf("turns %q, want z a m", got)
	}
}
