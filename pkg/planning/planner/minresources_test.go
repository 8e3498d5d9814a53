package planner

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
	"github.com/lockstep-sh/lockstep/test/helpers/dra"
	"github.com/lockstep-sh/lockstep/test/helpers/idle"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// withFloor returns an attempt of a gang whose PodGroup asks for so many devices in all.
func withFloor(pods []*v1.Pod, devices int64) *gangstate.Attempt {
	a := attemptOf(pods)
	a.Gangs[0].Floor = resource.Vector{dra.Backed: devices}
	return a
}

// wantPlan plans an attempt; it is to be complete or not.
func wantPlan(t *testing.T, p *Planner, a *gangstate.Attempt, complete bool) *Plan {
	t.Helper()
	plan, err := p.Plan(t.Context(), a, nil)
	must.Succeed(t, err)
	if plan.Complete != complete {
		t.Errorf("complete is %t: %v; want %t", plan.Complete, plan.Why, complete)
	}
	return plan
}

// wantFits asks whether an attempt fits in a room with all nodes.
func wantFits(t *testing.T, room *Simulation, want bool) {
	t.Helper()
	if _, err := room.Restrict(t.Context(), room.AllNodes(), 1); err != nil {
		t.Fatal(err)
	}
	if fits, err := room.Fits(t.Context()); err != nil || fits != want {
		t.Errorf("it fits: %t, %v; want %t", fits, err, want)
	}
}

// TestFloorBesideClaimsInRoom: of devices that pods have claimed, those are free whose pods make way, and no others.
func TestFloorBesideClaimsInRoom(t *testing.T) {
	user := dra.Pod("user", "held")
	user.Spec.NodeName = "n0"
	var nodes []*v1.Node
	for _, name := range nodeNames(2) {
		nodes = append(nodes, st.MakeNode().Name(name).Capacity(map[v1.ResourceName]string{v1.ResourceCPU: "96", v1.ResourcePods: "110"}).Obj())
	}
	s := idle.New(t, idle.Options{Snapshot: cache.NewSnapshot([]*v1.Pod{user}, nodes), Objects: []runtime.Object{
		dra.Class(), dra.Slice("n0", 4), dra.Slice("n1", 2), dra.Held(dra.Claim("held", 4), "n0", 0, "user"),
	}})
	s.Start()
	p, a := New(s.Framework, ledger.New(), extensionpoints.New()), withFloor(extended(2, 1), 4)
	wantPlan(t, p, a, false)
	room := simulate(t, p, a)
	wantFits(t, room, false)
	mark := room.Checkpoint()
	node, _ := room.Index(user.Spec.NodeName)
	must.Succeed(t, room.Remove(t.Context(), idle.PodInfo(t, user), node))
	wantFits(t, room, true)
	must.Succeed(t, room.Rollback(t.Context(), mark))
	wantFits(t, room, false)
}

// TestFloorOfMembersInPlan: what members of an earlier plan will be allocated is theirs, and not free beside them.
func TestFloorOfMembersInPlan(t *testing.T) {
	claimed, claims := each(3, 1)
	for sentence, pods := range map[string][]*v1.Pod{"by extended resource": extended(3, 1), "by claims": claimed} {
		t.Run(sentence, func(t *testing.T) {
			p := devicePlanner(t, []int{2, 2}, claims...)
			plan := wantPlan(t, p, attemptOf(pods), true)
			for floor, complete := range map[int64]bool{4: true, 5: false} {
				a := withFloor(pods[2:], floor)
				need := &a.Gangs[0]
				need.Spec.Min = 3
				for _, pod := range pods[:2] {
					need.Placed = append(need.Placed, gangstate.Placed{Pod: pod, Node: plan.Nodes[pod.UID], InPlan: true})
				}
				wantPlan(t, p, a, complete)
			}
		})
	}
}

// asAll makes a claim ask for all devices of a node.
func asAll(claim *resourceapi.ResourceClaim) {
	one := claim.Spec.Devices.Requests[0].Exactly
	one.AllocationMode, one.Count = resourceapi.DeviceAllocationModeAll, 0
}

