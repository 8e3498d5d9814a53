package planner

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/extension"
	"github.com/lockstep-sh/lockstep/pkg/planning/podclass"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/test/helpers/idle"
)

// lostMember returns the planner of a cluster with a node of these sizes in each rack, all of one block, and the
// attempt to place one more member of a gang of so many that is laid out in slices. The others are on these nodes. full
// are nodes with a pod of somebody else.
func lostMember(t *testing.T, sizes []int, levels []gangspec.Level, on []string, full ...string) (*Planner, *gangstate.Attempt) {
	t.Helper()
	var nodes []*v1.Node
	for i, size := range sizes {
		capacity := map[v1.ResourceName]string{v1.ResourceCPU: fmt.Sprint(size), v1.ResourcePods: "110"}
		nodes = append(nodes, st.MakeNode().Name(fmt.Sprint("n", i)).Label(rackLabel, fmt.Sprint("r", i)).Label("block", "b").Capacity(capacity).Obj())
	}
	member := func(name, node string) *v1.Pod {
		return st.MakePod().Namespace("ns").Name(name).UID(name).Node(node).Req(map[v1.ResourceName]string{v1.ResourceCPU: "1"}).Obj()
	}
	var pods []*v1.Pod
	a := attemptOf([]*v1.Pod{member("new", "")})
	need := &a.Gangs[0]
	for i, node := range on {
		pods = append(pods, member(fmt.Sprint("m", i), node))
		need.Placed = append(need.Placed, gangstate.Placed{Pod: pods[i], Node: node})
	}
	for _, node := range full {
		pods = append(pods, member("other-on-"+node, node))
	}
	need.Spec.Min, need.Spec.Layout = len(on)+1, gangspec.Layout{Levels: levels}
	s := idle.New(t, idle.Options{Snapshot: cache.NewSnapshot(pods, nodes)})
	s.Start()
	return New(s.Framework, ledger.New(), extension.New()), a
}

// TestLostMemberOfASlice: a gang without numbers is in slices, and lacks a member. What replaces it takes the only
// place that is free; a plan finds that, and so does the search for room.
func TestLostMemberOfASlice(t *testing.T) {
	byRack := []gangspec.Level{{Key: rackLabel, Slice: 2}}
	four := []string{"n0", "n1", "n1", "n2"}
	for sentence, c := range map[string]struct {
		sizes  []int
		levels []gangspec.Level
		on     []string
	}{
		"of a whole slice, and the short one is first":         {[]int{1, 2, 2}, byRack, four},
		"of a whole slice, and the short one is last":          {[]int{2, 2, 1}, byRack, four},
		"of a slice of a block, in another rack than the rest": {[]int{1, 2}, []gangspec.Level{{Key: "block", Slice: 4}, {Key: rackLabel, Slice: 2}}, []string{"n0"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			p, a := lostMember(t, c.sizes, c.levels, c.on)
			wantPlan(t, p, a, true)
			room := simulate(t, p, a)
			wantFits(t, room, true)
		})
	}
}

// TestPiecesOfNewcomersWithoutNumbers: a gang of 4 without numbers in slices of 2 to a rack has r0 whole and lost a
// member in r1. The piece that defragmentation seeks room for is in r1.
func TestPiecesOfNewcomersWithoutNumbers(t *testing.T) {
	p, a := lostMember(t, []int{2, 2, 2}, []gangspec.Level{{Key: rackLabel, Slice: 2}}, []string{"n0", "n0", "n1"}, "n1")
	room := simulate(t, p, a)
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
