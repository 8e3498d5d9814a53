package queueing

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/share"
)

// TestUpdate: when users are told something else.
func TestUpdate(t *testing.T) {
	is := func(reason Reason, message string) Wait { return Wait{reason, message} }
	overused, passed, behind, over := is(Overused, "share"), is(Passed, "big"), is(Behind, "ahead"), is(Capability, "4")
	nothing := Wait{}
	type found struct {
		after time.Duration // since the last one
		now   Wait
		want  Wait // what users are told then
	}
	for sentence, all := range map[string][]found{
		"a stronger one at once":                   {{0, overused, overused}, {0, behind, behind}, {0, over, over}},
		"a weaker one once it has held":            {{0, over, over}, {0, behind, over}, {tellOther - 1, behind, over}, {1, behind, behind}},
		"nothing, once that has held":              {{0, behind, behind}, {0, nothing, behind}, {tellOther, nothing, nothing}},
		"another one no stronger likewise":         {{0, overused, overused}, {0, passed, overused}, {tellOther, passed, passed}},
		"not while the one told comes back":        {{0, over, over}, {0, behind, over}, {3e9, over, over}, {3e9, behind, over}, {4e9, behind, over}, {1e9, behind, behind}},
		"nor while it does in other words":         {{0, over, over}, {0, behind, over}, {3e9, is(Capability, "5"), over}, {3e9, behind, over}},
		"the strongest of several weaker ones":     {{0, over, over}, {0, behind, over}, {3e9, nothing, over}, {2e9, nothing, behind}, {0, nothing, behind}, {tellOther, nothing, nothing}},
		"other words after a while":                {{0, over, over}, {tellAgain - 1, is(Capability, "5"), over}, {1, is(Capability, "6"), is(Capability, "6")}},
		"not those that were so in the meantime  ": {{0, over, over}, {tellAgain - 1, is(Capability, "5"), over}, {1, over, over}, {0, is(Capability, "5"), is(Capability, "5")}},
	} {
		var told reported
		at := start
		for i, f := range all {
			at = at.Add(f.after)
			before := told.Wait
			told.news = false
			if told.update(f.now, at, false); told.Wait != f.want || told.news != (f.want != before) {
				t.Errorf("%s: %d: told %+v, as news: %t, want %+v", sentence, i, told.Wait, told.news, f.want)
			}
			other := told
			if other.update(nothing, at, true); other.Wait != nothing {
				t.Errorf("%s: %d: a queue has changed, and users are still told %+v", sentence, i, other.Wait)
			}
		}
	}
}

