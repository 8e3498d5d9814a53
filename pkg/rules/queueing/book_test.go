package queueing

import (
	"fmt"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/share"
)

const (
	gpu v1.ResourceName = "nvidia.com/gpu"
	cpu                 = v1.ResourceCPU
)

func gpus(n int64) Vector { return Vector{gpu: n} }

// tier is the policies of the default tier.
var tier = Policies{
	QueueOrder: []config.PolicyName{config.PolicyPriority, config.PolicyProportion, config.PolicyCapacity}, JobOrder: []config.PolicyName{config.PolicyPriority, config.PolicyGang, config.PolicyDRF, config.PolicyPriority},
	Overused: []config.PolicyName{config.PolicyProportion, config.PolicyCapacity}, Rules: share.Rules{Stated: true, Weighted: true}, Preempt: Lower, Reclaim: true,
}

func newBook(policies Policies) *Book {
	b := NewBook("default", func(hold.Holder) int { return 0 })
	b.Configure(Limits{}, policies)
	return b
}

// of returns a job of a queue, offered n-th.
func of(queue string, n int, need Vector) Job {
	return Job{Name: fmt.Sprintf("%s-%d", queue, n), Queue: queue, Created: time.Unix(int64(n), 0), Options: []Needs{{queue: need}}}
}

// turnsOf admits the jobs that it can, and returns their names.
func turnsOf(b *Book) string {
	var names []string
	for {
		j, ok := b.admitNext()
		if !ok {
			return strings.Join(names, " ")
		}
		names = append(names, j.Name)
	}
}

