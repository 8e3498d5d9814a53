package queueing

import (
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
)

// scene is a book in which a job j of two pods, p1 which speaks for it and p2, is in some phase. Its
// queue b deserves 4 of 9 GPUs, of which a has all.
type scene struct {
	*Book
	now   time.Time
	gone  map[string]bool // pods that do not wait any more
	offer Job
}

func newScene(from Phase, gang bool) *scene {
	s := &scene{Book: newBook(tier), now: start, gone: map[string]bool{}, offer: Job{Name: "j", Queue: "b", Pod: "p1", Pods: []string{"p1", "p2"}, Together: gang, Options: []Needs{{"b": gpus(6)}}}}
	s.SetTotal(gpus(9))
	s.SetQueues(Queue{Name: "a", Weight: 1})
	s.SetQueues(Queue{Name: "b", Weight: 1})
	s.Count("runs", Usage{Queue: "a", Amount: gpus(9), Runs: true})
	s.Count("more", Usage{Queue: "a", Amount: gpus(9)})
	s.both(Usage{})
	s.room(from != Waiting)
	switch from {
	case Waiting, Admitted:
		s.Come(s.offer, s.at())
	case Failed:
		s.failNow("p1", Failure{Together: gang}, s.at())
	case Outside:
	}
	return s
}

// TestUnplaced: a job that did not fit waits, too.
func TestUnplaced(t *testing.T) {
	for phase, want := range map[Phase]int{Outside: 0, Waiting: 1, Admitted: 1, Failed: 1} {
		if got := newScene(phase, true).Unplaced()["b"]; got != want {
			t.Errorf("in phase %d: %d jobs are unplaced, want %d", phase, got, want)
		}
	}
}

// TestRetryFirst: of each queue the first single pod that did not fit comes to the gate again, and no gang does.
func TestRetryFirst(t *testing.T) {
	s := newScene(Failed, true)
	fails := func(name, queue string, priority int32) {
		s.Count(name, Usage{Queue: queue, Job: name, Amount: gpus(1), Priority: priority})
		s.failNow(name, Failure{}, s.at())
	}
	fails("low", "b", 1)
	fails("high", "b", 9)
	fails("other", "a", 0)
	first := s.RetryFirst(s.at()).BringToGate
	slices.Sort(first)
	if diff := gocmp.Diff([]string{"high", "other"}, first); diff != "" {
		t.Errorf("brought (-want +got):\n%s", diff)
	}
	if again := s.RetryFirst(s.at()).BringToGate; len(again) != 1 || again[0] != "low" {
		t.Errorf("then %v are brought, want the next one that did not fit", again)
	}
}

func (s *scene) at() Moment {
	return Moment{Now: s.now, Synced: true, IsWaiting: func(pod string) bool { return !s.gone[pod] }, WaitsForRoom: yes, IsComplete: yes}
}

// room makes the window have room, or none.
func (s *scene) room(yes bool) { s.limits = Limits{Window: 9 * count(yes)} }

func (s *scene) one(pod string, u Usage) {
	u.Queue, u.Job, u.Amount, u.Demand = "b", "j", gpus(3), s.usages[pod].Demand
	s.Count(pod, u)
}

func (s *scene) both(u Usage) {
	s.one("p1", u)
	s.one("p2", u)
}

func (s *scene) after(d time.Duration) called {
	s.now = s.now.Add(d)
	return s.tickNow(s.at())
}