// TestRebarred: gangs that did not fit are reported again once something else keeps them from more nodes.
func TestRebarred(t *testing.T) {
	at := ready
	described := func(capability int64, closed bool) Queue {
		q := Queue{Name: "a", Weight: 1, Closed: closed}
		if capability > 0 {
			q.Capability = gpus(capability)
		}
		return q
	}
	b := opened(Limits{Window: 1}, 1000, described(10, false), Queue{Name: "free", Weight: 1})
	for i, queue := range []string{"a", "a", "free"} {
		j := of(queue, i+1, gpus(6))
		j.Pod, j.Pods, j.Together = j.Name, []string{j.Name}, true
		b.Count(j.Name, Usage{Queue: queue, Job: j.Name, Amount: gpus(6)})
		b.Come(j, at)
		b.failNow(j.Name, Failure{Job: j.Name, Together: true}, at)
	}
	one, two := of("a", 1, nil).Name, of("a", 2, nil).Name
	for _, c := range []struct {
		sentence string
		change   func()
		rebarred []string
		barred   []Reason // of both
		words    string   // in the message of the second
	}{
		{"both are too many", func() {}, []string{two}, []Reason{"", Behind}, "10 nvidia.com/gpu"},
		{"nothing has changed", func() {}, nil, []Reason{"", Behind}, "10 nvidia.com/gpu"},
		{"another queue is described", func() { b.SetQueues(Queue{Name: "free", Weight: 2}) }, nil, []Reason{"", Behind}, "10 nvidia.com/gpu"},
		{"the ceiling rises, and is too low", func() { b.SetQueues(described(11, false)) }, []string{two}, []Reason{"", Behind}, "11 nvidia.com/gpu"},
		{"the ceiling rises", func() { b.SetQueues(described(12, false)) }, []string{two}, []Reason{"", ""}, ""},
		{"it is below what one asks for", func() { b.SetQueues(described(5, false)) }, []string{one, two}, []Reason{Capability, Capability}, "5 nvidia.com/gpu"},
		{"there is none any more", func() { b.SetQueues(described(0, false)) }, []string{one, two}, []Reason{"", ""}, ""},
		{"the queue is closed", func() { b.SetQueues(described(0, true)) }, []string{one, two}, []Reason{Closed, Closed}, "is closed"},
		{"it is deleted", func() { b.RemoveQueue("a") }, []string{one, two}, []Reason{NotFound, NotFound}, "does not exist"},
		{"it is there again", func() { b.SetQueues(described(10, false)) }, []string{one, two}, []Reason{"", Behind}, "10 nvidia.com/gpu"},
		{"the one before goes", func() { b.goneNow(one, at) }, []string{two}, []Reason{"", ""}, ""},
	} {
		c.change()
		if got := rebarred(b, &at).Members; !slices.Equal(got, c.rebarred) {
			t.Errorf("%s: to be told anew: %q, want %q", c.sentence, got, c.rebarred)
		}
		for i, want := range c.barred {
			limit := b.Limit(of("a", i+1, nil).Name)
			if limit.Reason != want || i == 1 && !strings.Contains(limit.Message, c.words) {
				t.Errorf("%s: %d is kept from nodes by %+v, want %q (%s)", c.sentence, i+1, limit, want, c.words)
			}
		}
	}
}

// TestRebarredTogether: of gangs that start together all are reported again.
func TestRebarredTogether(t *testing.T) {
	s := newScene(Failed, true)
	s.News(s.at())
	s.SetQueues(Queue{Name: "b", Weight: 1, Closed: true})
	want := []string{"p1", "p2"}
	if got := s.News(s.at()).Members; !slices.Equal(got, want) {
		t.Errorf("to be told anew: %q, want %q", got, want)
	}
}

// TestRebarredAlone: a pod in no gang comes again once it would get another reason, and only then.
func TestRebarredAlone(t *testing.T) {
	s := newScene(Failed, false)
	for _, step := range []struct {
		what            string
		queue           Queue
		again, reworded []string
	}{
		{"nothing has changed", Queue{Name: "b", Weight: 1}, nil, nil},
		{"its queue is closed", Queue{Name: "b", Weight: 1, Closed: true}, []string{"p1"}, nil},
		{"it still is", Queue{Name: "b", Weight: 2, Closed: true}, nil, nil},
		{"it is opened", Queue{Name: "b", Weight: 1}, []string{"p1"}, nil},
		{"a ceiling comes", Queue{Name: "b", Weight: 1, Capability: gpus(5)}, []string{"p1"}, nil},
		{"it fails under that", Queue{Name: "b", Weight: 1, Capability: gpus(5)}, nil, nil},
		{"the ceiling is lowered", Queue{Name: "b", Weight: 1, Capability: gpus(4)}, nil, []string{"p1"}},
	} {
		s.SetQueues(step.queue)
		if step.again == nil && step.reworded == nil {
			s.Come(s.offer, s.at())
			s.failNow("p1", Failure{}, s.at())
		}
		if got := s.News(s.at()); len(got.Members) > 0 || !slices.Equal(got.Again, step.again) || !slices.Equal(got.Pods, step.reworded) {
			t.Errorf("%s: %+v, want that %q come again, and %q have other words", step.what, got, step.again, step.reworded)
		}
	}
}

