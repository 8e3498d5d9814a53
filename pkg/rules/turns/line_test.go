package turns

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// world is what happens outside a line, and a policy that orders jobs of queues by the name of their queue, then by
// rank.
type world struct {
	*Line
	t   *testing.T
	now time.Time
	// making and promised are the jobs for which room is being made, or kept.
	making, promised map[string]bool
	// has are the jobs that the policy has, and late those of them that were not looked at for too long.
	has, late []Job
	// told are the candidates that it was told of.
	told map[string]Job
	// passing: no job of a queue has its turn.
	passing bool
	log     []string
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, now: start, told: map[string]Job{}, making: map[string]bool{}, promised: map[string]bool{}}
	w.Line = New(w, w)
	return w
}

func (w *world) Making(holder hold.Holder) bool   { return w.making[holder.Group] }
func (w *world) Promised(holder hold.Holder) bool { return w.promised[holder.Group] }

func compare(a, b Job) int {
	if a.Queue != b.Queue {
		return strings.Compare(a.Queue, b.Queue)
	}
	return a.Rank.Compare(b.Rank)
}

func (w *world) AddCandidate(j Job) {
	if _, told := w.told[j.Name]; told {
		w.t.Errorf("%s is a candidate already", j.Name)
	}
	w.told[j.Name] = j
}

func (w *world) RemoveCandidate(name string) {
	if _, told := w.told[name]; !told {
		w.t.Errorf("%s is no candidate any more, and was none", name)
	}
	delete(w.told, name)
}

func (w *world) First(which Selection) (first Job, ok bool) {
	list := slices.Clone(w.has)
	switch which {
	case AllJobs:
		list = slices.AppendSeq(list, maps.Values(w.told))
	case OverdueJobs:
		list = w.late
	case PolicyJobs:
	}
	for _, j := range list {
		if !ok || compare(j, first) < 0 {
			first, ok = j, true
		}
	}
	return first, ok
}

// strict returns a job of a priority that asks for so many members.
func strict(name string, priority int32) Job {
	return Job{Name: name, Rank: Rank{Priority: priority, Created: start, Name: name}, Strict: true, Holder: hold.Holder{Group: name}}
}

// pod returns a single pod of a priority that did not fit before.
func pod(name string, priority int32) Job {
	j := strict(name, priority)
	j.Single, j.Tried = true, true
	return j
}

func queued(queue string, j Job) Job {
	j.Queue = queue
	return j
}

// come offers jobs.
func (w *world) come(jobs ...Job) {
	for _, j := range jobs {
		w.Offer(j, w.now)
	}
}

// next lets in the next job, and notes which.
func (w *world) next() string {
	j, _, ok, _ := w.Next(w.now, !w.passing)
	if !ok {
		j.Name = "nobody"
	}
	w.log = append(w.log, j.Name)
	return j.Name
}

// fail lets the attempt of the job that has its turn fail, which asked for so many members.
func (w *world) fail(members int, cost time.Duration) {
	name, _ := w.Turn()
	w.BeginCycle()
	w.Begin(name, w.now)
	w.now = w.now.Add(cost)
	o := AttemptFailure{Cost: cost, Shape: Shape{Key: 1, Members: members, Request: resource.Vector{"gpu": 1}}}
	if j := w.jobs[name]; j != nil {
		w.Fail(j.Job, o, w.now)
		return
	}
	w.PassOver(name)
	w.RecordEmptyAttempt()
}

// begin says whether the job that has its turn keeps it, and notes it if it does not.
func (w *world) begin() {
	if name, _ := w.Turn(); !w.KeepsTurn(name, w.now, !w.passing) {
		w.log = append(w.log, "-"+name)
	}
}

// tryAll lets all attempts fail until it is nobody's turn. Each job asks for more than the one before it.
func (w *world) tryAll(cost time.Duration) {
	for members := 100; w.next() != "nobody"; members-- {
		w.fail(members, cost)
	}
}