// TestTransitions: what each input does to a job in each phase, and what has to be done then.
func TestTransitions(t *testing.T) {
	began := []began{{Queue: "b"}}
	come := func(s *scene) called { return s.Come(s.offer, s.at()) }
	comeLate := func(s *scene) called { s.room(false); return come(s) }
	offer := func(s *scene) called { s.Offer(s.offer, s.at()); return s.giveTurns(Moment{}, "", s.take()) }
	look := func(s *scene) called { s.room(true); return s.Look(s.at()) }
	tick := func(s *scene) called { return s.after(time.Second) }
	fail := func(s *scene) called { return s.failNow("p1", Failure{Together: s.offer.Together}, s.at()) }
	refused := func(s *scene) called { s.RecordFinding("p1", true, false); return fail(s) }
	hopeless := func(s *scene) called { s.RecordFinding("p1", false, true); return fail(s) }
	gone := func(pods ...string) func(*scene) called {
		return func(s *scene) (e called) {
			for _, pod := range pods {
				s.gone[pod] = true
				e = s.goneNow(pod, s.at())
			}
			return e
		}
	}
	without := func(do func(*scene) called, pods ...string) func(*scene) called {
		return func(s *scene) called {
			for _, pod := range pods {
				s.gone[pod] = true
			}
			return do(s)
		}
	}
	then := func(one, other func(*scene) called) func(*scene) called {
		return func(s *scene) called { one(s); return other(s) }
	}
	more := func(do func(*scene) called) func(*scene) called {
		return func(s *scene) called { s.SetQueues(Queue{Name: "b", Weight: 2}); return do(s) }
	}
	lends := func(s *scene) called {
		s.SetQueues(Queue{Name: "kept", Weight: 1, NotReclaimable: true})
		s.SetQueues(Queue{Name: "kept", Weight: 1})
		return tick(s)
	}
	placed := func(s *scene) called {
		s.Count("other", Usage{Queue: "a", Job: "other", Amount: gpus(1), Promised: true})
		tick(s)
		s.Count("other", Usage{Queue: "a", Job: "other", Amount: gpus(1), Runs: true})
		return tick(s)
	}
	full := func(s *scene) called {
		s.Count("own", Usage{Queue: "b", Amount: gpus(3), Runs: true})
		return placed(s)
	}
	usage := func(pods []string, us ...Usage) func(*scene) called {
		return func(s *scene) called {
			for _, u := range us {
				for _, pod := range pods {
					s.one(pod, u)
				}
			}
			return s.Look(s.at())
		}
	}
	all, first := []string{"p1", "p2"}, []string{"p1"}
	held, runs := Usage{Held: true}, Usage{Runs: true}
	for sentence, c := range map[string]struct {
		from   Phase
		gang   bool
		do     func(*scene) called
		want   Phase
		effect called
		demand DemandScope // of p2, if it is there
	}{
		"it comes, and it is its turn":                      {from: Outside, do: come, want: Admitted, effect: called{Began: began}},
		"it comes, and the window has no room":              {from: Outside, do: comeLate, want: Waiting},
		"it comes before queues are read":                   {from: Outside, do: func(s *scene) called { at := s.at(); at.Synced = false; return s.Come(s.offer, at) }, want: Waiting},
		"it is offered, and nothing is looked at":           {from: Outside, do: offer, want: Waiting},
		"it fails though it never came":                     {from: Outside, do: fail, want: Failed, demand: Idle},
		"nothing happens to it":                             {from: Outside, do: tick, want: Outside},
		"its pods run without a turn":                       {from: Outside, do: usage(all, runs), want: Outside},
		"its pods are gone":                                 {from: Outside, do: gone(all...), want: Outside},
		"it comes again while it waits":                     {from: Waiting, do: come, want: Waiting},
		"it waits, and the window has room":                 {from: Waiting, do: look, want: Admitted, effect: called{Began: began, Call: []string{"p1"}}},
		"it waits, and time passes":                         {from: Waiting, do: tick, want: Waiting},
		"its turn comes, and the pod to call does not wait": {from: Waiting, do: without(look, "p1"), want: Outside, effect: called{Call: []string{"p2"}}},
		"time passes, and the pod to call does not wait":    {from: Waiting, do: without(tick, "p1"), want: Outside, effect: called{Call: []string{"p2"}}},
		"time passes, and none of its pods waits":           {from: Waiting, do: without(tick, "p1", "p2"), want: Outside},
		"the pod to call is gone":                           {from: Waiting, do: gone("p1"), want: Outside, effect: called{Call: []string{"p2"}}},
		"another of its pods is gone while it waits":        {from: Waiting, do: gone("p2"), want: Waiting},
		"it fails while it waits":                           {from: Waiting, do: fail, want: Failed, demand: Idle},
		"it comes in its turn":                              {from: Admitted, do: come, want: Admitted},
		"it is offered in its turn":                         {from: Admitted, do: offer, want: Admitted},
		"it fails":                                          {from: Admitted, do: fail, want: Failed, demand: Idle},
		"it would not fit on an empty cluster":              {from: Admitted, do: hopeless, want: Failed, demand: Hopeless},
		"it is refused":                                     {from: Admitted, do: refused, want: Failed, effect: called{Again: true}, demand: Idle},
		"a gang is refused":                                 {from: Admitted, gang: true, do: refused, want: Failed, demand: Idle},
		"a pod of it runs":                                  {from: Admitted, do: usage(first, runs), want: Admitted},
		"all of it runs":                                    {from: Admitted, do: usage(all, runs), want: Outside},
		"all of it is held":                                 {from: Admitted, do: usage(all, held), want: Admitted},
		"all of it is held, and runs":                       {from: Admitted, do: usage(all, held, runs), want: Outside},
		"all of it is held, and given back":                 {from: Admitted, do: usage(all, held, Usage{}), want: Admitted},
		"a pod of it is gone in its turn":                   {from: Admitted, do: gone("p2"), want: Admitted},
		"all of it is gone in its turn":                     {from: Admitted, do: gone(all...), want: Outside},
		"the pod that speaks for a gang is gone in its turn, and another waits":        {from: Admitted, gang: true, do: then(gone("p1"), tick), want: Admitted},
		"the pod that speaks for a gang waits no more in its turn, and none does":      {from: Admitted, gang: true, do: without(tick, "p1", "p2"), want: Outside, demand: Hopeless},
		"the pod that speaks for a gang is in another by its labels, and none is left": {from: Admitted, gang: true, do: func(s *scene) called { s.both(Usage{Gang: "other"}); return tick(s) }, want: Outside, demand: Hopeless},
		"what a gang waits with runs, and another waits":                               {from: Admitted, gang: true, do: then(usage(first, runs), without(tick, "p1")), want: Admitted},
		"its turn goes on":                               {from: Admitted, do: func(s *scene) called { return s.after(longestTurn) }, want: Admitted},
		"nothing comes of its turn":                      {from: Admitted, do: func(s *scene) called { return s.after(longestTurn + 1) }, want: Outside, demand: Hopeless},
		"it has failed, comes, and it is its turn":       {from: Failed, do: come, want: Admitted, effect: called{Began: began}},
		"it has failed, comes, and there is no room":     {from: Failed, do: comeLate, want: Waiting},
		"it has failed, and time passes":                 {from: Failed, do: tick, want: Failed, demand: Idle},
		"it has failed, and there is room":               {from: Failed, do: look, want: Failed, demand: Idle},
		"it has failed, and its queue deserves more":     {from: Failed, do: more(tick), want: Outside, effect: called{Call: []string{"p1"}}, demand: Idle},
		"a gang has failed, and its queue deserves more": {from: Failed, gang: true, do: more(tick), want: Failed, effect: called{Retry: true}, demand: Idle},
		"it has failed, and a queue lends what it kept":  {from: Failed, do: lends, want: Outside, effect: called{Call: []string{"p1"}}, demand: Idle},
		"a gang has failed, and a queue lends":           {from: Failed, gang: true, do: lends, want: Failed, effect: called{Retry: true}, demand: Idle},
		"a queue has lent, and a gang has failed since":  {from: Failed, gang: true, do: func(s *scene) called { lends(s); return tick(s) }, want: Failed, demand: Idle},
		"it has failed, and what was promised runs":      {from: Failed, do: placed, want: Outside, effect: called{Call: []string{"p1"}}, demand: Idle},
		"... and its queue has all that it deserves":     {from: Failed, do: full, want: Failed, demand: Idle},
		"it has failed, and its pod waits no more":       {from: Failed, do: without(more(tick), "p1"), want: Outside, demand: Idle},
		"it has failed, and its pod is gone":             {from: Failed, do: gone("p1"), want: Outside, demand: Idle},
		"it has failed, and another pod is gone":         {from: Failed, do: gone("p2"), want: Failed},
		"it fails again":                                 {from: Failed, do: fail, want: Failed, demand: Idle},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newScene(c.from, c.gang)
			if got := s.Phase("j"); got != c.from {
				t.Fatalf("it begins %s, want %s", names[got], names[c.from])
			}
			got := c.do(s)
			if diff := gocmp.Diff(c.effect, got); diff != "" {
				t.Errorf("effects (-want +got):\n%s", diff)
			}
			if phase := s.Phase("j"); phase != c.want {
				t.Errorf("it is %s, want %s", names[phase], names[c.want])
			}
			if u, there := s.Counted("p2"); there && u.Demand != c.demand {
				t.Errorf("what it asks for counts as %d, want %d", u.Demand, c.demand)
			}
			checkJobs(s.Book, t.Fatalf)
		})
	}
}