// TestFloorOfClaims: what members are allocated counts towards what their gang asks for, however their claims ask for
// it.
func TestFloorOfClaims(t *testing.T) {
	for sentence, change := range map[string]func(*resourceapi.ResourceClaim){
		"so many":       func(*resourceapi.ResourceClaim) {},
		"all of a node": asAll,
		"of another class": func(claim *resourceapi.ResourceClaim) {
			claim.Spec.Devices.Requests[0].Exactly.DeviceClassName = "other"
		},
		"the first of some": func(claim *resourceapi.ResourceClaim) {
			request := &claim.Spec.Devices.Requests[0]
			request.Exactly, request.FirstAvailable = nil, []resourceapi.DeviceSubRequest{
				{Name: "more", DeviceClassName: dra.Driver, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 5},
				{Name: "some", DeviceClassName: dra.Driver, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 4},
			}
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			objects := []runtime.Object{&resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "other"}}}
			pods := []*v1.Pod{dra.Pod("m0", "m0"), dra.Pod("m1", "m1"), dra.Pod("m2", "m2")}
			for _, pod := range pods {
				claim := dra.Claim(pod.Name, 4)
				if pod.Name == "m0" {
					claim = dra.Held(claim, "n0", 0, pod.Name) // it runs
				}
				change(claim)
				objects = append(objects, claim)
			}
			p := devicePlanner(t, []int{4, 4, 4}, objects...)
			placed := []gangstate.Placed{{Pod: pods[0], Node: "n0"}}
			for len(placed) < len(pods) {
				var next string
				for floor, complete := range map[int64]bool{12: true, 13: false} {
					a := withFloor(pods[len(placed):], floor)
					a.Gangs[0].Spec.Min, a.Gangs[0].Placed = len(pods), placed
					if plan := wantPlan(t, p, a, complete); plan.Complete {
						next = plan.Nodes[pods[len(placed)].UID]
					}
				}
				placed = append(placed, gangstate.Placed{Pod: pods[len(placed)], Node: next, InPlan: true})
			}
		})
	}
}

// TestFloorOfClaimsInRoom: a gang that claims all it asks for fits beside others, which need not make way.
func TestFloorOfClaimsInRoom(t *testing.T) {
	var nodes []*v1.Node
	var users, pods []*v1.Pod
	objects := []runtime.Object{dra.Class()}
	for i, name := range nodeNames(4) {
		nodes = append(nodes, st.MakeNode().Name(name).Capacity(map[v1.ResourceName]string{v1.ResourceCPU: "96", v1.ResourcePods: "110"}).Obj())
		pod, claim := dra.Pod("of-"+name, "of-"+name), dra.Claim("of-"+name, 4)
		if i < 2 {
			asAll(claim)
			pods = append(pods, pod)
		} else {
			claim, pod.Spec.NodeName = dra.Held(claim, name, 0, pod.Name), name
			users = append(users, pod)
		}
		objects = append(objects, dra.Slice(name, 4), claim)
	}
	s := idle.New(t, idle.Options{Snapshot: cache.NewSnapshot(users, nodes), Objects: objects})
	s.Start()
	room := simulate(t, New(s.Framework, ledger.New(), extensionpoints.New()), withFloor(pods, 8))
	wantFits(t, room, true)
}

// TestFloorBesideHeldDevices: what is held for others is not free, and counts once.
func TestFloorBesideHeldDevices(t *testing.T) {
	claimed, claims := each(2, 1)
	for sentence, c := range map[string]struct {
		pods  []*v1.Pod
		hold  hold.Hold
		short int64
	}{
		"claims":               {pods: claimed, short: 3},
		"an extended resource": {pods: extended(2, 1), short: 3},
		// Such a hold keeps no pod off the devices: the member may take one of them.
		"held without its devices": {hold: hold.Hold{For: "r", Node: "n1", Request: resource.Vector{dra.Backed: 2}}, short: 4},
	} {
		t.Run(sentence, func(t *testing.T) {
			p := devicePlanner(t, []int{2, 2}, claims...)
			held := []hold.Hold{c.hold}
			if c.pods != nil {
				held = nil
				plan := wantPlan(t, p, attemptOf(c.pods), true)
				for uid, node := range plan.Nodes {
					held = append(held, hold.Hold{For: uid, Node: node, Request: plan.Demand[uid].Request, Devices: plan.Demand[uid].Devices})
				}
			}
			p.holds.FollowPlan(hold.Holder{Profile: p.fw.ProfileName(), Group: "ns/first"}, nil, held)
			pods := extended(1, 1)
			pods[0].Name, pods[0].UID = "x", "x"
			wantPlan(t, p, withFloor(pods, 2), true)
			wantPlan(t, p, withFloor(pods, c.short), false)
		})
	}
}