// TestStories tells who has a turn after which events.
func TestStories(t *testing.T) {
	for sentence, c := range map[string]struct {
		play func(w *world)
		want string
	}{
		"the first in rank comes first, one at a time": {
			func(w *world) {
				w.come(strict("low", 1), strict("high", 9))
				w.next()
				w.next()
				w.fail(1, 0)
				w.next()
			},
			"high nobody low",
		},
		"what did not fit rests until something happens": {
			func(w *world) {
				w.come(strict("a", 1))
				w.tryAll(0)
				w.next()
				w.RecordChange(Freed)
				w.next()
			},
			"a nobody nobody a",
		},
		"a turn is over if something happens before it begins that brings another job before it": {
			func(w *world) {
				w.come(strict("a", 2), pod("b", 1))
				w.next()
				w.fail(2, 0)
				w.next()
				w.begin() // nothing has happened
				w.RecordChange(Freed)
				w.begin()
				w.next()
				w.RecordChange(Freed)
				w.begin() // it is the first
				w.fail(2, 0)
				w.next()
			},
			"a b -b a b",
		},
		"one that goes ahead of the first in order gives it back once": {
			func(w *world) {
				w.come(strict("a", 2), strict("b", 1))
				w.tryAll(0)
				w.now = w.now.Add(time.Minute)
				w.RecordChange(Freed)
				w.next() // b, which was not looked at for a minute
				w.RecordChange(Freed)
				w.begin()
				w.next()
				w.fail(50, 0)
				w.RecordChange(Freed)
				w.next()
				w.RecordChange(Freed)
				w.begin()
				w.next()
			},
			"a b nobody b -b a b nobody",
		},
		"a job of a queue keeps it while events are passed on, if it is the first": {
			func(w *world) {
				w.come(queued("1", strict("a", 2)))
				w.next()
				w.RecordChange(Freed)
				w.passing = true
				w.begin()
			},
			"a",
		},
		"as is that of a job that waits in a queue": {
			func(w *world) {
				w.come(queued("1", strict("a", 2)), queued("2", strict("b", 1)))
				w.next()
				w.fail(2, 0)
				w.next()
				w.RecordChange(Freed)
				w.begin()
				w.next()
			},
			"a b -b a",
		},
		"but not that of one that the policy has to admit": {
			func(w *world) {
				w.come(strict("a", 2))
				w.next()
				w.fail(2, 0)
				w.has = []Job{queued("1", strict("pod", 0))}
				w.next()
				w.RecordChange(Freed)
				w.begin()
				w.next()
			},
			"a pod nobody",
		},
		"a pod that comes to a node helps only what depends on others": {
			func(w *world) {
				w.come(strict("a", 2), strict("b", 1))
				w.next()
				w.BeginCycle()
				w.Begin("a", w.now)
				w.Fail(strict("a", 2), AttemptFailure{Coupled: true}, w.now)
				w.tryAll(0)
				w.BeginCycle()
				w.RecordChange(PodsMoved)
				w.next()
			},
			"a b nobody a",
		},
		"what happens while a cycle runs its attempt does not know of": {
			func(w *world) {
				w.come(strict("a", 1))
				w.next()
				w.BeginCycle()
				w.RecordChange(Freed)
				w.Begin("a", w.now)
				w.Fail(strict("a", 1), AttemptFailure{}, w.now)
				w.next()
			},
			"a a",
		},
		"what would fit on no empty node waits for nodes, and for no pod that it depends on": {
			func(w *world) {
				w.come(strict("a", 1))
				w.next()
				w.BeginCycle()
				w.Begin("a", w.now)
				w.Fail(strict("a", 1), AttemptFailure{Hopeless: true, Coupled: true}, w.now)
				w.RecordChange(Freed)
				w.RecordChange(PodsMoved)
				w.next()
				w.RecordChange(NodesChanged)
				w.next()
			},
			"a nobody a",
		},
		"one that asks for no less than one before it is not tried": {
			func(w *world) {
				w.come(strict("a", 3), strict("b", 2), strict("c", 1))
				w.tryAll(0) // 100, 99 and 98 members
				w.RecordChange(Freed)
				w.next()
				w.fail(98, 0)
				w.next()
			},
			"a b c nobody a nobody",
		},
		"but is where room is kept for it": {
			func(w *world) {
				w.come(strict("a", 2), strict("b", 1))
				w.tryAll(0)
				w.promised["b"] = true
				w.RecordChange(Freed)
				w.next()
				w.fail(1, 0)
				w.next()
			},
			"a b nobody a b",
		},
		"attempts in vain keep those to come waiting for four times as long as they took": {
			func(w *world) {
				w.come(strict("a", 1))
				w.next()
				w.fail(1, time.Second)
				w.RecordChange(Freed)
				w.now = w.now.Add(3900 * time.Millisecond)
				w.next()
				w.now = w.now.Add(100 * time.Millisecond)
				w.next()
			},
			"a nobody a",
		},
		"but none that comes before": {
			func(w *world) {
				w.come(strict("a", 1))
				w.next()
				w.fail(1, time.Second)
				w.RecordChange(Freed)
				w.come(strict("after", 0), strict("before", 2))
				w.next()
				w.fail(5, 0)
				w.next()
			},
			"a before nobody",
		},
		"nor one that has come long ago, once the first was looked at since": {
			func(w *world) {
				w.come(strict("a", 1))
				w.next()
				w.come(strict("after", 0))
				w.fail(1, 10*time.Second)
				w.RecordChange(Freed)
				w.next()
				w.now = w.now.Add(maxHeadOfLineWait)
				w.next()
			},
			"a nobody after",
		},
		"meanwhile pods of queues have their turns": {
			func(w *world) {
				w.come(queued("1", strict("gang", 1)))
				w.next()
				w.fail(1, time.Second)
				w.RecordChange(Freed)
				w.has = []Job{queued("2", strict("pod", 0))}
				w.next()
				w.now = w.now.Add(maxHeadOfLineWait)
				w.next()
				w.has = nil
				w.fail(1, 0)
				w.next()
				w.now = w.now.Add(4*time.Second - maxHeadOfLineWait)
				w.next()
			},
			"gang nobody pod nobody gang",
		},
		"the last in rank has its turn after a minute": {
			func(w *world) {
				w.come(strict("a", 2), strict("b", 1))
				w.tryAll(0)
				w.now = w.now.Add(59 * time.Second)
				w.RecordChange(Freed)
				w.next()
				w.fail(50, 0)
				w.RecordChange(Freed)
				w.next()
				w.now = w.now.Add(time.Second)
				w.fail(50, 0)
				w.RecordChange(Freed)
				w.next()
			},
			"a b nobody a a b",
		},
		"a job that does not show up is passed over": {
			func(w *world) {
				w.come(strict("a", 2), strict("b", 1))
				w.next()
				w.now = w.now.Add(showUp)
				w.next()
			},
			"a b",
		},
		"one that has begun is waited for": {
			func(w *world) {
				w.come(strict("a", 2), strict("b", 1))
				w.next()
				w.Begin("a", w.now)
				w.now = w.now.Add(time.Second)
				w.next()
				w.Withdraw("a") // it is placed
				w.next()
			},
			"a nobody b",
		},
		"one that is blocked, or in a pause, has no turn": {
			func(w *world) {
				blocked, pauses := strict("blocked", 3), strict("pauses", 2)
				blocked.Blocked, pauses.NotBefore = true, start.Add(time.Second)
				w.come(blocked, pauses, strict("c", 1))
				w.next()
				w.fail(1, 0)
				w.now = start.Add(time.Second)
				w.next()
				blocked.Blocked = false
				w.come(blocked)
				w.fail(1, 0)
				w.next()
			},
			"c pauses blocked",
		},
		"queues decide among their jobs, and rank between the first of these and those in none": {
			func(w *world) {
				w.come(queued("2", strict("two", 9)), queued("1", strict("one", 1)), strict("none", 5))
				w.tryAll(0)
			},
			"none one two nobody",
		},
		"jobs that the policy has, too": {
			func(w *world) {
				w.has = []Job{queued("1", strict("pod", 0))}
				w.come(queued("1", strict("gang", 1)), queued("2", strict("other", 9)))
				w.next()
				w.fail(1, 0)
				w.next()
				w.has = nil
				w.fail(1, 0)
				w.next()
			},
			"gang pod other",
		},
		"a pod in vain lets one have its turn that waits for too long": {
			func(w *world) {
				w.has = []Job{queued("1", strict("pod", 9))}
				w.come(queued("1", strict("gang", 1)))
				w.next()
				w.now = w.now.Add(newcomerPatience)
				w.fail(1, 0)
				w.next()
				w.fail(1, 0)
				w.next()
			},
			"pod gang pod",
		},
		"or one that the policy has": {
			func(w *world) {
				w.has = []Job{queued("1", strict("pod", 9))}
				w.late = []Job{queued("2", strict("late", 1))}
				w.next()
				w.fail(1, 0)
				w.next()
				w.fail(1, 0)
				w.next()
			},
			"pod late pod",
		},
		"while an event is passed on, no job of a queue": {
			func(w *world) {
				w.passing = true
				w.has = []Job{queued("1", strict("pod", 0))}
				w.come(queued("1", strict("gang", 1)), strict("none", 1))
				w.next()
				w.fail(1, 0)
				w.next()
				w.passing = false
				w.next()
			},
			"none nobody gang",
		},
		"single pods and gangs have their turns by rank": {
			func(w *world) {
				w.come(pod("low", 1), strict("gang", 5), pod("high", 9))
				w.RecordChange(Freed)
				w.tryAll(0)
			},
			"high gang low nobody",
		},
		"a single pod that failed keeps those after it waiting for a moment": {
			func(w *world) {
				w.come(pod("high", 9), pod("low", 1))
				w.RecordChange(Freed)
				w.next()
				w.fail(1, 5*time.Millisecond)
				w.RecordChange(Freed)
				w.next()
				w.now = w.now.Add(20 * time.Millisecond)
				w.next()
				w.Withdraw("high") // it is placed
				w.next()
			},
			"high nobody high low",
		},
		"one that gives another reason is tried though it asks for no less": {
			func(w *world) {
				w.come(pod("a", 2), pod("b", 1), pod("c", 0))
				w.tryAll(0)
				w.RecordChange(Freed)
				w.next()
				w.BeginCycle()
				w.Begin("a", w.now)
				w.Fail(pod("a", 2), AttemptFailure{Shape: Shape{Key: 1, Members: 1, Request: resource.Vector{"gpu": 1}}, Why: 7}, w.now)
				w.next()
			},
			"a b c nobody a b",
		},
		"one for which no pod could be evicted shows nothing about others": {
			func(w *world) {
				w.come(strict("a", 2), strict("b", 1))
				w.tryAll(0)
				w.RecordChange(Freed)
				w.next()
				w.BeginCycle()
				w.Begin("a", w.now)
				o := AttemptFailure{Shape: Shape{Key: 1, Members: 1, Request: resource.Vector{"gpu": 1}}, EvictsNone: true}
				w.Fail(strict("a", 2), o, w.now)
				w.next()
			},
			"a b nobody a b",
		},
		"but not where all were looked at in between": {
			func(w *world) {
				w.come(strict("high", 9), strict("low", 1))
				w.tryAll(0)
				w.log = nil
				for range 20 {
					w.RecordChange(Freed)
					w.next()
					w.fail(1, 0)
					w.next()
				}
			},
			"high" + strings.Repeat(" nobody high", 19) + " nobody",
		},
		"a pod that comes to a node during an attempt changes nothing for those that ask for no less": {
			func(w *world) {
				w.come(strict("a", 2), strict("b", 1))
				w.tryAll(0)
				w.RecordChange(Freed)
				w.next()
				w.BeginCycle()
				w.Begin("a", w.now)
				w.RecordChange(PodsMoved)
				w.Fail(strict("a", 2), AttemptFailure{Shape: Shape{Key: 1, Members: 1, Request: resource.Vector{"gpu": 1}}}, w.now)
				w.next()
			},
			"a b nobody a nobody",
		},
		"after eleven turns in vain in a row the next in order has one": {
			func(w *world) {
				w.come(pod("high", 9), strict("gang", 5), pod("low", 1))
				w.tryAll(0)
				for members := 50; members > 36; members-- {
					w.RecordChange(Freed)
					w.next()
					w.fail(members, 5*time.Millisecond)
					w.now = w.now.Add(20 * time.Millisecond)
				}
			},
			"high gang low nobody" + strings.Repeat(" high", 11) + " gang high high",
		},
		"however long its pauses are": {
			func(w *world) {
				w.come(strict("high", 9), strict("low", 1))
				w.tryAll(0)
				for members := 50; members > 36; members-- {
					w.RecordChange(Freed)
					w.next()
					w.fail(members, 25*time.Millisecond)
					w.now = w.now.Add(100 * time.Millisecond)
				}
			},
			"high low nobody" + strings.Repeat(" high", 11) + " low high high",
		},
		"a change that comes in a pause is looked at by the first in order first": {
			func(w *world) {
				w.come(strict("gang", 9), pod("low", 1))
				w.tryAll(0)
				w.RecordChange(Freed)
				w.next()
				w.fail(1, 100*time.Millisecond)
				w.RecordChange(Freed)
				w.next()
				w.now = w.now.Add(400 * time.Millisecond)
				w.next()
			},
			"gang low nobody gang nobody gang",
		},
		"in a longer pause of a gang others have their turns after half a second": {
			func(w *world) {
				w.come(strict("gang", 9), pod("low", 1), pod("lower", 0))
				w.next()
				w.fail(1, time.Second)
				w.RecordChange(Freed)
				w.next()
				w.now = w.now.Add(maxHeadOfLineWait)
				w.next()
				w.fail(2, 0)
				w.next()
				w.fail(3, 0)
				w.now = w.now.Add(4*time.Second - maxHeadOfLineWait)
				w.next()
			},
			"gang nobody low lower gang",
		},
		"also where two gangs wait for each other's pauses": {
			func(w *world) {
				w.come(strict("a", 9), strict("b", 8), pod("low", 1))
				w.tryAll(0)
				for w.log[len(w.log)-1] != "low" {
					w.RecordChange(Freed)
					w.next()
					w.fail(200, 25*time.Millisecond)
					if w.next() == "nobody" { // b pauses
						w.now = w.now.Add(40 * time.Millisecond)
						w.RecordChange(Freed)
						w.next() // a pauses
						w.now = w.now.Add(60 * time.Millisecond)
					}
				}
			},
			"a b low nobody" + strings.Repeat(" a nobody nobody", 4) + " a low",
		},
		"and again after as long in the next pause": {
			func(w *world) {
				w.come(strict("gang", 9), pod("low", 1))
				w.tryAll(0)
				for members := 50; members > 47; members-- {
					w.RecordChange(Freed)
					w.next()
					w.fail(members, 200*time.Millisecond)
					w.RecordChange(Freed)
					w.next()
					w.now = w.now.Add(maxHeadOfLineWait)
					if w.next() == "low" {
						w.fail(members, 0)
					}
					w.now = w.now.Add(300 * time.Millisecond)
				}
			},
			"gang low nobody" + strings.Repeat(" gang nobody low", 3),
		},
		"a single pod that comes to the gate again is a candidate": {
			func(w *world) {
				w.come(pod("a", 1))
				w.tryAll(0)
				enters := w.Enters("a")
				w.next()
				if enters || !w.Enters("a") || !w.Enters("unknown") {
					w.t.Error("it enters without its turn, or not in it")
				}
			},
			"a nobody a",
		},
		"one that is recalled is tried again, and no other": {
			func(w *world) {
				w.come(strict("a", 2), strict("b", 1))
				w.tryAll(0)
				w.Recall("a")
				w.Recall("unknown")
				w.next()
				w.Recall("a") // it has its turn
				w.fail(1, 0)
				w.next()
			},
			"a b nobody a nobody",
		},
		"one that has changed is tried though it asks for no less": {
			func(w *world) {
				w.come(pod("a", 2), pod("b", 1))
				w.tryAll(0)
				w.RecordChange(Freed)
				w.next()
				w.fail(1, 0)
				w.next()
				w.Renew("b", w.now)
				w.next()
			},
			"a b nobody a nobody b",
		},
		"the end of a victim helps others, and the job once all have ended": {
			func(w *world) {
				w.come(strict("a", 2), strict("b", 1))
				w.tryAll(0)
				w.making["a"] = true
				w.BeginCycle()
				w.RecordChange(VictimEnded)
				w.next()
				w.fail(1, 0)
				w.next()
				w.making["a"] = false
				w.RecordChange(VictimEnded)
				w.next()
			},
			"a b nobody b nobody a",
		},
		"who asks for as much as one that finds victims when it is tried again may find some, too": {
			func(w *world) {
				w.come(strict("a", 5), strict("b", 5))
				w.next()
				w.fail(3, 0)
				w.next()
				w.fail(3, 0)
				w.RecordChange(Freed)
				w.next()
				w.fail(3, 0)
				w.next()
				w.Recall("a")
				w.next()
				w.fail(3, 0)
				w.making["a"] = true
				w.next()
			},
			"a b a nobody a b",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newWorld(t)
			c.play(w)
			if got := strings.Join(w.log, " "); got != c.want {
				t.Errorf("turns: %s, want %s", got, c.want)
			}
		})
	}
}

