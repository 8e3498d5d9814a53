package queueing

import (
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
)

// inPool returns an amount of GPUs in a pool.
func inPool(pool string, n int64) Vector { return gpus(n).In(pool) }

// TestOptions: a job that may use several pools has its turn with the first that its queue has room in, and
// only that one counts as used.
func TestOptions(t *testing.T) {
	either := func(queue string, n int, need int64) Job {
		j := of(queue, n, inPool("x", need))
		j.Options = append(j.Options, Needs{queue: inPool("y", need)})
		return j
	}
	both := Vector{}
	both.Add(inPool("x", 4), 1)
	both.Add(inPool("y", 4), 1)
	waits := func(queue string, n int64) Usage {
		return Usage{Queue: queue, Amount: inPool("x", n), Or: []Vector{inPool("y", n)}}
	}
	for sentence, c := range map[string]struct {
		queues []Queue
		count  map[string]Usage
		jobs   []Job
		want   string
		used   Vector
		why    map[string]string
	}{
		"the first with room": {
			queues: []Queue{{Name: "a"}}, count: map[string]Usage{"1": waits("a", 2)}, jobs: []Job{either("a", 1, 2)}, want: "a-1", used: inPool("x", 2),
		},
		"the next where its queue has its share of the first": {
			queues: []Queue{{Name: "a"}, {Name: "b"}},
			count:  map[string]Usage{"0": {Queue: "a", Amount: inPool("x", 2), Runs: true}, "1": waits("a", 2), "2": {Queue: "b", Amount: inPool("x", 4)}},
			jobs:   []Job{either("a", 1, 2)}, want: "a-1", used: Vector{"nvidia.com/gpu@x": 2, "nvidia.com/gpu@y": 2},
		},
		"the next where the first is at its ceiling": {
			queues: []Queue{{Name: "a", Capability: inPool("x", 1)}}, count: map[string]Usage{"1": waits("a", 2)}, jobs: []Job{either("a", 1, 2)}, want: "a-1", used: inPool("y", 2),
		},
		"as many as there is room for in both": {
			queues: []Queue{{Name: "a", Capability: both}}, count: map[string]Usage{"1": waits("a", 12)},
			jobs: []Job{either("a", 1, 3), either("a", 2, 3), either("a", 3, 3), either("a", 4, 1)}, want: "a-1 a-2 a-4", used: Vector{"nvidia.com/gpu@x": 4, "nvidia.com/gpu@y": 3},
			why: map[string]string{"a-3": `queue "a" would exceed its capability of 4 nvidia.com/gpu in pool x: 4 nvidia.com/gpu in pool x used, 3 nvidia.com/gpu in pool x asked for`},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			b := newBook(tier)
			b.SetTotal(both)
			for _, q := range c.queues {
				q.Weight = 1
				b.SetQueues(q)
			}
			for id, u := range c.count {
				b.Count(id, u)
			}
			for _, j := range c.jobs {
				b.wait(j)
			}
			if got := turnsOf(b); got != c.want {
				t.Errorf("turns %q, want %q", got, c.want)
			}
			got := Vector{}
			for name, amount := range b.queues["a"].used {
				if amount != 0 {
					got[name] = amount
				}
			}
			if diff := gocmp.Diff(c.used, got); diff != "" {
				t.Errorf("used (-want +got):\n%s", diff)
			}
			for name, want := range c.why {
				if got := b.Why(name, true).Message; got != want {
					t.Errorf("%s waits: %q, want %q", name, got, want)
				}
			}
		})
	}
}

