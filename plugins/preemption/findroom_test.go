package preemption

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/reservations/reservepods"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate/evictionrecord"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// victimsOf names the victims of a search.
func (s *stage) victimsOf(t *testing.T, d *demand) string {
	t.Helper()
	f, err := s.search(s.ctx, d)
	must.Succeed(t, err)
	return f.names()
}

// names returns the names of the victims, sorted; "none" where there is no room to be made.
func (f *found) names() string {
	if f == nil {
		return "none"
	}
	var names []string
	for _, pod := range f.victims {
		names = append(names, pod.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func members(name string, n, min int, priority int32, gpus int, on ...string) []*v1.Pod {
	var pods []*v1.Pod
	for i := range n {
		node := ""
		if len(on) > 0 {
			node = on[i%len(on)]
		}
		pods = append(pods, member(name, i, min, priority, gpus, node))
	}
	return pods
}

func TestSearch(t *testing.T) {
	two := []*v1.Node{node("n0", 4, "r0"), node("n1", 4, "r1")}
	ending := func(pods []*v1.Pod) []*v1.Pod {
		for _, pod := range pods {
			now := metav1.Now()
			pod.DeletionTimestamp = &now
		}
		return pods
	}
	system := func(pods []*v1.Pod) []*v1.Pod {
		for _, pod := range pods {
			pod.Namespace = metav1.NamespaceSystem
		}
		return pods
	}
	guarded := func(pods []*v1.Pod) []*v1.Pod {
		for _, pod := range pods {
			pod.Labels = map[string]string{"guarded": "yes"}
		}
		return pods
	}
	running, apart := members("p", 1, 2, 100, 1, "n1"), members("p", 2, 3, 100, 1, "n1", "n0")
	for sentence, c := range map[string]struct {
		pods      []*v1.Pod
		preemptor []*v1.Pod
		spec      gangspec.Spec
		want      string
	}{
		"surplus goes before a whole gang": {
			pods:      slices.Concat(members("elastic", 4, 2, 10, 1, "n0"), members("rigid", 4, 4, 10, 1, "n1")),
			preemptor: members("p", 2, 2, 100, 1), want: "elastic-2 elastic-3",
		},
		"a gang goes whole, with what it has elsewhere": {
			pods:      slices.Concat(members("rigid", 4, 4, 10, 1, "n0", "n1"), members("high", 4, 4, 100, 1, "n0", "n1")),
			preemptor: members("p", 1, 1, 100, 2), want: "rigid-0 rigid-1 rigid-2 rigid-3",
		},
		"equal priority stays": {
			pods: slices.Concat(members("a", 4, 1, 100, 1, "n0"), members("b", 4, 1, 100, 1, "n1")), preemptor: members("p", 1, 1, 100, 1), want: "none",
		},
		"nobody goes where sums would do and nodes do not": {
			pods:      slices.Concat(members("high", 6, 1, 100, 1, "n0", "n1"), members("low", 2, 1, 10, 1, "n0", "n1")),
			preemptor: members("p", 1, 1, 100, 2), want: "none",
		},
		"room is made inside one domain": {
			pods:      slices.Concat(members("a", 4, 1, 10, 1, "n0"), members("b", 4, 1, 20, 1, "n1")),
			preemptor: members("p", 3, 3, 100, 1), spec: gangspec.Spec{RequiredTopology: rack}, want: "a-1 a-2 a-3",
		},
		"of domains the one with surplus, though it lacks more": {
			pods:      slices.Concat(members("rigid", 3, 3, 10, 1, "n0"), members("elastic", 4, 1, 10, 1, "n1")),
			preemptor: members("p", 3, 3, 100, 1), spec: gangspec.Spec{RequiredTopology: rack}, want: "elastic-1 elastic-2 elastic-3",
		},
		"of domains the one of the less important": {
			pods:      slices.Concat(members("mid", 3, 3, 50, 1, "n0"), members("low", 4, 4, 10, 1, "n1")),
			preemptor: members("p", 3, 3, 100, 1), spec: gangspec.Spec{RequiredTopology: rack}, want: "low-0 low-1 low-2 low-3",
		},
		"surplus that lies together is taken together": {
			pods:      members("elastic", 8, 4, 10, 1, "n0", "n1"),
			preemptor: members("p", 1, 1, 100, 4), want: "elastic-0 elastic-2 elastic-4 elastic-6",
		},
		"members that run name the domain": {
			pods:      slices.Concat(members("a", 4, 1, 10, 1, "n0"), members("b", 3, 1, 10, 1, "n1"), running),
			preemptor: slices.Concat(running, members("p", 2, 2, 100, 1)[1:]), spec: gangspec.Spec{RequiredTopology: rack}, want: "b-2",
		},
		"of members that run in two domains the first names it": {
			pods:      slices.Concat(members("a", 3, 1, 10, 1, "n0"), members("b", 3, 1, 10, 1, "n1"), apart),
			preemptor: slices.Concat(apart, members("p", 3, 3, 100, 1)[2:]), spec: gangspec.Spec{RequiredTopology: rack}, want: "b-2",
		},
		"a domain is preferred where anywhere would cost as much": {
			pods:      slices.Concat(members("a", 4, 4, 10, 1, "n0"), members("b", 4, 4, 10, 1, "n1")),
			preemptor: members("p", 3, 3, 100, 1), spec: gangspec.Spec{Layout: gangspec.Layout{Levels: []gangspec.Level{{Key: rack}}}}, want: "a-0 a-1 a-2 a-3",
		},
		"a gang does not go for a preference": {
			pods:      slices.Concat(members("rigid", 2, 2, 10, 1, "n0"), members("e", 4, 2, 10, 1, "n1")),
			preemptor: members("p", 3, 3, 100, 1), spec: gangspec.Spec{Layout: gangspec.Layout{Levels: []gangspec.Level{{Key: rack}}}}, want: "e-3",
		},
		"where pods are ending anyhow nobody else goes": {
			pods: slices.Concat(ending(members("a", 4, 4, 10, 1, "n0")), members("b", 4, 4, 10, 1, "n1")), preemptor: members("p", 1, 1, 100, 1),
		},
		"what the system needs stays": {
			pods: slices.Concat(system(members("a", 4, 1, 10, 1, "n0")), members("b", 4, 4, 50, 1, "n1")), preemptor: members("p", 1, 1, 100, 1), want: "b-0 b-1 b-2 b-3",
		},
		"what a budget guards goes last": {
			pods: slices.Concat(guarded(members("a", 1, 0, 10, 4, "n0")), members("b", 1, 0, 10, 4, "n1")), preemptor: members("p", 1, 1, 100, 4), want: "b-0",
		},
		"a gang below its minimum, and nobody knows since when, is in repair": {
			pods: slices.Concat(members("broken", 2, 4, 50, 2, "n0"), members("low", 4, 4, 10, 1, "n1")), preemptor: members("p", 1, 1, 100, 2), want: "low-0 low-1 low-2 low-3",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			budget := &policyv1.PodDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"},
				Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"guarded": "yes"}}},
			}
			s := newStage(t, two, c.pods, budget)
			if diff := cmp.Diff(c.want, s.victimsOf(t, s.demand(t, c.spec, c.preemptor...))); diff != "" {
				t.Errorf("victims (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSparedForAWhile: a gang that began to run not long ago is left alone; the preemptor gets that as its reason,
// comes again, and evicts it later. A queue may set another time for its own.
func TestSparedForAWhile(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now().Truncate(time.Second))
	runs := members("v", 4, 4, 10, 1, "n0")
	for _, pod := range runs {
		pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(clock.Now())}}
	}
	s := newStage(t, []*v1.Node{node("n0", 4, "r0")}, runs)
	s.clock, s.args.MinRuntime.Duration = clock, time.Minute
	preemptor := members("p", 1, 0, 100, 4)[0]
	refused := func(want string) {
		t.Helper()
		_, status := s.PostFilter(s.ctx, framework.NewCycleState(), preemptor, nil)
		if got := status.Message(); got != "preemption: "+want {
			t.Errorf("it is told %q, want %q", got, want)
		}
	}
	refused(msgProtected)
	refused(msgProtected) // it pauses, if the search took a while
	clock.Step(time.Minute)
	d := s.demand(t, gangspec.Spec{}, members("q", 1, 1, 100, 4)...)
	if got := s.victimsOf(t, d); got != "v-0 v-1 v-2 v-3" || !d.protectedUntil.IsZero() {
		t.Errorf("a minute later: victims %q, spared until %s", got, d.protectedUntil)
	}
	clock.Step(-time.Minute)
	round := extensionpoints.Preempt(100)
	for says, want := range map[time.Duration]string{0: "v-0 v-1 v-2 v-3", time.Hour: "none"} {
		round.MinRuntime = func(*v1.Pod) (time.Duration, bool) { return says, true }
		d := s.demand(t, gangspec.Spec{}, members("q", 1, 1, 100, 4)...)
		d.startTimer(clock, time.Minute)
		f, err := s.searchRound(s.ctx, d, nil, nil, &round)
		if got := f.names(); err != nil || got != want {
			t.Errorf("in a queue that says %s: victims %q, want %q", says, got, want)
		}
	}
}

// TestSearchBehindMany: domains that only seem to be of use do not hide one that is.
func TestSearchBehindMany(t *testing.T) {
	var nodes []*v1.Node
	var pods []*v1.Pod
	for i := range 8 {
		name := fmt.Sprint("n", i)
		nodes = append(nodes, node(name, 4, fmt.Sprint("r", i)))
		gang := members(fmt.Sprint("g", i), 4, 4, 10, 1, name)
		if i < 7 {
			gang[3].Spec.Priority = ptr.To(int32(200)) // and so the gang cannot go whole
		}
		pods = append(pods, gang...)
	}
	s := newStage(t, nodes, pods)
	if got, want := s.victimsOf(t, s.demand(t, gangspec.Spec{RequiredTopology: rack}, members("p", 3, 3, 100, 1)...)), "g7-0 g7-1 g7-2 g7-3"; got != want {
		t.Errorf("victims %q, want %q", got, want)
	}
}

// TestSearchOfThePolite: a preemptor that never evicts still gets what is only held for the less important.
func TestSearchOfThePolite(t *testing.T) {
	s := newStage(t, []*v1.Node{node("n0", 2, "r0")}, members("v", 1, 1, 10, 1, "n0"))
	s.Holds.Nominate(hold.Hold{For: "other", Holder: hold.Holder{Profile: "lockstep-scheduler", Group: "default/other"}, Node: "n0", Priority: 50, Request: map[v1.ResourceName]int64{gpu: 1}})
	preemptor := members("p", 2, 1, 100, 1)
	for _, pod := range preemptor {
		pod.Spec.PreemptionPolicy = ptr.To(v1.PreemptNever)
	}
	if got := s.victimsOf(t, s.demand(t, gangspec.Spec{}, preemptor[0])); got != "" {
		t.Errorf("victims %q, want room without any", got)
	}
	if got := s.victimsOf(t, s.demand(t, gangspec.Spec{}, preemptor...)); got != "none" {
		t.Errorf("victims %q, want no room", got)
	}
}

// TestHoldsOfOthers: what is held for a more important gang cannot be taken; what is held for a less important one can
// be, without an eviction.
func TestHoldsOfOthers(t *testing.T) {
	for sentence, c := range map[string]struct {
		priority int32
		want     string
	}{"more important": {200, "none"}, "less important": {50, ""}} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t, []*v1.Node{node("n0", 4, "r0")}, nil)
			s.Holds.Nominate(hold.Hold{For: "other", Holder: hold.Holder{Profile: "lockstep-scheduler", Group: "default/other"}, Node: "n0", Priority: c.priority, Request: map[v1.ResourceName]int64{gpu: 4}})
			if got := s.victimsOf(t, s.demand(t, gangspec.Spec{}, members("p", 2, 2, 100, 1)...)); got != c.want {
				t.Errorf("victims %q, want %q", got, c.want)
			}
		})
	}
}

