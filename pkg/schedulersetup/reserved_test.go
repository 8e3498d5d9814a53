package schedulersetup

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/test/helpers/idle"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// attempt returns the attempt for a gang of pods, all of which have to fit.
func attempt(pods ...*v1.Pod) *gangstate.Attempt {
	return &gangstate.Attempt{
		Group: "default/run", Leader: pods[0].UID, Strict: true,
		Gangs: []gangstate.Need{{Key: gangspec.Key{Namespace: "default", Name: "run"}, Min: len(pods), Pending: pods}},
	}
}

func (s *stage) pods(count, cpu int, labels ...string) (list []*v1.Pod) {
	for range count {
		list = append(list, s.pod(cpu, labels...))
	}
	return list
}

// TestPlanOnWhatIsHeld: members of a plan take what is held for them one after the other, as they will when they come;
// members for which that is not enough go where there is room.
func TestPlanOnWhatIsHeld(t *testing.T) {
	for sentence, c := range map[string]struct {
		nodes    map[string]string
		reserve  func(s *stage)
		members  int
		cpu      int
		complete bool
		on       map[string]int // members by node; nil for anywhere
	}{
		"two placements on one node": {
			map[string]string{"a": "8", "b": "8"}, func(s *stage) { s.reserve("r", "mine", 4, true, "a", "a") }, 2, 4, true, map[string]int{"a": 2},
		},
		"the last one goes beside them": {
			map[string]string{"a": "12", "b": "8"}, func(s *stage) { s.reserve("r", "mine", 4, true, "a", "a") }, 3, 4, true, map[string]int{"a": 3},
		},
		"the last one goes elsewhere": {
			map[string]string{"a": "8", "b": "8"}, func(s *stage) { s.reserve("r", "mine", 4, true, "a", "a") }, 3, 4, true, map[string]int{"a": 2, "b": 1},
		},
		"a member uses one placement, not two": {
			map[string]string{"a": "8"}, func(s *stage) { s.reserve("r", "mine", 4, true, "a", "a") }, 1, 8, false, nil,
		},
		"what others hold is no room": {
			map[string]string{"a": "8", "b": "8"}, func(s *stage) { s.reserve("r", "mine", 4, true, "a"); s.reserve("theirs", "other", 8, true, "b") }, 3, 4, false, nil,
		},
		"one placement for several, as it is not used once": {
			map[string]string{"a": "8", "b": "4"}, func(s *stage) { s.reserve("r", "mine", 8, false, "a") }, 4, 2, true, map[string]int{"a": 4},
		},
		"one that is used once serves one": {
			map[string]string{"a": "8", "b": "2"}, func(s *stage) { s.reserve("r", "mine", 8, true, "a") }, 3, 2, false, nil,
		},
		"nothing is held": {
			map[string]string{"a": "8"}, func(*stage) {}, 2, 4, true, map[string]int{"a": 2},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t, c.nodes)
			c.reserve(s)
			s.Look(t)
			members := s.pods(c.members, c.cpu, "mine")
			plan, err := s.planner.Plan(t.Context(), attempt(members...), nil)
			must.Succeed(t, err)
			if plan.Complete != c.complete {
				t.Fatalf("complete: %t, placed %v, %v", plan.Complete, plan.Nodes, plan.Why)
			}
			got := map[string]int{}
			for _, node := range plan.Nodes {
				got[node]++
			}
			if c.on != nil && fmt.Sprint(got) != fmt.Sprint(c.on) {
				t.Errorf("placed %v, want %v", got, c.on)
			}
			for _, pod := range members {
				if a, uses := s.registry.Allocation(pod); uses {
					t.Errorf("a plan uses %v", a)
				}
			}
			if what := s.oversold(); what != "" {
				t.Error(what)
			}
		})
	}
}

// TestPlannedMembersFollow: members fit where they are planned and find their placements when they come, in any order.
func TestPlannedMembersFollow(t *testing.T) {
	s := newStage(t, map[string]string{"a": "8", "b": "8", "c": "8"})
	s.reserve("r", "mine", 4, true, "a", "a", "b")
	s.Look(t)
	members := s.pods(4, 4, "mine")
	plan, err := s.planner.Plan(t.Context(), attempt(members...), nil)
	if err != nil || !plan.Complete {
		t.Fatal(plan, err)
	}
	used := map[string]bool{}
	for i := len(members) - 1; i >= 0; i-- {
		pod := members[i]
		state, nodes := s.fits(pod)
		done, ok := s.place(state, pod, plan.Nodes[pod.UID])
		if !ok {
			t.Fatalf("pod %d does not fit on node %s; it does on %v", i, plan.Nodes[pod.UID], nodes)
		}
		if a, ok := s.registry.Allocation(done); ok {
			used[a.String()] = true
		}
		if what := s.oversold(); what != "" {
			t.Error(what)
		}
	}
	if len(used) != 3 {
		t.Errorf("%d placements are used: %v; want all three", len(used), used)
	}
}