// TestRebarredThoughOthersLooked: a changed reason is reported also if another call was the first to compute it.
func TestRebarredThoughOthersLooked(t *testing.T) {
	at := ready
	b := opened(Limits{Window: 1}, 1000, Queue{Name: "a", Weight: 1, Capability: gpus(10)}, Queue{Name: "c", Weight: 1, Capability: gpus(100)})
	var names []string
	for i, queue := range []string{"a", "a", "c"} {
		names = append(names, fails(b, queue, i+1, 6, at))
	}
	if got := b.News(at).Members; !slices.Equal(got, names[1:2]) {
		t.Fatalf("told %q, want %q: the first leaves it no room", got, names[1:2])
	}
	b.goneNow(names[0], at)
	if bound, over := b.beyond(names[2]); over {
		t.Fatalf("the third is barred: %s", bound)
	}
	if got := rebarred(b, &at).Members; !slices.Equal(got, names[1:2]) {
		t.Errorf("told anew %q, want %q", got, names[1:2])
	}
	if b.wishes.changed {
		t.Error("it is looked again though nothing has changed")
	}
}

// rebarred returns all that is reported again until what counts for a while does not count any
// more.
func rebarred(b *Book, at *Moment) News {
	told := b.News(*at)
	at.Now = at.Now.Add(tellOther)
	more := b.News(*at)
	return News{Members: append(told.Members, more.Members...), Again: append(told.Again, more.Again...), Pods: append(told.Pods, more.Pods...)}
}

// TestVisitors: a job before which others come and go is barred all the time, from when that is first reported until no
// job has come for a while. A limit that comes and goes between two looks is not reported.
func TestVisitors(t *testing.T) {
	for _, gang := range []bool{true, false} {
		at := ready
		b := opened(Limits{Window: 2}, 1000, Queue{Name: "a", Weight: 1, Capability: gpus(10)})
		waits, visitor := comes(b, "a", 2, 10, at), ""
		b.failNow(waits, Failure{Job: waits, Together: gang}, at)
		come := func() {
			visitor = fails(b, "a", 1, 6, at)
		}
		leave := func() { b.goneNow(visitor, at) }
		ask := func() { b.Limit(waits) }
		none := func() {}
		for i, c := range []struct {
			does []func()
			pass time.Duration // before it is looked
			told bool
			bars Reason
		}{
			{[]func(){none}, time.Second, false, ""},
			{[]func(){come, leave}, time.Second, false, ""}, // no look has seen it
			{[]func(){come}, time.Second, true, Behind},
			{[]func(){leave}, time.Second, false, Behind},
			{[]func(){none}, tellOther - time.Second, false, Behind},
			{[]func(){come}, time.Second, false, Behind},
			{[]func(){leave}, time.Second, false, Behind},
			{[]func(){none}, tellOther, true, ""},
			{[]func(){come, ask, leave}, time.Second, false, ""},
			{[]func(){none}, time.Hour, false, ""},
			{[]func(){come, ask}, time.Second, true, Behind},
		} {
			for _, do := range c.does {
				do()
			}
			at.Now = at.Now.Add(c.pass)
			again := b.News(at)
			pods := again.Members
			if !gang {
				pods = again.Again
			}
			if told := slices.Contains(pods, waits); told != c.told {
				t.Errorf("gang: %t, step %d: told anew: %t, want %t", gang, i, told, c.told)
			}
			if limit := b.Limit(waits); limit.Reason != c.bars {
				t.Errorf("gang: %t, step %d: barred by %q, want %q", gang, i, limit.Reason, c.bars)
			}
		}
	}
}

// TestBarredByTheHopeless: a gang that would not fit on an empty cluster still counts before others once its queue
// deserves more.
func TestBarredByTheHopeless(t *testing.T) {
	at := ready
	b := opened(Limits{Window: 1}, 1, Queue{Name: "a", Weight: 1, Capability: gpus(6)})
	var second string
	for i := range 2 {
		second = comes(b, "a", i+1, 4, at)
		b.failNow(second, Failure{Job: second, Together: true, Hopeless: true}, at)
	}
	b.Count("another", Usage{Queue: "a", Amount: gpus(9)}) // asks for the share that no job asks for
	for i := range 3 {
		if e := b.tickNow(at); e.Retry != (i == 0) {
			t.Errorf("tick %d: gangs are tried again: %t; the share grows once", i, e.Retry)
		}
		if limit := b.Limit(second); limit.Reason != Behind {
			t.Errorf("tick %d: the second is barred by %q, want %q", i, limit.Reason, Behind)
		}
	}
}

