package planner

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/pkg/planning/podclass"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
	"github.com/lockstep-sh/lockstep/test/helpers/idle"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// simulate opens a room for the length of the test.
func simulate(t *testing.T, p *Planner, a *gangstate.Attempt) *Simulation {
	t.Helper()
	room, err := p.Simulate(t.Context(), a, nil)
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := room.Discard(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return room
}

// roomOf opens a room on all nodes, and returns those that members can use.
func roomOf(t *testing.T, p *Planner, a *gangstate.Attempt) (*Simulation, []int) {
	t.Helper()
	room := simulate(t, p, a)
	nodes, err := room.Restrict(t.Context(), room.AllNodes(), 1)
	must.Succeed(t, err)
	return room, nodes
}

// TestClassesShareRoom: how many members have no place does not depend on whether those that take the same are one
// class or many, nor on whether it is counted anew or kept up as pods come and go.
func TestClassesShareRoom(t *testing.T) {
	short, fits := 0, 0
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var c cluster
		for i := range 3 {
			c.pods = append(c.pods, running(fmt.Sprint("other", i)).Node(fmt.Sprint("n", i)).Req(map[v1.ResourceName]string{gpu: "1"}).Obj())
		}
		a := &gangstate.Attempt{Group: "ns/g", Leader: "m0", Strict: true}
		for g := range 1 + rng.IntN(2) {
			var pods []*v1.Pod
			for i := range 1 + rng.IntN(4) {
				name := fmt.Sprint("m", g, i)
				pods = append(pods, st.MakePod().Namespace("ns").Name(name).UID(name).SchedulerName(v1.DefaultSchedulerName).
					Label("id", name).Req(map[v1.ResourceName]string{gpu: fmt.Sprint(1 + rng.IntN(2))}).Obj())
			}
			need := attemptOf(pods).Gangs[0]
			need.Key.Name = fmt.Sprint("g", g)
			need.Min = 1 + rng.IntN(len(pods))
			a.Gangs = append(a.Gangs, need)
		}
		p := c.planner(t, 1+rng.IntN(3), 1+rng.IntN(3), 1+rng.IntN(3))
		one, nodes := roomOf(t, p, a)
		p.labels = podclass.NewLabelReader(p.fw, nil, true)
		many, _ := roomOf(t, p, a)
		freed := func(node int) (resource.Vector, int) { return resource.Vector{gpu: int64(node % 2)}, 1 }
		compare := func() {
			t.Helper()
			if x, y := one.Short(nodes), many.Short(nodes); x != y {
				t.Errorf("seed %d: %d members are short by %d classes, %d by %d", seed, x, len(one.w.classes), y, len(many.w.classes))
			}
			if x, y := one.ShortWithout(nodes, freed), many.ShortWithout(nodes, freed); x != y {
				t.Errorf("seed %d, with more freed: %d members are short by %d classes, %d by %d", seed, x, len(one.w.classes), y, len(many.w.classes))
			}
			for _, room := range []*Simulation{one, many} {
				if kept, anew := room.short(room.sum, room.sumAlike), room.Short(nodes); kept != anew {
					t.Errorf("seed %d: %d members are short as it was kept up, %d if counted anew", seed, kept, anew)
				}
			}
			fit, err := many.Fits(t.Context())
			switch {
			case err != nil:
				t.Fatal(err)
			case fit && many.Short(nodes) > 0:
				t.Errorf("seed %d: it fits, and %d members are short", seed, many.Short(nodes))
			case fit:
				fits++
			case many.Short(nodes) > 0:
				short++
			}
		}
		compare()
		for _, pod := range c.pods {
			for _, room := range []*Simulation{one, many} {
				node, _ := room.Index(pod.Spec.NodeName)
				must.Succeed(t, room.Remove(t.Context(), idle.PodInfo(t, pod), node))
			}
			compare()
		}
	}
	if fits < 20 || short < 20 {
		t.Errorf("in %d cases it fits, in %d members are short: the test finds out too little", fits, short)
	}
}

// TestClassesFromLargeToSmall: classes are numbered by their dominant share of what the cluster has; of equals the one
// that requests no less of anything comes first.
func TestClassesFromLargeToSmall(t *testing.T) {
	p := cluster{}.planner(t, 2, 8)
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var pods []*v1.Pod
		for i := range 1 + rng.IntN(4) {
			name := fmt.Sprint("m", i)
			pods = append(pods, st.MakePod().Namespace("ns").Name(name).UID(name).SchedulerName(v1.DefaultSchedulerName).
				Req(map[v1.ResourceName]string{gpu: fmt.Sprint(rng.IntN(4)), v1.ResourceCPU: fmt.Sprint(rng.IntN(4))}).Obj())
		}
		room, _ := roomOf(t, p, attemptOf(pods))
		shares := room.w.shares()
		if !slices.IsSortedFunc(shares, func(a, b share) int { return cmp.Compare(b.dominant, a.dominant) }) {
			t.Errorf("seed %d: the shares of classes are %v", seed, shares)
		}
		for i, larger := range room.w.classes {
			for _, c := range room.w.classes[:i] {
				less, more := c.Demand.Request, larger.Demand.Request
				if less[gpu] <= more[gpu] && less[v1.ResourceCPU] <= more[v1.ResourceCPU] && !maps.Equal(less, more) {
					t.Errorf("seed %d: the class of %v comes before that of %v", seed, less, more)
				}
			}
		}
		for i, pod := range pods {
			if requested := room.w.classes[room.w.classOf[i]].Info.Pod.Spec.Containers; !reflect.DeepEqual(requested, pod.Spec.Containers) {
				t.Errorf("seed %d: pod %s is in a class of pods that request something else", seed, pod.Name)
			}
		}
	}
}