// TestNamedOrNowhere: a planned member that names a Reservation is not placed without it, though its plan's node has room
// for it and the Reservation has other places.
func TestNamedOrNowhere(t *testing.T) {
	s := newStage(t, map[string]string{"a": "16", "b": "16"})
	r := s.reservation("r", "mine", 4, true, "a", "b")
	s.registry.Update(r)
	member := s.pod(4, "mine")
	member.Annotations = map[string]string{v1alpha1.ReservationAnnotation: "r"}
	gang := hold.Holder{Profile: s.Framework.ProfileName(), Group: "default/run"}
	s.holds.FollowPlan(gang, []types.UID{member.UID}, []hold.Hold{{For: member.UID, Node: "b", Request: ledger.DemandOf(&framework.PodInfo{Pod: member}).Request}})
	other := s.pod(4, "mine")
	state, _ := s.fits(other)
	placed, ok := s.place(state, other, "b")
	if a, uses := s.registry.Allocation(placed); !ok || !uses || a.Index != 1 {
		t.Fatalf("the other owner is placed: %t, and uses %v", ok, a)
	}
	s.registry.PodBound(placed)
	if _, nodes := s.fits(member, func(state fwk.CycleState) { ledger.Grant(state, gang) }); len(nodes) > 0 {
		t.Errorf("it fits on %v, where nothing is held for it", nodes)
	}
}

// TestUsedAgainAfterARoundCalledOff: pods whose round was called off stay nominated with their parts of a Reservation.
// In the next round they use these placements again: those that name the Reservation, on the nodes of each other.
func TestUsedAgainAfterARoundCalledOff(t *testing.T) {
	for sentence, c := range map[string]struct{ once, named, swapped bool }{
		"a placement that is used once":         {once: true},
		"a placement that several may use":      {},
		"of the Reservation that they name":     {once: true, named: true},
		"each on the node that the other had":   {swapped: true},
		"which is of the Reservation they name": {swapped: true, named: true, once: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t, map[string]string{"a": "4", "b": "4"})
			s.reserve("r", "mine", 4, c.once, "a", "b")
			s.Look(t)
			members := s.pods(2, 4, "mine")
			if c.named {
				for _, pod := range members {
					pod.Annotations = map[string]string{v1alpha1.ReservationAnnotation: "r"}
				}
			}
			gang := hold.Holder{Profile: s.Framework.ProfileName(), Group: "default/run"}
			grant := func(state fwk.CycleState) { ledger.Grant(state, gang) }
			follow := func(nodes map[types.UID]string) {
				var uids []types.UID
				var plan []hold.Hold
				for _, pod := range members {
					uids = append(uids, pod.UID)
					plan = append(plan, hold.Hold{For: pod.UID, Node: nodes[pod.UID], Request: ledger.DemandOf(&framework.PodInfo{Pod: pod}).Request, WasNominated: true})
				}
				s.holds.FollowPlan(gang, uids, plan)
			}
			bind := func(nodes map[types.UID]string) (placed []*v1.Pod, states []fwk.CycleState) {
				for _, pod := range members {
					state, fit := s.fits(pod, grant)
					done, ok := s.place(state, pod, nodes[pod.UID])
					if !ok {
						t.Fatalf("pod %s does not fit on node %s; it does on %v", pod.Name, nodes[pod.UID], fit)
					}
					if a, ok := s.registry.Allocation(done); !ok || a.Name != "r" {
						t.Errorf("pod %s uses %v, %t", pod.Name, a, ok)
					}
					placed, states = append(placed, done), append(states, state)
				}
				return placed, states
			}
			first := map[types.UID]string{members[0].UID: "a", members[1].UID: "b"}
			for _, pod := range members { // what was freed for them
				s.holds.Nominate(hold.Hold{For: pod.UID, Node: first[pod.UID], Holder: gang, Request: ledger.DemandOf(&framework.PodInfo{Pod: pod}).Request})
			}
			follow(first)
			placed, states := bind(first)
			for i, pod := range placed {
				s.takeBack(states[i], pod)
			}
			s.holds.Release(members[0].UID, members[1].UID)
			s.Look(t)
			if !s.holds.Nominated(gang) {
				t.Fatal("they are not nominated any more")
			}
			plan, err := s.planner.Plan(t.Context(), attempt(members...), nil)
			if err != nil || !plan.Complete {
				t.Fatalf("%v, %v, %v", plan.Nodes, plan.Why, err)
			}
			second := plan.Nodes
			if c.swapped {
				second = map[types.UID]string{members[0].UID: "b", members[1].UID: "a"}
			}
			follow(second)
			bind(second)
			if what := s.oversold(); what != "" {
				t.Error(what)
			}
		})
	}
}