// TestChoices: an admitted job goes where there is room as things are, and is charged there.
func TestChoices(t *testing.T) {
	b := newBook(tier)
	b.SetTotal(Vector{"nvidia.com/gpu@x": 9, "nvidia.com/gpu@y": 9})
	b.SetQueues(Queue{Name: "a", Weight: 1, Capability: Vector{"nvidia.com/gpu@x": 4, "nvidia.com/gpu@y": 4}})
	j := of("a", 1, inPool("x", 3))
	j.Options = append(j.Options, Needs{"a": inPool("y", 3)})
	b.Count("pod", Usage{Queue: "a", Job: j.Name, Amount: inPool("x", 3), Or: []Vector{inPool("y", 3)}})
	b.wait(j)
	if got := turnsOf(b); got != "a-1" {
		t.Fatalf("turns %q", got)
	}
	step := func(sentence string, want []int, used Vector) {
		t.Helper()
		var got []int
		_, choices := b.Choices("a-1")
		for _, choice := range choices {
			got = append(got, choice.At)
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", sentence, diff)
		}
		for name, amount := range used {
			if got := b.queues["a"].used[name]; got != amount {
				t.Errorf("%s: %d of %s used, want %d", sentence, got, name, amount)
			}
		}
	}
	step("room in both", []int{0, 1}, Vector{"nvidia.com/gpu@x": 3, "nvidia.com/gpu@y": 0})
	b.Count("other", Usage{Queue: "a", Amount: inPool("x", 2), Runs: true})
	step("another came to the first", []int{1}, Vector{"nvidia.com/gpu@x": 2, "nvidia.com/gpu@y": 3})
	b.Uncount("other")
	step("it stays where it is charged", []int{1, 0}, Vector{"nvidia.com/gpu@x": 0, "nvidia.com/gpu@y": 3})
	b.Count("pod", Usage{Queue: "a", Job: j.Name, Amount: inPool("x", 3), Runs: true})
	if b.Phase("a-1") == Admitted || b.queues["a"].used["nvidia.com/gpu@y"] != 0 {
		t.Error("it was placed in the first, and its turn goes on")
	}
}

// TestCeilingsOfAll: a job of which parts may be placed one by one is let in if a part fits. Pods are evicted for it
// only if its queue then keeps its ceiling with all of it, in one of the pools.
func TestCeilingsOfAll(t *testing.T) {
	b := newBook(tier)
	b.SetTotal(Vector{"nvidia.com/gpu@x": 9, "nvidia.com/gpu@y": 9})
	b.SetQueues(Queue{Name: "a", Weight: 1, Capability: Vector{"nvidia.com/gpu@x": 2, "nvidia.com/gpu@y": 6}})
	j := of("a", 1, inPool("x", 4))
	j.Options = append(j.Options, Needs{"a": inPool("y", 4)})
	whole := j
	j.Parts = []Needs{{"a": inPool("x", 1)}, {"a": inPool("y", 1)}}
	b.Count("other", Usage{Queue: "a", Amount: inPool("y", 3), Runs: true})
	exceeded, choices := b.Ceilings(j)
	if exceeded != nil || len(choices) != 2 {
		t.Fatalf("a part fits in %d pools, and exceeds %v", len(choices), exceeded)
	}
	type judged struct{ Now, WithOneGone bool }
	judge := func(job Job) (got []judged) {
		for _, ceilings := range b.CeilingsOfAll(job, choices) {
			_, now := Exceeds(ceilings)
			for i := range ceilings {
				ceilings[i].Freed = 1
			}
			_, then := Exceeds(ceilings)
			got = append(got, judged{now, then})
		}
		return got
	}
	want := []judged{{true, true}, {true, false}}
	if diff := gocmp.Diff(want, judge(j)); diff != "" {
		t.Errorf("all of it exceeds a ceiling, by pool (-want +got):\n%s", diff)
	}
	if got := judge(whole); got != nil {
		t.Errorf("of a job that is placed as a whole: %v", got)
	}
	b.Count("pod", Usage{Queue: "a", Job: j.Name, Amount: inPool("x", 4), Or: []Vector{inPool("y", 4)}})
	b.wait(j)
	if got := turnsOf(b); got != j.Name {
		t.Fatalf("turns %q", got)
	}
	_, choices = b.Choices(j.Name)
	if diff := gocmp.Diff(want, judge(Job{Name: j.Name})); diff != "" {
		t.Errorf("in its turn, by pool (-want +got):\n%s", diff)
	}
}

