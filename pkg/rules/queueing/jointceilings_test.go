package queueing

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// TestBeyond: of several jobs that do not fit and are above a ceiling only together, the last ones would have no use
// for nodes.
func TestBeyond(t *testing.T) {
	at := ready
	// story makes jobs a-1, a-2, ... of these many GPUs each fail one after the other under a ceiling of 10, of which some
	// are used.
	story := func(used int64, priority map[int]int32, sizes ...int64) *Book {
		b := opened(Limits{Window: 1}, 1000, Queue{Name: "a", Parent: "top", Weight: 1}, Queue{Name: "top", Weight: 1, Capability: gpus(10)}, Queue{Name: "free", Weight: 1})
		b.Count("runs", Usage{Queue: "a", Amount: gpus(used), Runs: true})
		for i, size := range sizes {
			j := of("a", i+1, gpus(size))
			j.Pod, j.Pods, j.Together, j.Priority = j.Name, []string{j.Name}, true, priority[i+1]
			b.Count(j.Name, Usage{Queue: "a", Job: j.Name, Amount: gpus(size), Priority: j.Priority})
			b.Come(j, at)
			b.failNow(j.Name, Failure{Job: j.Name, Together: true}, at)
		}
		return b
	}
	for sentence, c := range map[string]struct {
		used     int64
		priority map[int]int32
		sizes    []int64
		beyond   []bool
		// behind are the jobs that would start if there were room now.
		behind []int
	}{
		"one below the ceiling":                             {0, nil, []int64{10}, []bool{false}, nil},
		"two that fit below it together":                    {0, nil, []int64{4, 6}, []bool{false, false}, nil},
		"the younger is too many":                           {0, nil, []int64{6, 6}, []bool{false, true}, []int{2}},
		"the one of higher priority goes first":             {0, map[int]int32{2: 5}, []int64{6, 6}, []bool{true, false}, []int{1}},
		"what runs counts":                                  {5, nil, []int64{4, 2}, []bool{false, true}, []int{2}},
		"a job that is too many keeps no smaller one":       {0, nil, []int64{6, 6, 4}, []bool{false, true, false}, []int{2}},
		"nothing is asked for by one that is too many":      {0, nil, []int64{6, 6, 3, 2}, []bool{false, true, false, true}, []int{2, 4}},
		"what runs may fill the ceiling for all that waits": {10, nil, []int64{1}, []bool{true}, nil},
		"what runs leaves too little, whoever comes before": {5, nil, []int64{4, 6}, []bool{false, true}, nil},
	} {
		b := story(c.used, c.priority, c.sizes...)
		for i, want := range c.beyond {
			name := of("a", i+1, nil).Name
			bound, beyond := b.beyond(name)
			if b.Phase(name) == Waiting {
				t.Logf("%s: %s waits", sentence, name)
			}
			if beyond != want {
				t.Errorf("%s: job %d is beyond: %t (%s), want %t", sentence, i+1, beyond, bound, want)
			}
			if beyond && (bound.Reason != Capability || bound.Queue != "top") {
				t.Errorf("%s: job %d is kept by %+v, want the ceiling of top", sentence, i+1, bound)
			}
			told := Overused
			if beyond {
				told = bound.Code()
			}
			if got, want := told.RoomHelps(), !beyond || slices.Contains(c.behind, i+1); got != want {
				t.Errorf("%s: that room would help job %d is %t, by %s, want %t", sentence, i+1, got, told, want)
			}
		}
	}
}

// TestBeyondWhileWaiting: without nodes no queue has a share, and the reason of jobs that wait for it is their ceiling
// if nodes would not help.
func TestBeyondWhileWaiting(t *testing.T) {
	b := opened(Limits{Window: 1}, 0, Queue{Name: "a", Weight: 1, Capability: gpus(10)})
	at := ready
	for i, size := range []int64{11, 6, 6} {
		j := of("a", i+1, gpus(size))
		j.Pod, j.Pods, j.Together = j.Name, []string{j.Name}, true
		b.Count(j.Name, Usage{Queue: "a", Job: j.Name, Amount: gpus(size)})
		b.Come(j, at)
	}
	for i, want := range []Reason{Capability, Overused, Behind} {
		if why := b.Why(of("a", i+1, nil).Name, true); why.Reason != want {
			t.Errorf("job %d: %+v, want %s", i+1, why, want)
		}
	}
}

// TestWaitsWhole: a gang that lacks members has no turn, and keeps none from others, until it comes again.
func TestWaitsWhole(t *testing.T) {
	for _, ticks := range []bool{true, false} {
		waitsWhole(t, ticks)
	}
}