// TestPlanBesideAMemberThatUsesAPlacement: what a member that is counted on its node has of a placement is not left for
// the others, though it is nominated still.
func TestPlanBesideAMemberThatUsesAPlacement(t *testing.T) {
	for sentence, c := range map[string]struct {
		once, named, fits bool
	}{
		"there is room beside it":                   {once: true, fits: true},
		"and where several may use it":              {fits: true},
		"none is left of the Reservation they name": {named: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t, map[string]string{"a": "8"})
			s.reserve("r", "mine", 4, c.once, "a")
			s.Look(t)
			members := s.pods(2, 4, "mine")
			for _, pod := range members {
				if c.named {
					pod.Annotations = map[string]string{v1alpha1.ReservationAnnotation: "r"}
				}
			}
			gang := hold.Holder{Profile: s.Framework.ProfileName(), Group: "default/run"}
			one := hold.Hold{For: members[0].UID, Node: "a", Holder: gang, Request: ledger.DemandOf(&framework.PodInfo{Pod: members[0]}).Request}
			s.holds.Nominate(one)
			s.holds.FollowPlan(gang, []types.UID{members[0].UID}, []hold.Hold{one})
			state, _ := s.fits(members[0], func(state fwk.CycleState) { ledger.Grant(state, gang) })
			placed, ok := s.place(state, members[0], "a")
			if !ok {
				t.Fatal("the first cannot be placed")
			}
			s.holds.PodAssumed(placed.UID, "a")
			if !s.holds.Nominated(gang) {
				t.Fatal("it is not nominated any more")
			}
			s.Look(t)
			a := attempt(members[1])
			a.Gangs[0].Placed = []gangstate.Placed{{Pod: placed, Node: "a"}}
			plan, err := s.planner.Plan(t.Context(), a, nil)
			if err != nil || plan.Complete != c.fits {
				t.Errorf("a plan for the second: %v, %v, %v", plan.Nodes, plan.Why, err)
			}
		})
	}
}

// TestMeant: the successor of a pod that is moved uses what is held for the move, on the target, whatever else it owns;
// and where the successor does not fit into that, what else it owns.
func TestMeant(t *testing.T) {
	for sentence, c := range map[string]struct {
		cpu        int
		node, used string
	}{
		"what is meant for it":        {2, "b", "move"},
		"which does not take so much": {8, "a", "own"},
		"what there is where it fits": {4, "b", "move"},
		"it fits nowhere":             {9, "", ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t, map[string]string{"a": "8", "b": "6"})
			s.reserve("own", "mine", 2, true, "a", "b")
			move := s.reservation("move", "mine", 2, true, "b")
			move.Labels = map[string]string{v1alpha1.MigrationLabel: "uid"}
			s.registry.Update(move)
			state, nodes := s.fits(s.pod(c.cpu, "mine"))
			if c.node == "" {
				if len(nodes) > 0 {
					t.Errorf("it fits on %v", nodes)
				}
				return
			}
			if !slices.Equal(nodes, []string{c.node}) {
				t.Fatalf("it is sent to %v, want %s", nodes, c.node)
			}
			pod, ok := s.place(state, s.pod(c.cpu, "mine"), c.node)
			if !ok {
				t.Fatal("it is not placed")
			}
			if a, _ := s.registry.Allocation(pod); a.Name != c.used {
				t.Errorf("it uses %q, want %q", a.Name, c.used)
			}
		})
	}
}

// TestBasicUsesWhatIsHeld: a pod of a native PodGroup is sent where something is held for it if its PodGroup makes no
// gang, and else where the plan of its gang says.
func TestBasicUsesWhatIsHeld(t *testing.T) {
	for sentence, c := range map[string]struct {
		group *gangspec.PodGroupDescription
		nodes []string
	}{
		"the basic policy":   {&gangspec.PodGroupDescription{Basic: true, Min: 1}, []string{"b"}},
		"a gang":             {&gangspec.PodGroupDescription{Min: 2}, []string{"a", "b"}},
		"which is not there": {nil, []string{"a", "b"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t, map[string]string{"a": "8", "b": "8"})
			s.native = c.group
			s.reserve("r", "mine", 4, true, "b")
			pod := s.pod(4, "mine")
			pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: new("train")}
			if _, nodes := s.fits(pod); !slices.Equal(nodes, c.nodes) {
				t.Errorf("it is sent to %v, want %v", nodes, c.nodes)
			}
		})
	}
}

// TestEvictionFreesNoPromise: what an owner has of a placement stays held for the next owner when it is evicted.
func TestEvictionFreesNoPromise(t *testing.T) {
	s := newStage(t, map[string]string{"a": "8"})
	s.reserve("r", "mine", 8, false, "a")
	owner := s.pod(8, "mine")
	state, _ := s.fits(owner)
	done, ok := s.place(state, owner, "a")
	if !ok {
		t.Fatal("the owner does not fit")
	}
	s.Look(t)
	for sentence, labels := range map[string][]string{"a stranger": nil, "another owner": {"mine"}} {
		room, err := s.planner.Simulate(t.Context(), attempt(s.pods(1, 8, labels...)...), nil)
		must.Succeed(t, err)
		node, _ := room.Index("a")
		if _, err := room.Restrict(t.Context(), []int{node}, 1); err != nil {
			t.Fatal(err)
		}
		must.Succeed(t, room.Remove(t.Context(), idle.PodInfo(t, done), node))
		if fits, err := room.Fits(t.Context()); err != nil || fits {
			t.Errorf("%s fits where the owner was: %t, %v", sentence, fits, err)
		}
		must.Succeed(t, room.Discard(t.Context()))
	}
}