func TestNext(t *testing.T) {
	high := func(j Job) Job { j.Priority = 10; return j }
	both := func(j Job, queue string, n int64) Job { j.Options[0][queue] = gpus(n); return j }
	patient := func(j Job) Job { j.NeverPreempts = true; return j }
	for sentence, c := range map[string]struct {
		total  Vector
		queues []Queue
		count  map[string]Usage
		jobs   []Job
		want   string
		why    map[string]string // of jobs that wait
	}{
		"queues take turns": {
			total: gpus(9), queues: []Queue{{Name: "a"}, {Name: "b"}},
			jobs: []Job{of("a", 1, gpus(1)), of("a", 2, gpus(1)), of("b", 3, gpus(1)), of("b", 4, gpus(1))}, want: "a-1 b-3 a-2 b-4",
		},
		"by weight": {
			total: gpus(9), queues: []Queue{{Name: "a", Weight: 2}, {Name: "b"}},
			jobs: []Job{of("a", 1, gpus(1)), of("a", 2, gpus(1)), of("b", 3, gpus(1)), of("b", 4, gpus(1))}, want: "a-1 b-3 a-2 b-4",
		},
		"a queue of higher priority is served first": {
			total: gpus(9), queues: []Queue{{Name: "a"}, {Name: "b", Priority: 1}},
			jobs: []Job{of("a", 1, gpus(1)), of("b", 3, gpus(1)), of("b", 4, gpus(1))}, want: "b-3 b-4 a-1",
		},
		"inside a queue priority, then age": {
			total: gpus(9), jobs: []Job{of("default", 3, gpus(1)), of("default", 2, gpus(1)), high(of("default", 4, gpus(1)))},
			want: "default-4 default-2 default-3",
		},
		"a job that is not ready before one that is": {
			total: gpus(9), jobs: []Job{{Name: "ready", Queue: "default", Ready: true, Options: []Needs{{"default": gpus(1)}}}, of("default", 5, gpus(1))}, want: "default-5 ready",
		},
		"of those that are ready who has least": {
			total: gpus(9), count: map[string]Usage{"1": {Queue: "default", Gang: "x", Amount: gpus(2), Runs: true}, "2": {Queue: "default", Gang: "y", Amount: gpus(1), Runs: true}, "3": {Queue: "default", Amount: gpus(2)}},
			jobs: []Job{{Name: "x", Gang: "x", Queue: "default", Ready: true, Options: []Needs{{"default": gpus(1)}}}, {Name: "y", Gang: "y", Queue: "default", Ready: true, Options: []Needs{{"default": gpus(1)}}}}, want: "y x",
		},
		"a queue that has its share waits while another has not": {
			total: gpus(4), queues: []Queue{{Name: "a"}, {Name: "b"}},
			count: map[string]Usage{"a1": {Queue: "a", Amount: gpus(2), Runs: true}, "a2": {Queue: "a", Amount: gpus(2)}, "b1": {Queue: "b", Amount: gpus(4)}},
			jobs:  []Job{of("a", 1, gpus(2)), of("b", 2, gpus(2)), of("b", 3, gpus(2))}, want: "b-2",
			why: map[string]string{
				"a-1": `queue "a" is at its share: 2 nvidia.com/gpu used, its share is 2 nvidia.com/gpu`,
				"b-3": `queue "b" is at its share: 2 nvidia.com/gpu used, its share is 2 nvidia.com/gpu`,
			},
		},
		"without other queues a queue shares with nobody": {
			total: gpus(4), count: map[string]Usage{"1": {Queue: "default", Amount: gpus(4), Runs: true}, "2": {Queue: "default", Amount: gpus(2)}},
			jobs: []Job{of("default", 1, gpus(2))},
			why:  map[string]string{"default-1": `the cluster has no free nvidia.com/gpu: 4 nvidia.com/gpu used of 4 nvidia.com/gpu`},
		},
		"a queue below one that has its share, by another that has more than its own": {
			total: gpus(8), queues: []Queue{{Name: "p"}, {Name: "p1", Parent: "p"}, {Name: "p2", Parent: "p"}, {Name: "q"}},
			count: map[string]Usage{"1": {Queue: "p1", Amount: gpus(4), Runs: true}, "2": {Queue: "p2", Amount: gpus(2)}, "3": {Queue: "q", Amount: gpus(4), Runs: true}},
			jobs:  []Job{of("p2", 1, gpus(2))}, want: "p2-1",
		},
		"only for what is short": {
			total: Vector{gpu: 4, cpu: 9}, queues: []Queue{{Name: "a"}, {Name: "b"}},
			count: map[string]Usage{"a1": {Queue: "a", Amount: gpus(2), Runs: true}, "a2": {Queue: "a", Amount: Vector{gpu: 2, cpu: 1}}, "b1": {Queue: "b", Amount: gpus(4)}},
			jobs:  []Job{of("a", 1, gpus(2)), of("a", 2, Vector{cpu: 1})}, want: "a-2",
		},
		"a ceiling holds, also an ancestor's": {
			total: gpus(9), queues: []Queue{{Name: "p", Capability: gpus(3)}, {Name: "a", Parent: "p"}},
			count: map[string]Usage{"a1": {Queue: "a", Amount: gpus(2), Runs: true}, "a2": {Queue: "a", Amount: gpus(2)}},
			jobs:  []Job{of("a", 1, gpus(2))},
			why:   map[string]string{"a-1": `queue "p" would exceed its capability of 3 nvidia.com/gpu: 2 nvidia.com/gpu used, 2 nvidia.com/gpu asked for`},
		},
		"a smaller one passes one that a ceiling keeps waiting": {
			total: gpus(9), queues: []Queue{{Name: "a", Capability: gpus(3)}},
			count: map[string]Usage{"a1": {Queue: "a", Amount: gpus(2), Runs: true}, "a2": {Queue: "a", Amount: gpus(3)}},
			jobs:  []Job{of("a", 1, gpus(2)), of("a", 2, gpus(1))}, want: "a-2",
		},
		"less important ones of its own queue do not keep it waiting for the share": {
			total: gpus(4), queues: []Queue{{Name: "a"}, {Name: "b"}},
			count: map[string]Usage{"a1": {Queue: "a", Amount: gpus(2), Runs: true}, "a2": {Queue: "a", Amount: gpus(3)}, "b1": {Queue: "b", Amount: gpus(4), Runs: true}},
			jobs:  []Job{of("a", 1, gpus(1)), high(of("a", 2, gpus(1))), patient(high(of("a", 3, gpus(1))))}, want: "a-2",
			why: map[string]string{
				"a-1": `queue "a" is above its share: 3 nvidia.com/gpu used, its share is 2 nvidia.com/gpu`,
				"a-3": `queue "a" is above its share: 3 nvidia.com/gpu used, its share is 2 nvidia.com/gpu`,
			},
		},
		"nor under its ceiling": {
			total: gpus(9), queues: []Queue{{Name: "a", Capability: gpus(2)}},
			count: map[string]Usage{"a1": {Queue: "a", Amount: gpus(2), Runs: true}, "a2": {Queue: "a", Amount: gpus(5)}},
			jobs:  []Job{of("a", 1, gpus(1)), high(of("a", 2, gpus(3))), high(of("a", 3, gpus(2)))}, want: "a-3",
		},
		"more important ones do": {
			total: gpus(4), queues: []Queue{{Name: "a", Capability: gpus(2)}},
			count: map[string]Usage{"a1": {Queue: "a", Priority: 10, Amount: gpus(2), Runs: true}, "a2": {Queue: "a", Amount: gpus(5)}},
			jobs:  []Job{high(of("a", 1, gpus(1)))},
		},
		"siblings that have more than they deserve do not keep it waiting under a ceiling above": {
			total: gpus(9), queues: []Queue{{Name: "p", Capability: gpus(4)}, {Name: "a", Parent: "p"}, {Name: "b", Parent: "p"}},
			count: map[string]Usage{"a1": {Queue: "a", Amount: gpus(4), Runs: true}, "b1": {Queue: "b", Amount: gpus(5)}},
			jobs:  []Job{of("b", 1, gpus(2)), of("b", 2, gpus(3))}, want: "b-1",
			why: map[string]string{"b-2": `queue "p" would exceed its capability of 4 nvidia.com/gpu: 6 nvidia.com/gpu used, 3 nvidia.com/gpu asked for`},
		},
		"who asks for something in two queues keeps the limits of both": {
			total: gpus(9), queues: []Queue{{Name: "p", Capability: gpus(3)}, {Name: "a", Parent: "p"}, {Name: "b", Parent: "p", Capability: gpus(1)}, {Name: "shut", Closed: true}},
			jobs: []Job{both(of("a", 1, gpus(2)), "b", 2), both(of("a", 2, gpus(3)), "b", 1), both(of("a", 3, gpus(1)), "shut", 1), both(of("a", 4, gpus(2)), "b", 1), of("b", 5, gpus(1))}, want: "a-4",
			why: map[string]string{
				"a-1": `queue "p" would exceed its capability of 3 nvidia.com/gpu: 0 nvidia.com/gpu used, 4 nvidia.com/gpu asked for`,
				"b-5": `queue "b" would exceed its capability of 1 nvidia.com/gpu: 1 nvidia.com/gpu used, 1 nvidia.com/gpu asked for`,
				"a-3": `queue "shut" is closed`,
			},
		},
		"who can never come under it keeps nobody waiting": {
			total: gpus(9), queues: []Queue{{Name: "a", Capability: gpus(3)}}, jobs: []Job{of("a", 1, gpus(4)), of("a", 2, gpus(3))}, want: "a-2",
		},
		"closed, unknown and loose queues admit nobody": {
			total: gpus(9), queues: []Queue{{Name: "shut", Closed: true}, {Name: "loose", Parent: "gone"}, {Name: "bad", Fault: "spec.deserved[cpu] is -1: want 0 or more"}, {Name: "below", Parent: "bad"}},
			jobs: []Job{of("shut", 1, gpus(1)), of("unknown", 2, gpus(1)), of("loose", 3, gpus(1)), of("bad", 4, gpus(1)), of("below", 5, gpus(1))},
			why: map[string]string{
				"bad-4": `queue "bad" admits no jobs: spec.deserved[cpu] is -1: want 0 or more`, "below-5": `queue "bad" admits no jobs: spec.deserved[cpu] is -1: want 0 or more`,
				"shut-1": `queue "shut" is closed`, "unknown-2": `queue "unknown" does not exist`, "loose-3": `queue "loose" admits no jobs: queue "gone", the parent of "loose", does not exist: create it, or change spec.parent of "loose"`,
			},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			b := newBook(tier)
			b.SetTotal(c.total)
			for _, q := range c.queues {
				q.Weight = max(q.Weight, 1)
				b.SetQueues(q)
			}
			for name, u := range c.count {
				b.Count(name, u)
			}
			for _, j := range c.jobs {
				if len(c.count) == 0 {
					for queue, amount := range j.Options[0] {
						b.Count("pods of "+j.Name+" in "+queue, Usage{Queue: queue, Job: j.Name, Amount: amount})
					}
				}
				b.wait(j)
			}
			if diff := gocmp.Diff(c.want, turnsOf(b)); diff != "" {
				t.Errorf("turns (-want +got):\n%s", diff)
			}
			for name, want := range c.why {
				got := b.Why(name, true)
				if diff := gocmp.Diff(want, got.Message); diff != "" || got.Reason == "" {
					t.Errorf("why %s waits (-want +got):\n%s", name, diff)
				}
			}
		})
	}
}