// waitsWhole lets time pass before there is room, or not.
func waitsWhole(t *testing.T, ticks bool) {
	t.Helper()
	lacks := map[string]bool{}
	at := Moment{Now: start, Synced: true, IsWaiting: yes, WaitsForRoom: yes, IsComplete: func(pod string) bool { return !lacks[pod] }}
	b := opened(Limits{Window: 10}, 10, Queue{Name: "a", Weight: 1, Capability: gpus(10)})
	b.Count("runs", Usage{Queue: "a", Amount: gpus(8), Runs: true})
	first := comes(b, "a", 1, 6, at)
	second := comes(b, "a", 2, 5, at)
	lacks[first] = true
	if ticks {
		b.tickNow(at)
		if phase := b.Phase(first); phase != Outside {
			t.Errorf("the first lacks members, and is in phase %d", phase)
		}
	}
	if e := b.goneNow("runs", at); b.Phase(second) != Admitted {
		t.Errorf("it is the turn of %q, want the second", e.Call)
	}
	b.failNow(second, Failure{Job: second, Together: true}, at)
	delete(lacks, first)
	comes(b, "a", 1, 6, at)
	if phase := b.Phase(first); phase != Admitted {
		t.Errorf("it is whole again, and is in phase %d", phase)
	}
}

// TestBeyondMoved: a job that has failed and moves to another queue is under the ceilings of that, and not before those
// in its last one any more.
func TestBeyondMoved(t *testing.T) {
	at := ready
	b := opened(Limits{Window: 1}, 1000, Queue{Name: "a", Weight: 1, Capability: gpus(10)}, Queue{Name: "c", Weight: 1})
	var names []string
	for i := range 2 {
		names = append(names, comes(b, "a", i+1, 6, at))
		b.failNow(names[i], Failure{Job: names[i], Together: i == 0}, at)
	}
	b.News(at)
	for _, c := range []struct {
		queue  string
		beyond Reason
		alone  []string
	}{
		{"c", "", names[1:]},
		{"a", Behind, names[1:]},
	} {
		b.Count(names[0], Usage{Queue: c.queue, Job: names[0], Amount: gpus(6)})
		if alone := rebarred(b, &at).Again; !slices.Equal(alone, c.alone) {
			t.Errorf("the first is in queue %s: %q come again, want %q", c.queue, alone, c.alone)
		}
		if limit := b.Limit(names[1]); limit.Reason != c.beyond {
			t.Errorf("the first is in queue %s, and the second barred by %q, want %q", c.queue, limit.Reason, c.beyond)
		}
	}
}

// slowBeyond returns the jobs that are beyond a ceiling, computed from what the book was told.
func slowBeyond(b *Book) map[string]bool {
	jobs := slices.SortedFunc(maps.Values(b.jobs), func(i, j *job) int {
		return cmp.Or(cmp.Compare(j.Priority, i.Priority), i.Created.Compare(j.Created), cmp.Compare(i.Name, j.Name))
	})
	beyond := map[string]bool{}
	type place struct {
		queue string
		name  v1.ResourceName
	}
	asked := map[place]int64{}
	for _, j := range jobs {
		needs, serves := b.missing(j), true
		for name, q := range b.queues {
			if q.spec == nil {
				continue
			}
			for resource, most := range q.spec.Capability {
				var used, need int64
				for _, u := range b.usages {
					if slices.Contains(b.Path(u.Queue), name) && (u.Runs || u.Held || u.Promised && u.Job != j.Name) {
						used += u.Amount[resource]
					}
				}
				for queue, amount := range needs {
					if slices.Contains(b.Path(queue), name) {
						need += amount[resource]
					}
				}
				beyond[j.Name] = beyond[j.Name] || need > 0 && used+asked[place{name, resource}]+need > most
			}
		}
		for queue := range needs {
			serves = serves && b.queues[queue].spec != nil && b.queues[queue].noWay == "" && !b.closed(b.queues[queue])
		}
		if !j.turn.overLimit && (beyond[j.Name] || j.waitsElsewhere || !serves) {
			continue
		}
		for queue, amount := range needs {
			for resource, need := range amount {
				for _, u := range b.usages {
					if u.Promised && !u.Runs && !u.Held && u.Job == j.Name && u.Queue == queue {
						need -= u.Amount[resource]
					}
				}
				for _, at := range b.Path(queue) {
					asked[place{at, resource}] += max(0, need)
				}
			}
		}
	}
	return beyond
}

