package queueing

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
)

// world is what a book was told, to be computed from the beginning each time.
type world struct {
	total    Vector
	queues   map[string]Queue
	usages   map[string]Usage
	jobs     map[string]Job
	admitted map[string]bool
	crowded  map[string]bool
	// turn are the pods of the jobs that are admitted, as they asked then.
	turn map[string]map[string]Usage
}

// fresh returns a book that was told all at once.
func (w *world) fresh(r *rand.Rand) *Book {
	b := newBook(tier)
	shuffled(r, w.queues, func(_ string, q Queue) { b.SetQueues(q) })
	shuffled(r, w.usages, b.Count)
	shuffled(r, w.jobs, func(name string, j Job) {
		b.wait(j)
		if w.admitted[name] {
			one := b.jobs[name]
			one.turn.overLimit = w.crowded[name]
			b.overLimit += count(one.turn.overLimit)
			b.admit(one)
			b.chargeAll(one, -1)
			one.turn.pods, one.turn.lacks = w.turn[name], nil
			b.retake(one, one.at)
		}
	})
	b.SetTotal(w.total)
	return b
}

// count counts a usage, which may be the last that a job waited for.
func (w *world) count(id string, u Usage) {
	before := w.usages[id]
	w.usages[id] = u
	w.finish(before.Job)
	w.finish(u.Job)
}

// finish ends the turn of a job of which no pod waits for its place any more, or has one held.
func (w *world) finish(job string) {
	if w.admitted[job] && !slices.ContainsFunc(w.jobs[job].Pods, func(pod string) bool { return w.usages[pod].Job == job && !w.usages[pod].Runs }) {
		w.done(job)
	}
}

func (w *world) done(job string) {
	delete(w.jobs, job)
	delete(w.admitted, job)
}

func shuffled[T any](r *rand.Rand, m map[string]T, do func(string, T)) {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names {
		do(name, m[name])
	}
}

// TestBookIsWhatItWasTold: after any story the book is the same as one that was told the end of it, in
// any order; and each job that is admitted was the first by the rules.
func TestBookIsWhatItWasTold(t *testing.T) {
	admissions := 0
	for seed := range uint64(900) {
		r := rand.New(rand.NewPCG(seed, 3))
		w := &world{total: gpus(20), queues: map[string]Queue{}, usages: map[string]Usage{}, jobs: map[string]Job{}, admitted: map[string]bool{}, crowded: map[string]bool{}, turn: map[string]map[string]Usage{}}
		b := newBook(tier)
		b.SetTotal(w.total)
		names := []string{"default", "a", "b", "c", "d"}
		for step := range 90 {
			name := names[r.IntN(len(names))]
			switch r.IntN(9) {
			case 0:
				q := Queue{Name: name, Weight: 1 + r.Int64N(3), Priority: int32(r.IntN(2)), Closed: r.IntN(6) == 0}
				if r.IntN(2) == 0 {
					q.Parent = names[1+r.IntN(4)]
				}
				if r.IntN(3) == 0 {
					q.Capability = gpus(r.Int64N(12))
				}
				w.queues[name] = q
				b.SetQueues(q)
			case 1:
				if name != "default" {
					delete(w.queues, name)
					b.RemoveQueue(name)
				}
			case 2, 3, 8:
				u := Usage{Queue: name, Job: fmt.Sprint("j", r.IntN(8)), Gang: fmt.Sprint("g", r.IntN(3)), Priority: int32(r.IntN(2)), Amount: gpus(1 + r.Int64N(4)), Runs: r.IntN(5) == 0, Promised: r.IntN(5) == 0, Held: r.IntN(7) == 0}
				if r.IntN(8) == 0 {
					u.Demand = DemandScope(1 + r.IntN(2))
				}
				id := fmt.Sprint("u", r.IntN(24))
				w.count(id, u)
				b.Count(id, u)
			case 4:
				id := fmt.Sprint("u", r.IntN(24))
				if before, known := w.usages[id]; known {
					delete(w.usages, id)
					w.finish(before.Job)
				}
				b.Uncount(id)
			case 5, 6:
				j := Job{Name: fmt.Sprint("j", r.IntN(8)), Gang: fmt.Sprint("g", r.IntN(3)), Queue: name, Priority: int32(r.IntN(2)), Created: time.Unix(int64(step), 0), Ready: r.IntN(4) == 0, NeverPreempts: r.IntN(4) == 0}
				var asked []Usage
				for id, u := range w.usages {
					if u.Job == j.Name && !u.placed() && r.IntN(5) > 0 {
						j.Pods, asked = append(j.Pods, id), append(asked, u)
					}
				}
				if len(j.Pods) == 0 {
					continue
				}
				j.Options = Options(asked)[:1]
				if !w.admitted[j.Name] {
					w.jobs[j.Name] = j
				}
				b.wait(j)
			case 7:
				id := fmt.Sprint("j", r.IntN(8))
				w.done(id)
				b.done(id)
			}
			if r.IntN(3) > 0 {
				continue
			}
			told := w.fresh(r)
			mustEqual(t, seed, step, told, b)
			want := firstOf(told)
			got, ok := b.admitNext()
			if ok != (want != "") || got.Name != want {
				t.Fatalf("seed %d, step %d: %q is admitted, want %q", seed, step, got.Name, want)
			}
			if ok {
				w.admitted[got.Name], w.crowded[got.Name] = true, b.jobs[got.Name].turn.overLimit
				w.turn[got.Name] = maps.Clone(b.jobs[got.Name].turn.pods)
				admissions++
			}
		}
	}
	if admissions < 900 {
		t.Errorf("%d admissions tell little", admissions)
	}
}