// TestPatience: no pod makes way for a job, and there is nothing to report about it, for a while after it was
// refused.
func TestPatience(t *testing.T) {
	s := newScene(Admitted, false)
	s.RecordFinding("p1", true, false)
	s.failNow("p1", Failure{}, s.at())
	s.room(false)
	s.Come(s.offer, s.at())
	for _, c := range []struct {
		passes  time.Duration
		patient bool
	}{{patience - 1, true}, {1, false}} {
		s.after(c.passes)
		if news := s.News(s.at()); s.jobs["j"].patient() != c.patient || len(news.Pods) > 0 {
			t.Errorf("patient: %v, want %v; to be told: %q", !c.patient, c.patient, news.Pods)
		}
	}
	s.SetQueues(Queue{Name: "b", Weight: 1, Closed: true})
	if news, why := s.News(s.at()), s.Waits("j").Message; len(news.Pods) != 1 || why != `queue "b" is closed` {
		t.Errorf("to be told: %q, %q, want that its queue is closed", news.Pods, why)
	}
}

// TestMadeWayFor: a job for which pods were evicted waits for no other, once they have ended.
func TestMadeWayFor(t *testing.T) {
	b := opened(Limits{Window: 9, MaxBypass: 1, BypassHold: time.Hour}, 100)
	at := ready
	come := func(name string, created int, need int64) {
		pod := "pod of " + name
		b.Count(pod, Usage{Queue: "default", Job: name, Amount: gpus(need)})
		b.Come(Job{Name: name, Queue: "default", Pod: pod, Pods: []string{pod}, Options: []Needs{{"default": gpus(need)}}, Created: start.Add(time.Duration(created) * time.Second)}, at)
	}
	come("big", 1, 50)
	b.failNow("pod of big", Failure{}, at)
	come("passes", 2, 1)
	b.Count("pod of passes", Usage{Queue: "default", Job: "passes", Amount: gpus(1), Runs: true})
	for _, name := range []string{"waits", "promised"} {
		come(name, 3, 4)
		if why := b.Why(name, true); why.Reason != Passed {
			t.Fatalf("%s waits for %+v; want it to wait behind the big one", name, why)
		}
	}
	holder, ending := hold.Holder{Profile: "p", Group: "promised"}, 1
	b.victims = func(of hold.Holder) int { return ending * count(of == holder) }
	b.Count("pod of promised", Usage{Queue: "default", Job: "promised", Amount: gpus(4), Promised: true})
	promised := b.jobs["promised"].Job
	promised.Holders = []hold.Holder{holder}
	b.Offer(promised, at)
	b.Look(at)
	if got := b.Phase("promised"); got != Waiting {
		t.Errorf("while others end: %v; want it to wait", got)
	}
	ending = 0
	b.Look(at)
	if got := []Phase{b.Phase("promised"), b.Phase("waits")}; !gocmp.Equal(got, []Phase{Admitted, Waiting}) {
		why := b.Why("promised", true).Message
		t.Errorf("once they have ended: %v (%s); want its turn, and nobody else's", got, why)
	}
}

