package planner

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/pkg/framework/extension"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/podclass"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/test/helpers/idle"
)

// TestLostMemberBesideAShortSlice: a gang of 5 without numbers is in slices of 2 to a rack. One of a whole slice is
// lost. What replaces it takes its place, the only one that is free, wherever the short slice is; a plan finds that,
// and so does the search for room.
func TestLostMemberBesideAShortSlice(t *testing.T) {
	for sentence, sizes := range map[string][]int{"the short slice is first": {1, 2, 2}, "the short slice is last": {2, 2, 1}} {
		t.Run(sentence, func(t *testing.T) {
			var nodes []*v1.Node
			for i, size := range sizes {
				capacity := map[v1.ResourceName]string{v1.ResourceCPU: fmt.Sprint(size), v1.ResourcePods: "110"}
				nodes = append(nodes, st.MakeNode().Name(fmt.Sprint("n", i)).Label(rackLabel, fmt.Sprint("r", i)).Capacity(capacity).Obj())
			}
			member := func(name, node string) *v1.Pod {
				return st.MakePod().Namespace("ns").Name(name).UID(name).Node(node).Req(map[v1.ResourceName]string{v1.ResourceCPU: "1"}).Obj()
			}
			var pods []*v1.Pod
			var placed []gangstate.Placed
			for i, node := range []string{"n0", "n1", "n1", "n2"} {
				pod := member(fmt.Sprint("m", i), node)
				pods, placed = append(pods, pod), append(placed, gangstate.Placed{Pod: pod, Node: node})
			}
			s := idle.New(t, idle.Options{Snapshot: cache.NewSnapshot(pods, nodes)})
			s.Start()
			a := attemptOf([]*v1.Pod{member("new", "")})
			need := &a.Gangs[0]
			need.Spec.Min, need.Placed = 5, placed
			need.Spec.Layout = gangstate.Layout{Levels: []gangstate.Level{{Key: rackLabel, Slice: 2}}}
			p := New(s.Framework, ledger.New(), extension.New())
			plan, err := p.Plan(t.Context(), a, nil)
			if err != nil || !plan.Complete {
				t.Errorf("the plan is complete: %t; %v, %v", plan.Complete, plan.Why, err)
			}
			room, err := p.Simulate(t.Context(), a, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := room.Restrict(t.Context(), []int{0, 1, 2}, 1); err != nil {
				t.Fatal(err)
			}
			if fits, err := room.Fits(t.Context()); err != nil || !fits {
				t.Errorf("there is room: %t; %v", fits, err)
			}
			if err := room.Discard(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPiecesOfNewcomersWithoutNumbers: a gang of 4 without numbers in slices of 2 to a rack has r0 whole and lost a
// member in r1. The piece that defragmentation seeks room for is in r1.
func TestPiecesOfNewcomersWithoutNumbers(t *testing.T) {
	var nodes []*v1.Node
	for i := range 3 {
		capacity := map[v1.ResourceName]string{v1.ResourceCPU: "2", v1.ResourcePods: "110"}
		nodes = append(nodes, st.MakeNode().Name(fmt.Sprint("n", i)).Label(rackLabel, fmt.Sprint("r", i)).Capacity(capacity).Obj())
	}
	member := func(name, node string) *v1.Pod {
		return st.MakePod().Namespace("ns").Name(name).UID(name).Node(node).Req(map[v1.ResourceName]string{v1.ResourceCPU: "1"}).Obj()
	}
	var pods []*v1.Pod
	var placed []gangstate.Placed
	for i, node := range []string{"n0", "n0", "n1"} {
		pod := member(fmt.Sprint("m", i), node)
		pods, placed = append(pods, pod), append(placed, gangstate.Placed{Pod: pod, Node: node})
	}
	s := idle.New(t, idle.Options{Snapshot: cache.NewSnapshot(append(pods, member("other", "n1")), nodes)})
	s.Start()
	a := attemptOf([]*v1.Pod{member("new", "")})
	need := &a.Gangs[0]
	need.Spec.Min, need.Placed = 4, placed
	need.Spec.Layout = gangstate.Layout{Levels: []gangstate.Level{{Key: rackLabel, Slice: 2}}}
	p := New(s.Framework, ledger.New(), extension.New())
	room, err := p.Simulate(t.Context(), a, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer room.Discard(t.Context())
	pieces := room.Pieces(0)
	if len(pieces) != 1 {
		t.Errorf("%d pieces, want one", len(pieces))
	}
	for _, piece := range pieces {
		if on := piece.In[0].On; on < 0 || room.Node(on).Node().Name != "n1" {
			t.Errorf("the piece has to be with node %d; want that of n1", on)
		}
	}
}

// TestPlanBeginsASliceInAShortBlock: slices of 4 by block, 2 by rack; one member runs in r0, which is full. A plan puts
// the newcomer into r1 of the same block.
func TestPlanBeginsASliceInAShortBlock(t *testing.T) {
	var nodes []*v1.Node
	for i, size := range []string{"1", "2"} {
		capacity := map[v1.ResourceName]string{v1.ResourceCPU: size, v1.ResourcePods: "110"}
		nodes = append(nodes, st.MakeNode().Name(fmt.Sprint("n", i)).Label(rackLabel, fmt.Sprint("r", i)).Label("block", "b").Capacity(capacity).Obj())
	}
	member := func(name, node string) *v1.Pod {
		return st.MakePod().Namespace("ns").Name(name).UID(name).Node(node).Req(map[v1.ResourceName]string{v1.ResourceCPU: "1"}).Obj()
	}
	runs := member("m0", "n0")
	s := idle.New(t, idle.Options{Snapshot: cache.NewSnapshot([]*v1.Pod{runs}, nodes)})
	s.Start()
	a := attemptOf([]*v1.Pod{member("new", "")})
	need := &a.Gangs[0]
	need.Spec.Min, need.Placed = 2, []gangstate.Placed{{Pod: runs, Node: "n0"}}
	need.Spec.Layout = gangstate.Layout{Levels: []gangstate.Level{{Key: "block", Slice: 4}, {Key: rackLabel, Slice: 2}}}
	plan, err := New(s.Framework, ledger.New(), extension.New()).Plan(t.Context(), a, nil)
	if err != nil || !plan.Complete {
		t.Errorf("the plan is complete: %t; %v, %v", plan.Complete, plan.Why, err)
	}
}

// TestClassesOfQueues: the plugins of queues tell apart gangs that start together if their PodGroups name different
// queues.
func TestClassesOfQueues(t *testing.T) {
	var a gangstate.Attempt
	for i, queue := range []string{"", "a", "b", "b"} {
		pod := st.MakePod().Namespace("ns").Name(fmt.Sprint("p", i)).UID(fmt.Sprint("p", i)).Obj()
		a.Gangs = append(a.Gangs, gangstate.Need{Queue: queue, Min: 1, Pending: []*v1.Pod{pod}})
	}
	w := &planState{}
	if _, err := w.addMembers(&a, podclass.NewGrouping(podclass.Storage{})); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(w.classOf, []int{0, 1, 2, 2}) {
		t.Errorf("classes %v", w.classOf)
	}
}
