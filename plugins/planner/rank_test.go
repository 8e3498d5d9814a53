package planner

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/plugins/extension"
	"github.com/lockstep-sh/lockstep/plugins/holds"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/test/idle"
)

// TestLostMemberBesideAShortSlice: a gang of 5 without numbers is in slices of 2 to a rack. One of a whole slice is lost. What replaces it
// takes its place, the only one that is free, wherever the short slice is; a plan finds that, and so does the search for room.
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
			var placed []gang.Placed
			for i, node := range []string{"n0", "n1", "n1", "n2"} {
				pod := member(fmt.Sprint("m", i), node)
				pods, placed = append(pods, pod), append(placed, gang.Placed{Pod: pod, Node: node})
			}
			s := idle.New(t, idle.Options{Snapshot: cache.NewSnapshot(pods, nodes)})
			s.Start()
			a := attemptOf([]*v1.Pod{member("new", "")})
			need := &a.Gangs[0]
			need.Spec.Min, need.Placed = 5, placed
			need.Spec.Layout = gang.Layout{Levels: []gang.Level{{Key: rackLabel, Slice: 2}}}
			p := New(s.Framework, holds.New(), extension.New())
			plan, err := p.Plan(t.Context(), a, nil)
			if err != nil || !plan.Complete {
				t.Errorf("the plan is complete: %t; %v, %v", plan.Complete, plan.Why, err)
			}
			room, err := p.Room(t.Context(), a, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := room.Restrict(t.Context(), []int{0, 1, 2}, 1); err != nil {
				t.Fatal(err)
			}
			if fits, err := room.Fits(t.Context()); err != nil || !fits {
				t.Errorf("there is room: %t; %v", fits, err)
			}
			if err := room.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