// TestSearchesHold holds searches on small random clusters, through the real filters, against what can be said of any
// right one.
func TestSearchesHold(t *testing.T) {
	evicted, refused := 0, 0
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 7))
		var nodes []*v1.Node
		free := map[string]int{}
		for i := range 1 + r.IntN(6) {
			name := fmt.Sprint("n", i)
			free[name] = 1 + r.IntN(8)
			nodes = append(nodes, node(name, free[name], fmt.Sprint("r", i%2)))
		}
		var running []*v1.Pod
		mins := map[string]int{}
		for g := range 1 + r.IntN(5) {
			name := string(rune('a' + g))
			priority, size := int32(10*r.IntN(4)), 1+r.IntN(2)
			mins[name] = 1 + r.IntN(5)
			for i := range 1 + r.IntN(6) {
				on := fmt.Sprint("n", r.IntN(len(nodes)))
				if free[on] >= size {
					free[on] -= size
					running = append(running, member(name, i, mins[name], priority, size, on))
				}
			}
		}
		preemptor := members("p", 1+r.IntN(5), 1, 20, 1+r.IntN(3))
		s := newStage(t, nodes, running)
		f, err := s.search(s.ctx, s.demand(t, gangspec.Spec{}, preemptor...))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		size := preemptor[0].Spec.Containers[0].Resources.Requests[gpu]
		fits := func(gone map[types.UID]bool) bool {
			room, slots := map[string]int{}, 0
			for name, n := range free {
				room[name] = n
			}
			for _, pod := range running {
				if gone[pod.UID] {
					amount := pod.Spec.Containers[0].Resources.Requests[gpu]
					room[pod.Spec.NodeName] += int(amount.Value())
				}
			}
			for _, n := range room {
				slots += n / int(size.Value())
			}
			return slots >= len(preemptor)
		}
		gone := map[types.UID]bool{}
		if f == nil && fits(nil) {
			continue // room needs no making
		}
		if f == nil {
			refused++
			for _, pod := range running {
				gone[pod.UID] = *pod.Spec.Priority < 20
			}
			if fits(gone) {
				t.Errorf("seed %d: nobody was chosen, and it fits when all that may go do", seed)
			}
			continue
		}
		for _, pod := range f.victims {
			gone[pod.UID] = true
			if *pod.Spec.Priority >= 20 {
				t.Errorf("seed %d: %s goes, of priority %d", seed, pod.Name, *pod.Spec.Priority)
			}
		}
		if len(gone) > 0 {
			evicted++
		}
		if !fits(gone) || len(f.plan.Nodes) != len(preemptor) {
			t.Errorf("seed %d: it does not fit: %d of %d are placed", seed, len(f.plan.Nodes), len(preemptor))
		}
		before, after := map[string]int{}, map[string]int{}
		for _, pod := range running {
			name := pod.Annotations["gang.scheduling.koordinator.sh/name"]
			before[name]++
			if !gone[pod.UID] {
				after[name]++
			}
		}
		for name, n := range before {
			if left := after[name]; n >= mins[name] && left > 0 && left < mins[name] {
				t.Errorf("seed %d: %d of gang %s stay, below its minimum of %d", seed, left, name, mins[name])
			}
		}
	}
	if evicted < 40 || refused < 40 {
		t.Errorf("%d evictions and %d refusals tell little", evicted, refused)
	}
}