// TestBoundsOfAFullQueue: where not even a part of a job fits, room has to be made for all of it.
func TestBoundsOfAFullQueue(t *testing.T) {
	b := opened(Limits{}, 9, Queue{Name: "a", Capability: gpus(6)})
	b.Count("other", Usage{Queue: "a", Amount: gpus(6), Runs: true})
	j := of("a", 1, gpus(4))
	j.Parts = []Needs{{"a": gpus(1)}}
	exceeded, _ := b.Ceilings(j)
	if len(exceeded) != 1 || exceeded[0].Need != 4 || exceeded[0].Exceeded(4) || !exceeded[0].Exceeded(3) {
		t.Errorf("bounds %+v, want room for 4", exceeded)
	}
}

// TestHeld: what is held for a member counts as used by its queue until it is given back, and once.
func TestHeld(t *testing.T) {
	b := opened(Limits{}, 20, Queue{Name: "a", Weight: 1, Capability: gpus(8)})
	pods := []string{"1", "2", "3", "4"}
	count := func(pod string, held, runs bool) {
		b.Count(pod, Usage{Queue: "a", Job: "a-1", Amount: gpus(2), Held: held, Runs: runs})
	}
	for _, pod := range pods {
		count(pod, false, false)
	}
	b.wait(of("a", 1, gpus(8)))
	if got := turnsOf(b); got != "a-1" {
		t.Fatalf("turns %q", got)
	}
	used := func(sentence string, want int64) {
		t.Helper()
		if got := b.queues["a"].used[gpu]; got != want {
			t.Errorf("%s: %d used, want %d", sentence, got, want)
		}
	}
	used("it is admitted", 8)
	count("1", true, false)
	count("2", true, false)
	used("part of it is held", 8)
	count("2", false, false)
	used("and part of that given back in its turn", 8)
	b.done("a-1")
	used("its turn ends, and what is held stays", 2)
	b.wait(of("a", 2, gpus(7)))
	if why := b.Why("a-2", true).Message; !strings.HasSuffix(why, "2 nvidia.com/gpu used, 7 nvidia.com/gpu asked for") {
		t.Errorf("another waits: %q", why)
	}
	b.done("a-2")
	b.wait(of("a", 1, gpus(6)))
	if got := turnsOf(b); got != "a-1" {
		t.Fatalf("turns %q", got)
	}
	for _, pod := range pods {
		count(pod, true, false)
	}
	used("all is held", 8)
	if b.Phase("a-1") != Admitted {
		t.Error("its turn ends before any of it runs")
	}
	for _, pod := range pods {
		count(pod, false, true)
	}
	used("all of it runs", 8)
	if b.Phase("a-1") == Admitted {
		t.Error("its turn goes on")
	}
}

// TestBegun: a job of which part is bound has its turn at once, whatever keeps others waiting, and counts in full.
func TestBegun(t *testing.T) {
	for sentence, q := range map[string]Queue{
		"its queue is at its ceiling": {Name: "a", Capability: gpus(3)},
		"its queue is closed":         {Name: "a", Closed: true},
		"its queue is not there":      {Name: "other"},
		"its queue has its share":     {Name: "a"},
	} {
		t.Run(sentence, func(t *testing.T) {
			b := opened(Limits{}, 6)
			q.Weight = 1
			b.SetQueues(q)
			b.SetQueues(Queue{Name: "b", Weight: 1, Priority: 9})
			b.Count("runs", Usage{Queue: "a", Gang: "g", Amount: gpus(3), Runs: true})
			b.Count("waits", Usage{Queue: "b", Amount: gpus(6)})
			b.wait(of("b", 1, gpus(1)))
			j := of("a", 2, gpus(3))
			j.Gang, j.Begun = "g", true
			b.wait(j)
			if len(b.urgent) == 0 || len(b.Jobs(Waiting)) != 2 {
				t.Error("it is not known to be urgent")
			}
			first, ok := b.admitNext()
			if !ok || first.Name != "a-2" || len(b.urgent) > 0 {
				t.Errorf("%q comes first", first.Name)
			}
			if got := b.queues["a"].used[gpu]; got != 6 {
				t.Errorf("%d used, want 6", got)
			}
			if got, _ := b.Choices("a-2"); got != nil {
				t.Errorf("others have to make way for it: %v", got)
			}
			if over, _ := b.Ceilings(j); over != nil {
				t.Errorf("it is kept by %v", over)
			}
		})
	}
}