// TestLimitsChanged: a gang that has failed is tried again at once when its queue may have more, although the queue
// deserves no more and no pod has ended.
func TestLimitsChanged(t *testing.T) {
	queue := Queue{Name: "a", Weight: 1, Deserved: gpus(2), Capability: gpus(2)}
	for sentence, c := range map[string]struct {
		happens func(*Book)
		want    bool
	}{
		"nothing happens":        {func(*Book) {}, false},
		"the queue is as it was": {func(b *Book) { b.SetQueues(queue) }, false},
		"its ceiling is raised": {func(b *Book) {
			more := queue
			more.Capability = gpus(8)
			b.SetQueues(more)
		}, true},
		"its weight changes": {func(b *Book) {
			other := queue
			other.Weight = 2
			b.SetQueues(other)
		}, false},
		"the queue is gone": {func(b *Book) { b.RemoveQueue("a") }, true},
		"a pod on a node moves to another queue": {func(b *Book) {
			b.Count("runs", Usage{Queue: "b", Amount: gpus(2), Runs: true})
		}, true},
		"a pod that waits does": {func(b *Book) { b.Count("other", Usage{Queue: "b", Amount: gpus(2)}) }, false},
	} {
		b := NewBook("default", nil)
		b.Configure(Limits{Window: 1}, Policies{Rules: share.Rules{Stated: true}})
		b.SetTotal(gpus(20))
		b.SetQueues(queue, Queue{Name: "b", Weight: 1})
		b.Count("runs", Usage{Queue: "a", Amount: gpus(2), Runs: true})
		b.Count("other", Usage{Queue: "a", Amount: gpus(2)})
		waits := comes(b, "a", 1, 2, ready)
		b.failNow(waits, Failure{Job: waits, Together: true}, ready)
		b.tickNow(ready)
		c.happens(b)
		if got := b.tickNow(ready).Retry; got != c.want {
			t.Errorf("%s: tried again: %t, want %t", sentence, got, c.want)
		}
	}
}

// TestTooLarge: there is no share for a job that alone exceeds a ceiling, until the ceiling is raised.
func TestTooLarge(t *testing.T) {
	b := opened(Limits{}, 10, Queue{Name: "a", Weight: 1, Capability: gpus(4)}, Queue{Name: "b", Weight: 1})
	comes(b, "a", 1, 6, ready)
	b.Count("asks", Usage{Queue: "b", Amount: gpus(10)})
	for _, c := range []struct{ ceiling, want int64 }{{4, 10}, {6, 5}, {5, 10}} {
		b.SetQueues(Queue{Name: "a", Weight: 1, Capability: gpus(c.ceiling)})
		if got := b.own("b").Deserved; !maps.Equal(got, gpus(c.want)) {
			t.Errorf("below a ceiling of %d: the other queue deserves %v, want %v", c.ceiling, got, gpus(c.want))
		}
	}
}

// TestToldOther: what a job waits for is reported again at once where it is stronger, and where it is weaker once it
// has been so for a while.
func TestToldOther(t *testing.T) {
	s := newScene(Waiting, false)
	s.SetQueues(Queue{Name: "b", Weight: 1, Capability: gpus(12)})
	var told []Reason
	look := func(runs int64) {
		s.Count("runs-b", Usage{Queue: "b", Amount: gpus(runs), Runs: true})
		s.after(tellOther)
		if len(s.News(s.at()).Pods) > 0 {
			told = append(told, s.Waits("j").Reason)
		}
	}
	for range 3 { // below its ceiling, and above it, by turns
		look(5)
		look(8)
	}
	want := []Reason{Overused, Capability}
	if !slices.Equal(told, want) {
		t.Errorf("told while it changes all the time: %q, want %q", told, want)
	}
	look(5)
	look(5)
	if want := append(want, Overused); !slices.Equal(told, want) {
		t.Errorf("told once it stays: %q, want %q", told, want)
	}
}