// TestMinRuntime: a queue states it, or else the nearest above that does.
func TestMinRuntime(t *testing.T) {
	b := newBook(tier)
	b.SetQueues(
		Queue{Name: "company", Weight: 1, MinRuntime: ptr.To(time.Hour)}, Queue{Name: "lab", Parent: "company", Weight: 1},
		Queue{Name: "eager", Parent: "lab", Weight: 1, MinRuntime: ptr.To(time.Duration(0))}, Queue{Name: "patient", Parent: "lab", Weight: 1},
		Queue{Name: "other", Weight: 1}, Queue{Name: "lost", Parent: "nowhere", Weight: 1},
	)
	for queue, want := range map[string]string{"company": "1h0m0s true", "lab": "1h0m0s true", "eager": "0s true", "patient": "1h0m0s true", "other": "0s false", "lost": "0s false", "none": "0s false"} {
		length, says := b.MinRuntime(queue)
		if got := fmt.Sprint(length, says); got != want {
			t.Errorf("queue %s: %s, want %s", queue, got, want)
		}
	}
	b.SetQueues(Queue{Name: "company", Weight: 1, MinRuntime: ptr.To(time.Minute)})
	if length, _ := b.MinRuntime("patient"); length != time.Minute {
		t.Errorf("after a change: %s, want 1m", length)
	}
}

