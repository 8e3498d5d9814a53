package queueing

import (
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate/evictionrecord"
)

// TestEvicted: 8 GPUs, and two queues that share them. b has 4 and asks for 4 more; a gang of 4 GPUs of a was evicted.
// What comes to b says whether a still asks for that.
func TestEvicted(t *testing.T) {
	const hold = 10 * time.Minute
	successors := []string{"x0", "x1"}
	count := func(b *Book, u Usage, pods ...string) {
		for _, pod := range pods {
			u.Queue, u.Gang, u.Amount = "a", "x", gpus(2)
			b.Count(pod, u)
		}
	}
	offer := func(b *Book) {
		count(b, Usage{Job: "x", Demand: Hopeless}, successors...)
		b.Offer(Job{Name: "x", Queue: "a", Gang: "x", Together: true, Pod: "x0", Pods: successors, Options: []Needs{{"a": gpus(4)}}}, Moment{})
	}
	gone := func(b *Book) {
		for _, pod := range successors {
			b.Uncount(pod)
		}
	}
	for sentence, c := range map[string]struct {
		do      func(b *Book)
		awaited int64
		b       int64
	}{
		"it has no pods":                        {func(*Book) {}, 4, 4},
		"its pods have not ended":               {func(b *Book) { count(b, Usage{Runs: true}, "old0", "old1") }, 0, 4},
		"one of them has":                       {func(b *Book) { count(b, Usage{Runs: true}, "old0") }, 2, 4},
		"some of its pods have been made again": {func(b *Book) { count(b, Usage{Demand: Hopeless}, "x0") }, 4, 4},
		"all have":                              {offer, 0, 4},
		"they have, and are gone":               {func(b *Book) { offer(b); gone(b) }, 4, 4},
		"its record went before they did":       {func(b *Book) { offer(b); b.SetEvicted("x", evictionrecord.Record{}, start); gone(b) }, 0, 8},
		"one that goes by itself waited before": {func(b *Book) { count(b, Usage{}, "x2") }, 2, 4},
		"its PodGroup is gone":                  {func(b *Book) { b.SetEvicted("x", evictionrecord.Record{}, start) }, 0, 8},
		"time is almost up":                     {func(b *Book) { b.Tick(Moment{Now: start.Add(hold - time.Second)}) }, 4, 4},
		"time is up":                            {func(b *Book) { b.Tick(Moment{Now: start.Add(hold)}) }, 0, 8},
		"and the PodGroup says so again": {func(b *Book) {
			b.Tick(Moment{Now: start.Add(hold)})
			b.SetEvicted("x", evictedOf("a", 4), start.Add(hold))
		}, 0, 8},
		"its queue is closed":                       {func(b *Book) { b.SetQueues(Queue{Name: "a", Weight: 1, Closed: true}) }, 4, 8},
		"a queue that is not described asks for it": {func(b *Book) { b.RemoveQueue("a") }, 4, 8},
	} {
		t.Run(sentence, func(t *testing.T) {
			b := opened(Limits{Window: 9, EvictedHold: hold}, 8, Queue{Name: "a", Weight: 1}, Queue{Name: "b", Weight: 1})
			b.Count("b0", Usage{Queue: "b", Amount: gpus(4), Runs: true})
			b.Count("b1", Usage{Queue: "b", Amount: gpus(4)})
			b.SetEvicted("x", evictedOf("a", 4), start)
			b.Shares()
			c.do(b)
			if got := b.Awaited()["a"][gpu]; got != c.awaited {
				t.Errorf("queue a asks for %d GPUs of what was evicted, want %d", got, c.awaited)
			}
			if got := b.Shares()["b"].Fair[gpu]; got != c.b {
				t.Errorf("%d GPUs come to queue b, want %d", got, c.b)
			}
		})
	}
}

func evictedOf(queue string, n int64) evictionrecord.Record {
	return evictionrecord.Record{At: start, Demand: evictionrecord.Demand{Scheduler: "s", Queue: queue, Requests: gpus(n).ByPool()}}
}

// TestEvictedAnnotation: what is written is what is read, pool by pool, and nothing else is.
func TestEvictedAnnotation(t *testing.T) {
	had := Vector{gpu: 4, cpu: 1500, "nvidia.com/gpu@large": 8, "cpu@large": 2500}
	evicted := evictionrecord.New(start.Add(time.Millisecond), "gang ns/vip (priority 9)")
	evicted.Gang, evicted.Job, evicted.Demand = "ns/x", "train", evictionrecord.Demand{Scheduler: "s", Queue: "a", Requests: had.ByPool()}
	value := evicted.Annotation()
	const want = `{"at":"1970-01-01T00:16:40Z","for":"gang ns/vip (priority 9)","gang":"ns/x","job":"train","scheduler":"s","queue":"a",` +
		`"requests":{"default":{"cpu":1500,"nvidia.com/gpu":4},"large":{"cpu":2500,"nvidia.com/gpu":8}}}`
	if value != want {
		t.Errorf("annotation %s, want %s", value, want)
	}
	b := opened(Limits{EvictedHold: time.Minute}, 0)
	b.SetEvicted("x", evictionrecord.Read(value), start)
	if diff := gocmp.Diff(had, b.Awaited()["a"]); diff != "" {
		t.Errorf("what counts (-had +read):\n%s", diff)
	}
	for _, value := range []string{"", "yes", "{}", `{"at":1}`, `{"at":"1970-01-01T00:16:40Z","for":"gang ns/vip","gang":"ns/x"}`, `{"at":"1970-01-01T00:16:40Z","requests":{"default":{"cpu":"x"}}}`, `{"at":"2070-01-01T00:16:40Z","queue":"a"}`,
		`{"at":"1970-01-01T00:16:40Z","queue":"a","requests":{"default":{"cpu":"1e-9999999"}}}`, // which takes seconds to read as a quantity
	} {
		b := opened(Limits{EvictedHold: time.Minute}, 0)
		b.SetEvicted("x", evictionrecord.Read(value), start)
		if len(b.evicted) > 0 {
			t.Errorf("%q counts", value)
		}
	}
}

// TestEvictedAmounts: users may write the annotation; amounts that no gang can have do not count.
func TestEvictedAmounts(t *testing.T) {
	b := opened(Limits{EvictedHold: time.Minute}, 0)
	b.SetEvicted("x", evictionrecord.Read(`{"at":"1970-01-01T00:16:40Z","queue":"a","requests":{"default":{"cpu":-1,"memory":9223372036854775807,"nvidia.com/gpu":2}}}`), start)
	if diff := gocmp.Diff(gpus(2), b.Awaited()["a"]); diff != "" {
		t.Errorf("what counts (-want +got):\n%s", diff)
	}
}