// TestAwaits: what is said of a job is final if it will not be tried as things are.
func TestAwaits(t *testing.T) {
	w := newWorld(t)
	awaits := func(want bool, until time.Time, when string) {
		t.Helper()
		if got, at := w.Awaits("a", w.now); got != want || want && !at.Equal(until) {
			t.Errorf("%s: awaits an attempt %t, by %v; want %t, %v", when, got, at, want, until)
		}
	}
	awaits(false, time.Time{}, "it is not known")
	w.come(strict("a", 1))
	awaits(true, time.Time{}, "it has come")
	w.next()
	w.Begin("a", w.now)
	awaits(true, w.now.Add(longestAttempt), "in its attempt")
	w.fail(1, time.Second)
	awaits(false, time.Time{}, "it did not fit")
	w.making["a"] = true
	awaits(true, time.Time{}, "victims make room for it")
	w.making["a"] = false
	w.RecordChange(Freed)
	awaits(true, w.now.Add(4*time.Second), "something has changed")
	failed := strict("a", 1)
	failed.Failures, failed.NotBefore, failed.Changes, failed.Tried = 1, w.now.Add(5*time.Second), 1, true
	w.Withdraw("a")
	w.come(failed)
	awaits(true, failed.NotBefore, "its round failed")
	failed.Failures = awaitedFailures + 1
	w.come(failed)
	awaits(false, time.Time{}, "its rounds fail again and again")
}