// TestFreed: looking at a queue does not make it, and one that is not described is gone once nothing is in
// it.
func TestFreed(t *testing.T) {
	b := newBook(tier)
	look := func() {
		b.Path("typo")
		b.own("typo")
		b.Ceilings(of("typo", 1, gpus(1)))
		b.Why("typo-1", true)
		b.RemoveQueue("typo")
		b.Standings()
	}
	look()
	if len(b.queues) != 1 || len(b.forgetQueues()) > 0 {
		t.Errorf("%d queues after a look, want the default one", len(b.queues))
	}
	b.Count("pod", Usage{Queue: "typo", Amount: gpus(1)})
	b.wait(of("typo", 1, gpus(1)))
	b.Count("pod", Usage{Queue: "other", Amount: gpus(1)})
	look()
	if waiting := b.Jobs(Waiting); len(waiting) != 1 || waiting[0].Queue != "typo" {
		t.Errorf("%v wait, want one in a queue that is not there", waiting)
	}
	b.done("typo-1")
	b.Uncount("pod of typo-1 in typo")
	if diff := gocmp.Diff([]string{"typo"}, b.forgetQueues()); diff != "" {
		t.Errorf("freed (-want +got):\n%s", diff)
	}
	b.Uncount("pod")
	b.SetQueues(Queue{Name: "late", Weight: 1})
	b.wait(Job{Name: "j", Queue: "late", Created: time.Unix(1, 0), Options: []Needs{{"late": gpus(1), "more": gpus(1)}}})
	b.RemoveQueue("late")
	if diff := gocmp.Diff([]string{"other"}, b.forgetQueues()); diff != "" {
		t.Errorf("freed (-want +got):\n%s", diff)
	}
	b.done("j")
	b.Uncount("pod of j in late")
	b.Uncount("pod of j in more")
	if diff := gocmp.Diff([]string{"late", "more"}, b.forgetQueues()); diff != "" {
		t.Errorf("freed (-want +got):\n%s", diff)
	}
	if len(b.queues) != 1 {
		t.Errorf("%d queues at the end, want the default one", len(b.queues))
	}
}

// TestAsItWas: what is said again changes nothing, and costs no new division of shares. The caller may go on using its
// numbers.
func TestAsItWas(t *testing.T) {
	b, total := opened(Limits{}, 8, Queue{Name: "a", Capability: gpus(8)}), gpus(8)
	b.Count("pod", Usage{Queue: "default", Amount: gpus(9)})
	b.SetTotal(total)
	for _, c := range []struct {
		what    string
		say     func() (changed bool)
		changed bool
	}{
		{"the same total", func() bool { b.SetTotal(gpus(8)); return b.stale }, false},
		{"another total", func() bool { total[gpu] = 4; b.SetTotal(total); return b.stale }, true},
		{"the same queue", func() bool { return b.SetQueues(Queue{Name: "a", Weight: 1, Capability: gpus(8)}) }, false},
		{"another weight", func() bool { return b.SetQueues(Queue{Name: "a", Weight: 2, Capability: gpus(8)}) }, true},
		{"no capability", func() bool { return b.SetQueues(Queue{Name: "a", Weight: 2}) }, true},
		{"another queue", func() bool { return b.SetQueues(Queue{Name: "b", Weight: 1}) }, true},
	} {
		b.Shares()
		if changed := c.say(); changed != c.changed || b.stale != c.changed {
			t.Errorf("%s: it has changed: %t, and the shares are divided again: %t", c.what, changed, b.stale)
		}
	}
	if got := b.Shares()["default"].Fair[gpu]; got != 4 {
		t.Errorf("%d GPUs are shared, want 4", got)
	}
}