// TestBeyondOracle: whatever happens, what is kept equals what is computed from the beginning.
func TestBeyondOracle(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		aside := map[string]bool{}
		at := Moment{Now: time.Unix(1000, 0), Synced: true, IsWaiting: yes, IsComplete: yes, WaitsForRoom: func(pod string) bool { return !aside[pod] }}
		b := opened(Limits{Window: 2}, 1000)
		queues := []Queue{
			{Name: "top", Weight: 1, Capability: gpus(20)}, {Name: "a", Parent: "top", Weight: 1, Capability: gpus(12)},
			{Name: "b", Parent: "top", Weight: 1}, {Name: "free", Weight: 1},
		}
		b.SetQueues(queues...)
		for step := range 200 {
			queue := []string{"a", "b", "free"}[r.IntN(3)]
			i := r.IntN(8)
			j := of(queue, i, gpus(1+int64(i)%5))
			j.Pod, j.Pods, j.Together, j.Priority = j.Name, []string{j.Name}, true, int32(i%3)
			u := Usage{Queue: queue, Job: j.Name, Amount: j.Options[0].Total(), Priority: j.Priority}
			does := r.IntN(9)
			ticked := does == 7
			switch does {
			case 0, 1, 2:
				b.Count(j.Name, u)
				b.Come(j, at)
			case 3, 4:
				b.failNow(j.Name, Failure{Job: j.Name, Together: true, WaitsElsewhere: r.IntN(3) == 0}, at)
			case 5:
				u.Promised = r.IntN(2) == 0
				u.Runs = !u.Promised && r.IntN(2) == 0
				b.Count(j.Name, u)
			case 6:
				b.goneNow(j.Name, at)
			case 7:
				aside[j.Name] = !aside[j.Name]
				at.Now = at.Now.Add(10 * time.Second)
				b.tickNow(at)
			case 8:
				q := queues[r.IntN(len(queues))]
				q.Closed = r.IntN(3) == 0
				b.SetQueues(q)
			}
			for _, j := range b.jobs {
				if waits := j.phase == Failed || j.phase == Waiting; ticked && waits && j.waitsElsewhere != aside[j.Pod] {
					t.Fatalf("seed %d, step %d: %s waits for something else than room: %t", seed, step, j.Name, j.waitsElsewhere)
				}
			}
			for name, want := range slowBeyond(b) {
				if bound, beyond := b.beyond(name); beyond != want {
					t.Fatalf("seed %d, step %d: %s is beyond: %t (%s), want %t", seed, step, name, beyond, bound, want)
				}
			}
			if n := max(len(b.wishes.of), len(b.wishes.touched)); n > len(b.jobs) {
				t.Fatalf("seed %d, step %d: %d wishes are kept, of %d jobs", seed, step, n, len(b.jobs))
			}
		}
	}
}

// BenchmarkBeyond makes one of 5,000 jobs that do not fit, all under one ceiling, fail again, and asks whether nodes
// would help it: what else the cycle costs; if nothing else has changed; and if a pod has begun to run, or has ended.
func BenchmarkBeyond(b *testing.B) {
	const jobs = 5000
	for _, c := range []struct {
		name        string
		asks, churn bool
	}{{name: "without"}, {name: "steady", asks: true}, {name: "churn", asks: true, churn: true}} {
		b.Run(fmt.Sprintf("%s/jobs=%d", c.name, jobs), func(b *testing.B) {
			at := ready
			book := opened(Limits{Window: 1}, 1_000_000, Queue{Name: "a", Parent: "top", Weight: 1}, Queue{Name: "top", Weight: 1, Capability: gpus(2 * jobs)})
			offered := make([]Job, jobs)
			for i := range offered {
				j := of("a", i, gpus(int64(1+i%8)))
				j.Pod, j.Pods, j.Together, j.Priority = j.Name, []string{j.Name}, true, int32(i%3)
				book.Count(j.Name, Usage{Queue: "a", Job: j.Name, Amount: j.Options[0].Total(), Priority: j.Priority})
				book.Come(j, at)
				book.failNow(j.Name, Failure{Job: j.Name, Together: true}, at)
				offered[i] = j
			}
			for i := 0; b.Loop(); i++ {
				j := offered[i*7919%jobs]
				if c.churn {
					book.Count("runs", Usage{Queue: "a", Amount: gpus(int64(i % 2)), Runs: true})
				}
				book.Come(j, at)
				book.failNow(j.Name, Failure{Job: j.Name, Together: true}, at)
				if c.asks {
					book.beyond(j.Name)
				}
			}
		})
	}
}
