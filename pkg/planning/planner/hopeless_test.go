package planner

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
	"github.com/lockstep-sh/lockstep/test/helpers/dra"
)

// TestHopelessForDevices: a gang that needs more devices than there are on nodes that it may use would not fit on an
// empty cluster.
func TestHopelessForDevices(t *testing.T) {
	inRacks := append([]int{4}, make([]int, nodesPerRack)...)
	inRacks[nodesPerRack] = 4
	for sentence, c := range map[string]struct {
		devices  []int
		required string
		beside   []runtime.Object
		want     bool
	}{
		"too few":                             {devices: []int{2, 2}, want: true},
		"none, as drivers have not come yet":  {devices: []int{0, 0}, want: true},
		"enough, but in use":                  {devices: []int{3, 2}, beside: []runtime.Object{dra.Held(dra.Claim("held", 1), "n0", 0, "user")}},
		"too few in each rack":                {devices: inRacks, required: rackLabel, want: true},
		"too few on nodes, and some anywhere": {devices: []int{1, 1}, beside: []runtime.Object{reachedByAll(dra.Driver)}},
	} {
		for how, way := range waysToAsk(5) {
			t.Run(sentence+"/"+how, func(t *testing.T) {
				a := attemptOf(way.pods)
				a.Gangs[0].Spec.RequiredTopology = c.required
				plan, err := devicePlanner(t, c.devices, append(slices.Clone(c.beside), way.objects...)...).Plan(t.Context(), a, nil)
				if err != nil || plan.Complete || plan.Hopeless != c.want {
					t.Errorf("complete: %t, hopeless: %t, %v, %v; want a failure, and %t", plan.Complete, plan.Hopeless, plan.Why, err, c.want)
				}
			})
		}
	}
}

// TestHopelessForClaims: a claim that may do with other or fewer devices than it names is not hopeless for want of
// these.
func TestHopelessForClaims(t *testing.T) {
	for sentence, c := range map[string]struct {
		change func(*resourceapi.DeviceRequest)
		want   bool
	}{
		"more than any node has": {func(*resourceapi.DeviceRequest) {}, true},
		"with admin access":      {func(r *resourceapi.DeviceRequest) { r.Exactly.AdminAccess = new(true) }, false},
		"all of a node": {func(r *resourceapi.DeviceRequest) {
			r.Exactly.AllocationMode, r.Exactly.Count = resourceapi.DeviceAllocationModeAll, 0
			r.Exactly.Selectors = selecting("false")
		}, false},
		"one kind or another": {func(r *resourceapi.DeviceRequest) {
			r.Exactly = nil
			for _, name := range []string{"first", "second"} {
				r.FirstAvailable = append(r.FirstAvailable, resourceapi.DeviceSubRequest{Name: name, DeviceClassName: dra.Driver, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 3})
			}
		}, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			claim := dra.Claim("c", 3)
			c.change(&claim.Spec.Devices.Requests[0])
			plan, err := devicePlanner(t, []int{2, 2}, claim).Plan(t.Context(), attemptOf([]*v1.Pod{dra.Pod("m", claim.Name)}), nil)
			if err != nil || plan.Complete || plan.Hopeless != c.want {
				t.Errorf("complete: %t, hopeless: %t, %v, %v; want a failure, and %t", plan.Complete, plan.Hopeless, plan.Why, err, c.want)
			}
		})
	}
}

// TestHopelessForPartitions: of partitions of which only one can be had at a time each counts.
func TestHopelessForPartitions(t *testing.T) {
	one := map[string]resourceapi.Counter{"slices": {Value: apiresource.MustParse("1")}}
	counters, parts := dra.Slice("n0", 0), dra.Slice("n0", 2)
	counters.Name, counters.Spec.Pool.Name, counters.Spec.Pool.ResourceSliceCount = "counters", "parts", 2
	counters.Spec.SharedCounters = []resourceapi.CounterSet{{Name: "card", Counters: one}}
	parts.Name, parts.Spec.Pool = "parts", counters.Spec.Pool
	for i := range parts.Spec.Devices {
		parts.Spec.Devices[i].ConsumesCounters = []resourceapi.DeviceCounterConsumption{{CounterSet: "card", Counters: one}}
	}
	for members, want := range map[int]bool{2: false, 3: true} {
		pods, claims := each(members, 1)
		plan, err := devicePlanner(t, []int{0}, append(claims, counters, parts)...).Plan(t.Context(), attemptOf(pods), nil)
		if err != nil || plan.Fit != 1 || plan.Hopeless != want {
			t.Errorf("%d members: %d fit, hopeless: %t, %v, %v; want 1, and %t", members, plan.Fit, plan.Hopeless, plan.Why, err, want)
		}
	}
}

// TestFloorOfDevices: what a PodGroup wants free for its gang in all may be devices behind an extended resource.
func TestFloorOfDevices(t *testing.T) {
	for sentence, c := range map[string]struct {
		floor              int64
		beside             []runtime.Object
		complete, hopeless bool
	}{
		"as many as there are":            {floor: 4, complete: true},
		"more than there are":             {floor: 5, hopeless: true},
		"more than are left":              {floor: 4, beside: []runtime.Object{dra.Held(dra.Claim("held", 1), "n0", 0, "user")}},
		"as many as are left":             {floor: 3, beside: []runtime.Object{dra.Held(dra.Claim("held", 1), "n0", 0, "user")}, complete: true},
		"some that all nodes reach, more": {floor: 5, beside: []runtime.Object{reachedByAll(dra.Driver)}, complete: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			a := attemptOf(extended(2, 1))
			a.Gangs[0].Floor = resource.Vector{dra.Backed: c.floor}
			plan, err := devicePlanner(t, []int{2, 2}, c.beside...).Plan(t.Context(), a, nil)
			if err != nil || plan.Complete != c.complete || plan.Hopeless != c.hopeless {
				t.Errorf("complete: %t, hopeless: %t, %v, %v; want %t and %t", plan.Complete, plan.Hopeless, plan.Why, err, c.complete, c.hopeless)
			}
			if why := fmt.Sprint(plan.Why); !c.complete && !strings.Contains(why, "minResources ask for") {
				t.Errorf("it says %s", why)
			}
		})
	}
}
