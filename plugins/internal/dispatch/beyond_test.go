package dispatch

import (
	"testing"
	"time"
)

// TestBeyond: of several jobs that do not fit and are above a ceiling only together, those that come last would have no use of nodes.
func TestBeyond(t *testing.T) {
	now := time.Unix(1000, 0)
	at := Moment{Now: now, Read: true, Waits: func(string) bool { return true }}
	// story has jobs a-1, a-2, ... of so many GPUs each fail one after the other under a ceiling of 10, of which some are used.
	story := func(used int64, priority map[int]int32, sizes ...int64) *Book {
		b := newBook(tier)
		b.SetLimits(Limits{Window: 1})
		b.SetTotal(gpus(1000))
		b.SetQueues(Queue{Name: "a", Parent: "top", Weight: 1}, Queue{Name: "top", Weight: 1, Capability: gpus(10)}, Queue{Name: "free", Weight: 1})
		b.Count("runs", Usage{Queue: "a", Amount: gpus(used), Runs: true})
		for i, size := range sizes {
			j := of("a", i+1, gpus(size))
			j.Pod, j.Pods, j.Gang, j.Priority = j.Name, []string{j.Name}, true, priority[i+1]
			b.Count(j.Name, Usage{Queue: "a", Job: j.Name, Amount: gpus(size), Priority: j.Priority})
			b.Come(j, at)
			b.Fail(j.Name, Failure{Job: j.Name, Gang: true}, at)
		}
		return b
	}
	for sentence, c := range map[string]struct {
		used     int64
		priority map[int]int32
		sizes    []int64
		beyond   []bool
	}{
		"one below the ceiling":                             {0, nil, []int64{10}, []bool{false}},
		"two that fit below it together":                    {0, nil, []int64{4, 6}, []bool{false, false}},
		"the younger is too many":                           {0, nil, []int64{6, 6}, []bool{false, true}},
		"the one of higher priority goes first":             {0, map[int]int32{2: 5}, []int64{6, 6}, []bool{true, false}},
		"what runs counts":                                  {5, nil, []int64{4, 2}, []bool{false, true}},
		"a job that is too many keeps no smaller one":       {0, nil, []int64{6, 6, 4}, []bool{false, true, false}},
		"nothing is asked for by one that is too many":      {0, nil, []int64{6, 6, 3, 2}, []bool{false, true, false, true}},
		"what runs may fill the ceiling for all that waits": {10, nil, []int64{1}, []bool{true}},
	} {
		b := story(c.used, c.priority, c.sizes...)
		for i, want := range c.beyond {
			name := of("a", i+1, nil).Name
			bound, beyond := b.Beyond(name)
			if b.Phase(name) == Waiting {
				t.Logf("%s: %s waits", sentence, name)
			}
			if beyond != want {
				t.Errorf("%s: job %d is beyond: %t (%s), want %t", sentence, i+1, beyond, bound, want)
			}
			if beyond && (bound.Reason != Capability || bound.Queue != "top") {
				t.Errorf("%s: job %d is kept by %+v, want the ceiling of top", sentence, i+1, bound)
			}
		}
	}
}

// TestBeyondWhileWaiting: where there are no nodes no queue has a share, and what is said of jobs that wait for it is that of their
// ceiling where nodes would not help.
func TestBeyondWhileWaiting(t *testing.T) {
	b := newBook(tier)
	b.SetLimits(Limits{Window: 1})
	b.SetQueues(Queue{Name: "a", Weight: 1, Capability: gpus(10)})
	at := Moment{Now: time.Unix(1000, 0), Read: true, Waits: func(string) bool { return true }}
	for i, size := range []int64{11, 6, 6} {
		j := of("a", i+1, gpus(size))
		j.Pod, j.Pods, j.Gang = j.Name, []string{j.Name}, true
		b.Count(j.Name, Usage{Queue: "a", Job: j.Name, Amount: gpus(size)})
		b.Come(j, at)
	}
	for i, want := range []Reason{Capability, Overused, Capability} {
		if reason, why := b.Why(of("a", i+1, nil).Name); reason != want {
			t.Errorf("job %d: %s: %s, want %s", i+1, reason, why, want)
		}
	}
}