// TestRenewed: a job that waits gets at once the reason that changes of its queue lead to.
func TestRenewed(t *testing.T) {
	s := newScene(Waiting, false)
	s.SetQueues(Queue{Name: "b", Weight: 1, Closed: true})
	s.after(tellAfter)
	for _, c := range []struct {
		q       Queue
		message string
	}{{Queue{Name: "b", Weight: 1, Closed: true}, `queue "b" is closed`}, {Queue{Name: "b", Weight: 2}, `waiting for its turn in queue "b"`}} {
		s.SetQueues(c.q)
		if news, why := s.News(s.at()), s.Waits("j").Message; len(news.Pods) != 1 || why != c.message {
			t.Errorf("to be told: %q, %q, want %q", news.Pods, why, c.message)
		}
		if news := s.News(s.at()); len(news.Pods) > 0 {
			t.Errorf("it was told, and is told again: %+v", s.Waits("j"))
		}
	}
}

// BenchmarkTell lets a second pass for 5,000 jobs under one ceiling, in which something has come or gone: what it costs
// to find out which jobs have something new to report. No job can come to the gate meanwhile.
func BenchmarkTell(b *testing.B) {
	const jobs = 5000
	for _, fail := range []bool{false, true} {
		b.Run(fmt.Sprintf("failed=%t/jobs=%d", fail, jobs), func(b *testing.B) {
			at := ready
			book := opened(Limits{Window: 1}, 1_000_000, Queue{Name: "a", Parent: "top", Weight: 1}, Queue{Name: "top", Weight: 1, Capability: gpus(2 * jobs)})
			for i := range jobs {
				j := of("a", i, gpus(int64(1+i%8)))
				j.Pod, j.Pods, j.Together, j.Priority = j.Name, []string{j.Name}, true, int32(i%3)
				book.Count(j.Name, Usage{Queue: "a", Job: j.Name, Amount: j.Options[0].Total(), Priority: j.Priority})
				book.Come(j, at)
				if fail {
					book.failNow(j.Name, Failure{Job: j.Name, Together: true}, at)
				}
			}
			for i := 0; b.Loop(); i++ {
				book.Count("runs", Usage{Queue: "a", Amount: gpus(int64(i % 2)), Runs: true})
				at.Now = at.Now.Add(time.Second)
				book.News(at)
			}
		})
	}
}

// TestBarredInItsTurn: what keeps a gang from more nodes stands while the gang is tried again.
func TestBarredInItsTurn(t *testing.T) {
	s := newScene(Admitted, true)
	s.Fail("p1", Failure{Together: true}, s.at())
	s.SetQueues(Queue{Name: "b", Weight: 1, Capability: gpus(5)})
	s.News(s.at())
	before := s.Limit("j")
	s.Offer(s.offer, s.at())
	s.Admit("j", s.at())
	if phase := s.Phase("j"); phase != Admitted || before.Reason != Capability {
		t.Fatalf("it is %s, and was kept by %+v", names[phase], before)
	}
	s.now = s.now.Add(tellOther)
	s.News(s.at())
	if limit := s.Limit("j"); limit != before {
		t.Errorf("in its turn it is kept by %+v, want %+v", limit, before)
	}
}

// TestNotBlockedOncePlaced: what kept a gang from more nodes is over once it has its places.
func TestNotBlockedOncePlaced(t *testing.T) {
	s := newScene(Admitted, true)
	s.Fail("p1", Failure{Together: true}, s.at())
	s.SetQueues(Queue{Name: "b", Weight: 1, Capability: gpus(5)})
	if s.News(s.at()); s.Limit("j").Reason != Capability {
		t.Fatalf("it is kept by %+v", s.Limit("j"))
	}
	s.SetQueues(Queue{Name: "b", Weight: 1})
	s.Offer(s.offer, s.at())
	s.Admit("j", s.at())
	s.both(Usage{Runs: true})
	s.one("p2", Usage{})
	s.Offer(Job{Name: "j", Queue: "b", Pod: "p2", Pods: []string{"p2"}, Together: true, Options: []Needs{{"b": gpus(3)}}}, s.at())
	s.Admit("j", s.at())
	if limit := s.Limit("j"); s.Phase("j") != Admitted || limit != (Wait{}) {
		t.Errorf("%s, it is kept by %+v", names[s.Phase("j")], limit)
	}
}