// BenchmarkNext asks who is next after a change, while many jobs rest, none of which speaks for another.
func BenchmarkNext(b *testing.B) {
	for _, jobs := range []int{100, 1000, 5000} {
		b.Run(fmt.Sprintf("%d resting", jobs), func(b *testing.B) {
			w := newWorld(nil)
			for i := range jobs {
				w.come(strict(fmt.Sprintf("job-%04d", i), 0))
			}
			for members := jobs; ; members-- {
				if _, _, ok, _ := w.Next(w.now, true); !ok {
					break
				}
				w.fail(members, 0)
			}
			for b.Loop() {
				w.RecordChange(Freed)
				if _, _, ok, _ := w.Next(w.now, true); !ok {
					b.Fatal("no job is next")
				}
				w.fail(1, 0)
			}
		})
	}
}

// TestNobodyStarves: where attempts are long and all fail, and a single pod goes ahead in each pause of the first in
// order, the first in order has its turns, and so have all others within the time that rules 5 and 7 give them.
func TestNobodyStarves(t *testing.T) {
	const cost, lows = 150 * time.Millisecond, 40
	w := newWorld(t)
	w.come(strict("first", 9), pod("single", 0))
	last := map[string]time.Time{"first": start, "single": start}
	for i := range lows {
		name := fmt.Sprint("low-", i)
		w.come(strict(name, 1))
		last[name] = start
	}
	worst := map[bool]time.Duration{} // whether it is the first
	end := start.Add(20 * time.Minute)
	note := func(name string, now time.Time) {
		worst[name == "first"] = max(worst[name == "first"], now.Sub(last[name]))
		last[name] = now
	}
	for w.now.Before(end) {
		w.RecordChange(Freed)
		j, _, ok, _ := w.Next(w.now, true)
		if !ok {
			w.now = w.now.Add(5 * time.Millisecond)
			continue
		}
		note(j.Name, w.now)
		w.BeginCycle()
		w.Begin(j.Name, w.now)
		took := cost
		if j.Single {
			took = time.Millisecond
		}
		w.now = w.now.Add(took)
		w.Fail(w.jobs[j.Name].Job, AttemptFailure{Cost: took}, w.now)
	}
	for name := range last {
		note(name, end)
	}
	if most := retryAnyway + 2*retryShare*cost*lows; worst[false] > most {
		t.Errorf("a job of low rank had no turn for %s, want at most %s", worst[false], most)
	}
	if most := retryAnyway + 2*retryShare*cost; worst[true] > most {
		t.Errorf("the first in order had no turn for %s, want at most %s", worst[true], most)
	}
}
