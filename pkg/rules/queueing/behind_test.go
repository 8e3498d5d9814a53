package queueing

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// TestNotBehindAnyMore: a job that only jobs before it keep from more nodes is reported again once what runs keeps it
// from any, at once; and the other way round, once that has been so for a while. Whether room helps it is read from its
// reason.
func TestNotBehindAnyMore(t *testing.T) {
	for _, gang := range []bool{true, false} {
		at := ready
		b := opened(Limits{Window: 10}, 20, Queue{Name: "a", Weight: 1, Capability: gpus(10)})
		var goal string
		for i, n := range []int64{6, 6} {
			goal = comes(b, "a", i+1, n, at)
			b.failNow(goal, Failure{Job: goal, Together: gang}, at)
		}
		helps := func() bool { return b.Limit(goal).Reason.RoomHelps() }
		b.News(at)
		if !helps() {
			t.Fatalf("gang: %t: it is behind another, and was told that room does not help it", gang)
		}
		for i, c := range []struct {
			runs        int64
			pass        time.Duration // before it is looked
			told, helps bool
		}{
			{5, time.Second, true, false},
			{5, tellOther, false, false},
			{4, time.Second, false, false},
			{4, tellOther - time.Second, false, false},
			{5, time.Second, false, false}, // it was not so for long enough
			{0, time.Second, false, false},
			{0, tellOther, true, true},
			{4, tellOther, false, true},
			{5, time.Second, true, false},
		} {
			b.Count("runs", Usage{Queue: "a", Amount: gpus(c.runs), Runs: true})
			at.Now = at.Now.Add(c.pass)
			told := b.News(at)
			if slices.Contains(told.Again, goal) {
				t.Errorf("gang: %t, step %d: it comes again to be told other words", gang, i)
			}
			if is := slices.Contains(slices.Concat(told.Members, told.Pods), goal); is != c.told {
				t.Errorf("gang: %t, step %d: told anew: %t, want %t", gang, i, is, c.told)
			}
			if got := helps(); got != c.helps {
				t.Errorf("gang: %t, step %d: it is told that room helps it: %t, want %t", gang, i, got, c.helps)
			}
		}
	}
}

// TestEasesByTheMost: what counts once less than before has kept a job for a while is the most that has kept it in
// that time.
func TestEasesByTheMost(t *testing.T) {
	at := ready
	b := opened(Limits{Window: 10}, 20, Queue{Name: "a", Weight: 1, Capability: gpus(10)})
	goal := fails(b, "a", 2, 6, at)
	runs := func(n int64) { b.Count("runs", Usage{Queue: "a", Amount: gpus(n), Runs: true}) }
	runs(5)
	if b.News(at); b.Limit(goal).Reason != Capability {
		t.Fatalf("5 of 10 run, it asks for 6, and is kept by %+v", b.Limit(goal))
	}
	runs(0)
	for i := range 6 { // another comes before it and goes, each for two seconds
		if i%2 == 0 {
			fails(b, "a", 1, 6, at)
		} else {
			b.goneNow(of("a", 1, nil).Name, at)
		}
		b.News(at)
		at.Now = at.Now.Add(2 * time.Second)
		b.News(at)
	}
	if reason := b.Limit(goal).Reason; reason != Behind {
		t.Errorf("others come before it and go, and it is kept by %s, want %s", reason, Behind)
	}
	at.Now = at.Now.Add(tellOther)
	b.News(at)
	if reason := b.Limit(goal).Reason; reason != "" || b.wishes.changed {
		t.Errorf("nobody comes any more, and it is barred by %q; more is waited for: %t", reason, b.wishes.changed)
	}
}

// TestBehindAtOneCeilingOnly: a job that is behind others for one resource, and kept by what runs for another, is not
// helped by room, whichever ceiling is looked at first, and whichever queue has it.
func TestBehindAtOneCeilingOnly(t *testing.T) {
	const gpu = v1.ResourceName("nvidia.com/gpu")
	cpus := func(n int64) Vector { return Vector{v1.ResourceCPU: n} }
	both := Vector{v1.ResourceCPU: 10, gpu: 10}
	for _, c := range []struct {
		where       string
		child, top  Vector
		ahead, runs Vector
		queue       string
		of          v1.ResourceName
	}{
		{"one queue, behind for CPU", both, nil, cpus(6), gpus(5), "a", gpu},
		{"one queue, behind for GPU", both, nil, gpus(6), cpus(5), "a", v1.ResourceCPU},
		{"both above it, behind for CPU", nil, both, cpus(6), gpus(5), "top", gpu},
		{"behind in its own queue", cpus(10), gpus(10), cpus(6), gpus(5), "top", gpu},
		{"behind in the one above it", gpus(10), cpus(10), cpus(6), gpus(5), "a", gpu},
	} {
		at := ready
		b := newBook(tier)
		b.limits = Limits{Window: 10}
		b.SetQueues(Queue{Name: "a", Parent: "top", Weight: 1, Capability: c.child}, Queue{Name: "top", Weight: 1, Capability: c.top})
		b.SetTotal(Vector{v1.ResourceCPU: 20, gpu: 20})
		var goal string
		for i, need := range []Vector{c.ahead, {v1.ResourceCPU: 6, gpu: 6}} {
			j := of("a", i+1, need)
			j.Pod, j.Pods, j.Together = j.Name, []string{j.Name}, true
			b.Count(j.Name, Usage{Queue: "a", Job: j.Name, Amount: need})
			b.Come(j, at)
			b.failNow(j.Name, Failure{Job: j.Name, Together: true}, at)
			goal = j.Name
		}
		if bound, over := b.beyond(goal); !over || !bound.behindOthers() {
			t.Fatalf("%s: before anything runs it is beyond %+v, want to be behind another", c.where, bound)
		}
		b.Count("runs", Usage{Queue: "a", Amount: c.runs, Runs: true})
		if bound, over := b.beyond(goal); !over || bound.Queue != c.queue || bound.Resource != c.of || bound.behindOthers() {
			t.Errorf("%s: it is beyond %+v, want %s of queue %s", c.where, bound, c.of, c.queue)
		}
		b.News(at)
		if limit := b.Limit(goal); limit.Reason.RoomHelps() {
			t.Errorf("%s: 5 of 10 are used, and it asks for 6: room does not help it, and it is told %+v", c.where, limit)
		}
	}
}
