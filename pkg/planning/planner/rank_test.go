package planner

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/planning/podclass"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/placement"
	"github.com/lockstep-sh/lockstep/test/helpers/idle"
)

// lostMember returns the planner of a cluster with a node of these sizes in each rack, all of one block, and the
// attempt to place one more member of a gang that is laid out in slices. The others are on these nodes, the oldest
// first. full are nodes with a pod of somebody else.
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
	need.Ranks = map[types.UID]int{}
	for i, pod := range append(slices.Clone(pods), need.Pending...) {
		need.Ranks[pod.UID] = i
	}
	for _, node := range full {
		pods = append(pods, member("other-on-"+node, node))
	}
	need.Spec.Min, need.Spec.Layout = len(on)+1, gangspec.Layout{Levels: levels}
	s := idle.New(t, idle.Options{Snapshot: cache.NewSnapshot(pods, nodes)})
	s.Start()
	return New(s.Framework, ledger.New(), extensionpoints.New()), a
}

// TestLostMemberOfASlice: a gang without numbers is in slices, and lacks a member. What replaces it takes the place of
// that; a plan finds it, and so does the search for room. Of two slices that lack one, the older gets it.
func TestLostMemberOfASlice(t *testing.T) {
	byRack := []gangspec.Level{{Key: rackLabel, Slice: 2}}
	for sentence, c := range map[string]struct {
		sizes  []int
		levels []gangspec.Level
		on     []string
		fits   bool
	}{
		"of a whole slice, and the rack of the short one is first":  {[]int{1, 2, 2}, byRack, []string{"n1", "n1", "n2", "n0"}, true},
		"of a whole slice, and the rack of the short one is last":   {[]int{2, 2, 1}, byRack, []string{"n0", "n1", "n1", "n2"}, true},
		"of a slice of a block, in another rack than the rest":      {[]int{2, 2}, []gangspec.Level{{Key: "block", Slice: 4}, {Key: rackLabel, Slice: 2}}, []string{"n0", "n0"}, true},
		"of the older of two slices, and only the younger has room": {[]int{1, 2, 2}, byRack, []string{"n0", "n1", "n1", "n2"}, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			p, a := lostMember(t, c.sizes, c.levels, c.on)
			wantPlan(t, p, a, c.fits)
			room := simulate(t, p, a)
			wantFits(t, room, c.fits)
		})
	}
}

// TestRanksOfNewcomers: members without a place have their own numbers. If members carry none, they get, in their
// order, the lowest ones that those with a place leave.
func TestRanksOfNewcomers(t *testing.T) {
	racks := []string{"a", "b"}
	label := func(node int, _ string) (string, bool) { return racks[node], true }
	index := func(node string) (int, bool) { return slices.Index(racks, node), node != "gone" }
	for sentence, c := range map[string]struct {
		on     string // the racks of those with a place
		ranked bool
		want   map[types.UID]int
	}{
		"nobody is placed":              {want: map[types.UID]int{"p0": 0, "p1": 1}},
		"two slices lack one":           {on: "a b", want: map[types.UID]int{"p2": 1, "p3": 3}},
		"the older slice lacks one":     {on: "b a a", want: map[types.UID]int{"p3": 1, "p4": 4}},
		"the younger slice lacks one":   {on: "b b a", want: map[types.UID]int{"p3": 3, "p4": 4}},
		"the node of a member is gone":  {on: "a gone a", want: map[types.UID]int{"p3": 2, "p4": 3}},
		"their own, if they carry some": {on: "a b", ranked: true, want: map[types.UID]int{"p2": 2, "p3": 3}},
	} {
		t.Run(sentence, func(t *testing.T) {
			need := gangstate.Need{Ranked: c.ranked, Ranks: map[types.UID]int{}}
			for i, node := range append(strings.Fields(c.on), "", "") {
				pod := st.MakePod().UID(fmt.Sprint("p", i)).Obj()
				if need.Ranks[pod.UID] = i; node != "" {
					need.Placed = append(need.Placed, gangstate.Placed{Pod: pod, Node: node})
				}
			}
			if _, got := Ranks(&need, []placement.Level{{Key: rackLabel, Slice: 2}}, index, label); !maps.Equal(got, c.want) {
				t.Errorf("ranks %v, want %v", got, c.want)
			}
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
		if bond := piece.In[0]; bond.Home < 0 || bond.Value != "r1" {
			t.Errorf("the piece has to be with node %d in %q; want r1", bond.Home, bond.Value)
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