// TestBypass: a big job that does not fit is passed by some, and then waited for.
func TestBypass(t *testing.T) {
	b := opened(Limits{MaxBypass: 2}, 8)
	place := func(j Job) {
		t.Helper()
		b.Count("pods of "+j.Name, Usage{Queue: "default", Job: j.Name, Amount: j.Options[0].Total()})
		b.wait(j)
		if got := turnsOf(b); got != j.Name {
			t.Fatalf("turns %q, want %s", got, j.Name)
		}
		b.Count("pods of "+j.Name, Usage{Queue: "default", Job: j.Name, Amount: j.Options[0].Total(), Runs: true})
	}
	big := of("default", 1, gpus(6))
	big.Title = "gang a/big"
	b.Count("big", Usage{Queue: "default", Job: big.Name, Amount: big.Options[0].Total()})
	miss := func() {
		b.wait(big)
		b.admitNext()
		b.miss(big.Name)
		b.done(big.Name)
	}
	miss()
	place(of("default", 2, gpus(1)))
	miss()
	place(of("default", 3, gpus(1)))
	third, high, other := of("default", 4, gpus(1)), of("default", 5, gpus(1)), of("default", 6, Vector{cpu: 1})
	high.Priority = 1
	for _, j := range []Job{third, high, other} {
		b.Count("pods of "+j.Name, Usage{Queue: "default", Job: j.Name, Amount: j.Options[0].Total()})
	}
	b.SetTotal(Vector{gpu: 8, cpu: 9})
	b.wait(third)
	if got := turnsOf(b); got != "" {
		t.Errorf("turns %q, want that all wait", got)
	}
	want := Wait{Passed, "waiting behind gang a/big, which does not fit; 2 later jobs were already placed"}
	if got := b.Why(third.Name, true); got != want {
		t.Errorf("it waits since %+v, want %+v", got, want)
	}
	b.wait(high)
	b.wait(other)
	if got := turnsOf(b); got != "default-5 default-6" {
		t.Errorf("turns %q, want who is more important, and who asks for something else", got)
	}
	b.missed[big.Name].letOff()
	if got := turnsOf(b); got != third.Name {
		t.Errorf("turns %q once it is let off, want %s", got, third.Name)
	}
}