func mustEqual(t *testing.T, seed uint64, step int, want, got *Book) {
	t.Helper()
	clean := func(v Vector) Vector {
		out := Vector{}
		for name, amount := range v {
			if amount != 0 {
				out[name] = amount
			}
		}
		return out
	}
	want.forgetQueues()
	got.forgetQueues()
	if diff := gocmp.Diff(slices.Sorted(maps.Keys(want.queues)), slices.Sorted(maps.Keys(got.queues))); diff != "" {
		t.Fatalf("seed %d, step %d: queues that are known (-told at once +by and by):\n%s", seed, step, diff)
	}
	for name, q := range got.queues {
		told := want.queues[name]
		for what, pair := range map[string][2]Vector{"requested": {told.requested, q.requested}, "idle": {told.idle, q.idle}, "allocated": {told.allocated(), q.allocated()}, "running": {told.running, q.running}, "used": {told.used, q.used}} {
			if diff := gocmp.Diff(clean(pair[0]), clean(pair[1])); diff != "" {
				t.Fatalf("seed %d, step %d: %s of %s (-told at once +by and by):\n%s", seed, step, what, name, diff)
			}
		}
	}
	for name, s := range want.Shares() {
		if diff := gocmp.Diff(clean(s.Fair), clean(got.Shares()[name].Fair)); diff != "" {
			t.Fatalf("seed %d, step %d: share of %s (-told at once +by and by):\n%s", seed, step, name, diff)
		}
	}
}

// firstOf looks at every job.
func firstOf(b *Book) string {
	var best *job
	for _, j := range b.jobs {
		q := b.queues[j.Queue]
		if j.phase != Waiting || b.tooLarge(j) {
			continue
		}
		if b.Shut(j.queues()...).Reason != "" {
			continue
		}
		if _, over := b.hardLimit(j); over {
			continue
		}
		if best == nil {
			best = j
			continue
		}
		of := b.queues[best.Queue]
		order := b.compareJobs(j, best)
		if q != of {
			order = b.compareQueues(q, of)
		}
		if order < 0 {
			best = j
		}
	}
	if best == nil {
		return ""
	}
	return best.Name
}