// TestSearchBesideOthersOfTheGroup: a gang is bound to the domain of its own members, not to that of another
// gang of its group.
func TestSearchBesideOthersOfTheGroup(t *testing.T) {
	nodes := []*v1.Node{node("n0", 4, "r0"), node("n1", 4, "r1")}
	other := members("other", 4, 4, 100, 1, "n0")
	s := newStage(t, nodes, slices.Concat(other, members("low", 4, 4, 10, 1, "n1")))
	spec := gangspec.Spec{RequiredTopology: rack}
	d := s.demand(t, spec, members("p", 2, 2, 100, 1)...)
	running := gangstate.Need{Key: gangspec.Key{Namespace: "default", Name: "other"}, Spec: spec}
	for _, pod := range other {
		running.Placed = append(running.Placed, gangstate.Placed{Pod: pod, Node: pod.Spec.NodeName})
	}
	d.attempt.Gangs = append([]gangstate.Need{running}, d.attempt.Gangs...)
	if got, want := s.victimsOf(t, d), "low-0 low-1 low-2 low-3"; got != want {
		t.Errorf("victims %q, want %q", got, want)
	}
}

// TestReservationsThatEvictNothing: a Reservation has neither members nor a PodGroup that could have a policy.
func TestReservationsThatEvictNothing(t *testing.T) {
	for name, want := range map[string]string{"train-0": msgNever, reservepods.PodName("r", 0): msgReserves} {
		d := &demand{never: true, leader: st.MakePod().Name(name).Obj()}
		if got := (&GangPreemption{}).noVictimsMessage(d); got != want {
			t.Errorf("%s is told %q, want %q", name, got, want)
		}
	}
}

// queuesFor are queues in which all pods are in one; empty for no queues.
type queuesFor string

func (q queuesFor) EvictedDemand([]*v1.Pod) evictionrecord.Demand {
	return evictionrecord.Demand{Queue: string(q)}
}
func (q queuesFor) QueueOf(*v1.Pod) string            { return string(q) }
func (q queuesFor) CurrentWait(*v1.Pod) queueing.Wait { return queueing.Wait{} }

// fullQueues are queues of which others have taken what they may use.
type fullQueues struct{ queuesFor }

func (fullQueues) CurrentWait(*v1.Pod) queueing.Wait {
	return queueing.Wait{Reason: queueing.Capability}
}

// TestExtraMembersEvictNothing: only where there are queues is it said what these reclaim for extra members.
func TestExtraMembersEvictNothing(t *testing.T) {
	for queue, want := range map[queuesFor]string{"": msgBeyond, "research": msgBeyond + msgReclaims} {
		d := &demand{leader: st.MakePod().Name("train-9").Obj()}
		d.gang.Beyond = true
		if got := (&GangPreemption{Shared: Shared{Queues: queue}}).noVictimsMessage(d); got != want {
			t.Errorf("in queue %q it is told %q, want %q", queue, got, want)
		}
	}
}