// TestBypassUnderACeiling: a job that a ceiling keeps waiting is passed by some, and then waited for by the jobs
// of its queue; each time that it is let off it is passed by twice as many.
func TestBypassUnderACeiling(t *testing.T) {
	b := opened(Limits{MaxBypass: 2}, 100)
	for _, q := range []Queue{{Name: "p", Weight: 1, Capability: gpus(40)}, {Name: "a", Parent: "p", Weight: 1}, {Name: "b", Parent: "p", Weight: 1}} {
		b.SetQueues(q)
	}
	b.Count("runs", Usage{Queue: "a", Amount: gpus(20), Runs: true})
	offer := func(j Job) {
		b.Count("pods of "+j.Name, Usage{Queue: j.Queue, Job: j.Name, Amount: j.Options[0].Total()})
		b.wait(j)
	}
	big := of("a", 1, gpus(30))
	offer(big)
	var story []string
	for n := range 7 {
		offer(of("a", 10+n, gpus(1)))
		offer(of("default", 30+n, gpus(1)))
		took := turnsOf(b)
		for _, name := range strings.Fields(took) {
			queue, _, _ := strings.Cut(name, "-")
			b.Count("pods of "+name, Usage{Queue: queue, Job: name, Amount: gpus(1), Runs: true})
		}
		if m := b.missed[big.Name]; m != nil && b.waited(m) && !strings.Contains(took, "a-") {
			took += fmt.Sprint(" waits:", m.rounds)
			b.missed[big.Name].letOff()
		}
		story = append(story, took)
	}
	want := []string{"default-30 a-10", "default-31 a-11", "default-32 waits:0", "default-33 a-12 a-13", "default-34 a-14", "default-35 a-15", "default-36 waits:1"}
	if diff := gocmp.Diff(want, story); diff != "" {
		t.Errorf("turns, round by round (-want +got):\n%s", diff)
	}
	b.Count("runs", Usage{Queue: "a", Amount: gpus(2), Runs: true})
	if got := turnsOf(b); !strings.Contains(got, big.Name) {
		t.Errorf("turns %q once there is room, want %s too", got, big.Name)
	}
}

// BenchmarkNext picks among 10,000 jobs in 1,000 queues.
func BenchmarkNext(b *testing.B) {
	book := newBook(tier)
	book.SetTotal(Vector{gpu: 40000, cpu: 1 << 30})
	for i := range 1000 {
		book.SetQueues(Queue{Name: fmt.Sprint("q", i), Weight: int64(1 + i%7)})
	}
	for i := range 10000 {
		j := of(fmt.Sprint("q", i%1000), i, Vector{gpu: 8, cpu: 1000})
		book.Count("pods of "+j.Name, Usage{Queue: j.Queue, Job: j.Name, Amount: j.Options[0].Total()})
		book.wait(j)
	}
	book.Shares()
	b.ResetTimer()
	for i := 0; b.Loop(); i++ {
		j, ok := book.admitNext()
		if !ok {
			b.Fatal("nobody is admitted")
		}
		book.done(j.Name)
		book.wait(j)
	}
}

// TestBriefBoundOfOneTooLarge: a job that alone asks for more than a ceiling is not told that others have to make way.
func TestBriefBoundOfOneTooLarge(t *testing.T) {
	for need, want := range map[int64]string{4: "other jobs of the queue would have to be preempted", 5: "5 nvidia.com/gpu asked for"} {
		b := Bound{Reason: Capability, Queue: "a", Resource: gpu, Used: 4, Need: need, Most: 4}
		if got := b.Brief(); got != `queue "a" would exceed its capability of 4 nvidia.com/gpu: `+want {
			t.Errorf("%d asked for: %s", need, got)
		}
	}
}