// TestWaitedFor: once a job that came later was placed, others wait for a big one that did not fit, until none of its
// pods asks for anything in it.
func TestWaitedFor(t *testing.T) {
	gone := func(job string) func(*Book, string) {
		return func(b *Book, big string) { // counted for that job in the end
			b.Count(big, Usage{Queue: "default", Job: job, Amount: gpus(50)})
			at := ready
			at.IsWaiting = func(pod string) bool { return pod != big }
			b.goneNow(big, at)
			b.tickNow(at)
		}
	}
	for sentence, c := range map[string]struct {
		part bool // a pod of it runs
		gone bool // the job that came later is gone, and was not placed
		then func(b *Book, big string)
		want Phase // of the next one
	}{
		"one was placed":        {want: Waiting},
		"one came and was not":  {gone: true, want: Admitted},
		"a part of it runs":     {part: true, want: Waiting},
		"that is counted again": {part: true, then: func(b *Book, big string) { b.Count("runs", partOf(big, Hopeless)) }, want: Waiting},
		"it is its turn":        {part: true, then: func(b *Book, _ string) { comes(b, "default", 1, 50, ready) }, want: Waiting},
		"its pod waits with another job": {part: true, then: func(b *Book, big string) {
			comes(b, "default", 1, 50, ready)
			b.Count(big, Usage{Queue: "default", Job: "another", Amount: gpus(50)})
		}, want: Admitted},
		"its pod is gone":                            {then: gone("default-1"), want: Admitted},
		"its pod is gone that waits with another":    {then: gone("another"), want: Admitted},
		"its pod is gone that came with none lately": {then: gone(""), want: Admitted},
	} {
		b := opened(Limits{Window: 9, MaxBypass: 1, BypassHold: time.Hour}, 100)
		big := comes(b, "default", 1, 50, ready)
		if c.part {
			b.Count("runs", partOf(big, Full))
		}
		b.failNow(big, Failure{Together: true}, ready)
		passes := comes(b, "default", 2, 1, ready)
		if c.gone {
			b.goneNow(passes, ready)
		} else {
			b.Count(passes, Usage{Queue: "default", Job: passes, Amount: gpus(1), Runs: true})
		}
		if c.then != nil {
			c.then(b, big)
		}
		next := comes(b, "default", 3, 1, ready)
		if why := b.Why(next, true).Message; b.Phase(next) != c.want {
			t.Errorf("%s: the next one is %s: %s", sentence, names[b.Phase(next)], why)
		}
		b.Count(next, Usage{Queue: "default", Job: next, Amount: gpus(1), Runs: true})
		if last := comes(b, "default", 4, 1, ready); c.gone && b.Phase(last) != Waiting {
			t.Errorf("%s: nobody waits once another has passed", sentence)
		}
	}
}

// partOf returns the usage of a pod of a job that runs.
func partOf(job string, demand DemandScope) Usage {
	return Usage{Queue: "default", Job: job, Amount: gpus(1), Runs: true, Demand: demand}
}

// TestGangOfOtherJobs: a gang that did not fit, and whose pods are in other jobs by now, is nothing that waits, and that
// others could wait for.
func TestGangOfOtherJobs(t *testing.T) {
	b, at := opened(Limits{Window: 50, MaxBypass: 2, BypassHold: time.Minute}, 100, Queue{Name: "a", Weight: 1}), ready
	gang := Job{Name: "gang", Queue: "a", Gang: "gang", Pod: "p1", Pods: []string{"p1", "p2"}, Together: true, Created: time.Unix(1, 0), Options: []Needs{{"a": gpus(8)}}}
	for _, pod := range gang.Pods {
		b.Count(pod, Usage{Queue: "a", Job: gang.Name, Gang: gang.Name, Amount: gpus(4)})
	}
	b.Come(gang, at)
	b.failNow("p1", Failure{Job: gang.Name, Together: true}, at)
	for _, pod := range gang.Pods {
		b.Count(pod, Usage{Queue: "a", Job: "job of " + pod, Amount: gpus(4)})
	}
	if n := b.Unplaced()["a"]; n != 0 {
		t.Errorf("%d jobs are unplaced, want none", n)
	}
	for i := range 3 {
		job := comes(b, "a", 10+i, 1, at)
		if b.Phase(job) != Admitted {
			t.Errorf("job %d waits: %v", i, b.Why(job, true))
		}
		b.Count(job, Usage{Queue: "a", Job: job, Amount: gpus(1), Runs: true})
	}
}

// TestHolderWithoutItsSpeaker: a gang that did not fit gives back what it holds for an older job also when the pod is
// gone that spoke for it.
func TestHolderWithoutItsSpeaker(t *testing.T) {
	for _, gone := range []bool{false, true} {
		b, at := opened(Limits{Window: 5}, 10, Queue{Name: "a", Weight: 1, Capability: gpus(4)}), ready
		b.Count("runs", Usage{Queue: "a", Amount: gpus(2), Runs: true})
		pods := []string{"p1", "p2", "p3", "p4", "p5"}
		for _, pod := range pods {
			b.Count(pod, Usage{Queue: "a", Job: "gang", Gang: "gang", Amount: gpus(1)})
		}
		b.Offer(Job{Name: "gang", Queue: "a", Gang: "gang", Pod: "p1", Pods: pods[:4], Together: true, Created: time.Unix(100, 0), Options: []Needs{{"a": gpus(4)}}, Parts: []Needs{{"a": gpus(1)}}}, at)
		b.Admit("gang", at)
		for _, pod := range pods[1:3] {
			b.Count(pod, Usage{Queue: "a", Job: "gang", Gang: "gang", Amount: gpus(1), Held: true})
		}
		b.Fail("p1", Failure{Job: "gang", Together: true}, at)
		b.Count("older", Usage{Queue: "a", Job: "older", Amount: gpus(1)})
		b.Offer(Job{Name: "older", Queue: "a", Pod: "older", Pods: []string{"older"}, Created: time.Unix(50, 0), Options: []Needs{{"a": gpus(1)}}}, at)
		if gone {
			b.PodEnded("p1", at)
		}
		if first, _, _ := b.First(at, 0); first.Name != "older" {
			t.Errorf("gone %t: %q is next, want the older job: %v", gone, first.Name, b.Why("older", true))
		}
	}
}
