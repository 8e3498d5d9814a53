package planner

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/planning/podclass"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/test/helpers/dra"
	"github.com/lockstep-sh/lockstep/test/helpers/idle"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// planDevices plans a gang of these pods on nodes with so many devices, with these claims beside. It returns how many
// go to each node, and why the plan is not complete.
func planDevices(tb testing.TB, devices []int, pods []*v1.Pod, claims ...runtime.Object) ([]int, string) {
	tb.Helper()
	p := devicePlanner(tb, devices, claims...)
	plan, err := p.Plan(tb.Context(), attemptOf(pods), nil)
	must.Succeed(tb, err)
	counts := make([]int, len(devices))
	for _, node := range plan.Nodes {
		counts[slices.Index(nodeNames(len(devices)), node)]++
	}
	return counts, plan.Why[gangspec.Key{Namespace: "ns", Name: "g"}]
}

func nodeNames(count int) []string {
	var names []string
	for i := range count {
		names = append(names, fmt.Sprint("n", i))
	}
	return names
}

// rackLabel is the label of nodes by which they are in racks of nodesPerRack.
const (
	rackLabel    = "rack"
	nodesPerRack = 16
)

// devicePlanner returns a planner for nodes with so many devices.
func devicePlanner(tb testing.TB, devices []int, objects ...runtime.Object) *Planner {
	tb.Helper()
	return New(deviceScheduler(tb, nil, devices, objects...), ledger.New(), extensionpoints.New())
}

// deviceScheduler returns the profile of a scheduler for such nodes, with more plugins.
func deviceScheduler(tb testing.TB, plugins frameworkruntime.Registry, devices []int, objects ...runtime.Object) framework.Framework {
	tb.Helper()
	objects = append(objects, dra.Class())
	var nodes []*v1.Node
	for i, name := range nodeNames(len(devices)) {
		objects = append(objects, dra.Slice(name, devices[i]))
		nodes = append(nodes, st.MakeNode().Name(name).Label(rackLabel, fmt.Sprint("r", i/nodesPerRack)).Capacity(map[v1.ResourceName]string{v1.ResourceCPU: "96", v1.ResourcePods: "110"}).Obj())
	}
	s := idle.New(tb, idle.Options{Plugins: plugins, Snapshot: cache.NewSnapshot(nil, nodes), Objects: objects})
	s.Start()
	return s.Framework
}

func attemptOf(pods []*v1.Pod) *gangstate.Attempt {
	need := gangstate.Need{Key: gangspec.Key{Namespace: "ns", Name: "g"}, Min: len(pods), Spec: gangspec.Spec{Min: len(pods)}, Pending: pods}
	return &gangstate.Attempt{Group: "ns/g", Leader: pods[0].UID, Strict: true, Gangs: []gangstate.Need{need}}
}

// each returns members with a claim of so many devices each.
func each(members, devices int) (pods []*v1.Pod, claims []runtime.Object) {
	for i := range members {
		name := fmt.Sprint("m", i)
		pods = append(pods, dra.Pod(name, name))
		claims = append(claims, dra.Claim(name, devices))
	}
	return pods, claims
}

// TestPlansCountDevices: members of a plan never get one device twice, and a node offers what it has.
func TestPlansCountDevices(t *testing.T) {
	const onEmpty = "; it would not fit even if the cluster were empty: the nodes have room for 3 of 4 members"
	t.Run("uneven nodes", func(t *testing.T) {
		pods, claims := each(16, 1)
		if counts, why := planDevices(t, []int{15, 1}, pods, claims...); !slices.Equal(counts, []int{15, 1}) {
			t.Errorf("16 members with a device each on nodes with 15 and 1: %v (%s), want them to fit", counts, why)
		}
	})
	t.Run("one device short", func(t *testing.T) {
		pods, claims := each(4, 2)
		counts, why := planDevices(t, []int{3, 4}, pods, claims...)
		want := `gang "ns/g": 3 of 4 members fit; short 2 of device class gpu.example.com (of 2 nodes: 2 cannot allocate all claims)` + onEmpty
		if counts[0]+counts[1] > 3 || why != want {
			t.Errorf("4 members with 2 devices each on nodes with 3 and 4: %v, want them not to fit; because:\n%s; want\n%s", counts, why, want)
		}
	})
	t.Run("a shared claim", func(t *testing.T) {
		var pods []*v1.Pod
		for i := range 5 {
			pods = append(pods, dra.Pod(fmt.Sprint("m", i), "shared"))
		}
		if counts, why := planDevices(t, []int{1, 2, 1}, pods, dra.Claim("shared", 2)); !slices.Equal(counts, []int{0, 5, 0}) {
			t.Errorf("5 members that share 2 devices on nodes with 1, 2 and 1: %v (%s), want all on the second", counts, why)
		}
	})
	t.Run("a claim with more users than there can be", func(t *testing.T) {
		var pods []*v1.Pod
		for i := range 257 {
			pods = append(pods, dra.Pod(fmt.Sprint("m", i), "shared"))
		}
		_, why := planDevices(t, []int{1}, pods, dra.Claim("shared", 1))
		if want := `gang "ns/g" cannot fit: 257 members need ResourceClaim ns/shared, which 256 pods can use at most; give each its own claim, by a ResourceClaimTemplate`; why != want {
			t.Errorf("257 members that share a claim:\n%s; want\n%s", why, want)
		}
	})
	t.Run("an extended resource", func(t *testing.T) {
		var pods []*v1.Pod
		for i := range 4 {
			name := fmt.Sprint("m", i)
			pods = append(pods, st.MakePod().Namespace("ns").Name(name).UID(name).Req(map[v1.ResourceName]string{dra.Backed: "2"}).Obj())
		}
		if counts, why := planDevices(t, []int{2, 6}, pods); !slices.Equal(counts, []int{1, 3}) {
			t.Errorf("4 members with 2 devices each, by extended resource, on nodes with 2 and 6: %v (%s), want them to fit", counts, why)
		}
		_, why := planDevices(t, []int{2, 4}, pods)
		if want := `gang "ns/g": 3 of 4 members fit; short 2 example.com/gpu (of 2 nodes: 2 cannot allocate all claims)` + onEmpty; why != want {
			t.Errorf("the same on nodes with 2 and 4:\n%s; want\n%s", why, want)
		}
	})
}

// TestUsersOfAClaim: a gang whose minimum needs a claim is refused where others leave it too few of the users that the
// claim can have.
func TestUsersOfAClaim(t *testing.T) {
	names := func(of string, count int) (all []string) {
		for i := range count {
			all = append(all, fmt.Sprint(of, i))
		}
		return all
	}
	for sentence, c := range map[string]struct {
		users []string
		why   string
	}{
		"none":              {nil, ""},
		"as many others":    {names("u", 246), ""},
		"one more":          {names("u", 247), `gang "ns/g" cannot fit: 10 members need ResourceClaim ns/shared, which 256 pods can use at most, and 247 others use; give each its own claim, by a ResourceClaimTemplate`},
		"members are users": {append(names("u", 246), names("m", 10)...), ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			var pods []*v1.Pod
			for _, name := range names("m", 10) {
				pods = append(pods, dra.Pod(name, "shared"))
			}
			p := devicePlanner(t, []int{1}, dra.Held(dra.Claim("shared", 1), "n0", 0, c.users...))
			plan, err := p.Plan(t.Context(), attemptOf(pods), nil)
			must.Succeed(t, err)
			if why := plan.Why[gangspec.Key{Namespace: "ns", Name: "g"}]; plan.Complete != (c.why == "") || why != c.why {
				t.Errorf("complete: %t; %s; want %s", plan.Complete, why, c.why)
			}
		})
	}
}

// TestElasticGangsThatShareAClaim: gangs of a group can share a claim if their minimums can, however many members they
// have.
func TestElasticGangsThatShareAClaim(t *testing.T) {
	for least, want := range map[int]bool{100: true, 128: true, 129: false} {
		a := &gangstate.Attempt{Group: "ns/g", Strict: true}
		for g := range 2 {
			var pods []*v1.Pod
			for i := range 200 {
				pods = append(pods, dra.Pod(fmt.Sprintf("g%d-m%d", g, i), "shared"))
			}
			a.Gangs = append(a.Gangs, gangstate.Need{Key: gangspec.Key{Namespace: "ns", Name: fmt.Sprint("g", g)}, Min: least, Spec: gangspec.Spec{Min: least}, Pending: pods})
		}
		a.Leader = a.Gangs[0].Pending[0].UID
		plan, err := devicePlanner(t, []int{0, 0, 0, 0}, dra.Claim("shared", 1), reachedByAll(dra.Driver)).Plan(t.Context(), a, nil)
		if err != nil || plan.Complete != want {
			t.Errorf("two gangs with a minimum of %d: complete %t, %v, %v; want %t", least, plan.Complete, plan.Why, err, want)
		}
	}
}

// TestPlansKeepOffHeldDevices: what a plan gives to the members of one gang, the plan of another one leaves alone.
func TestPlansKeepOffHeldDevices(t *testing.T) {
	first, claims := each(3, 1)
	second := []*v1.Pod{dra.Pod("s0", "s0"), dra.Pod("s1", "s1")}
	p := devicePlanner(t, []int{2, 2}, append(claims, dra.Claim("s0", 1), dra.Claim("s1", 1))...)
	plan, err := p.Plan(t.Context(), attemptOf(first), nil)
	if err != nil || !plan.Complete {
		t.Fatalf("3 members with a device each on nodes with 2 each: %v, %v, want them to fit", plan.Why, err)
	}
	holder := hold.Holder{Profile: p.fw.ProfileName(), Group: "ns/first"}
	for uid, node := range plan.Nodes {
		if len(plan.Demand[uid].Devices) != 1 {
			t.Fatalf("the plan gives %d claims to %s, want 1", len(plan.Demand[uid].Devices), uid)
		}
		p.holds.FollowPlan(holder, nil, []hold.Hold{{For: uid, Node: node, Devices: plan.Demand[uid].Devices}})
	}
	a := attemptOf(second)
	if plan, err = p.Plan(t.Context(), a, nil); err != nil || plan.Complete || plan.Fit != 1 {
		t.Errorf("2 more beside the 3: complete %t, %d fit, %v; want 1", plan.Complete, plan.Fit, err)
	}
	if plan, err = p.Plan(t.Context(), a, []hold.Holder{holder}); err != nil || !plan.Complete {
		t.Errorf("2 in place of the 3: %v, %v; want them to fit", plan.Why, err)
	}
}

func mustAdd(t *testing.T, g *podclass.Grouping, pod *v1.Pod) int {
	t.Helper()
	class, err := g.Classify(pod, "")
	must.Succeed(t, err)
	return class
}

// TestClassesByDevices: members whose claims ask for the same are one class, unless a claim is shared or allocated.
func TestClassesByDevices(t *testing.T) {
	p := devicePlanner(t, []int{4}, dra.Claim("a", 1), dra.Claim("b", 1), dra.Claim("two", 2), dra.Claim("shared", 1), dra.Held(dra.Claim("here", 1), "n0", 0))
	group := podclass.NewGrouping(p.storage)
	pods := map[string]*v1.Pod{}
	for _, claim := range []string{"a", "b", "two", "shared", "here"} {
		pods[claim] = dra.Pod("of-"+claim, claim)
		podclass.CountClaims(group.Uses, pods[claim])
	}
	other := dra.Pod("other-of-shared", "shared")
	podclass.CountClaims(group.Uses, other)
	class := map[string]int{}
	for claim, pod := range pods {
		class[claim] = mustAdd(t, group, pod)
	}
	if class["a"] != class["b"] {
		t.Error("pods with claims that ask for the same are not one class")
	}
	if class["shared"] != mustAdd(t, group, other) {
		t.Error("pods with the same claim are not one class")
	}
	if len(group.Classes) != 4 {
		t.Errorf("%d classes, want 4: one device, two, that which is shared, that which is allocated", len(group.Classes))
	}
}

func anyNode(*v1.Node) bool { return true }

// TestRoomCountsDevices: how many members a rack takes is known without allocating anything, where devices are of one
// node each.
func TestRoomCountsDevices(t *testing.T) {
	held := dra.Held(dra.Claim("held", 1), "n0", 0, "somebody")
	several := dra.Slice("n0", 1)
	several.Name, several.Spec.Pool.Name, several.Spec.Devices[0].AllowMultipleAllocations = "several", "several", new(true)
	admin := dra.Claim("two", 2)
	admin.Spec.Devices.Requests[0].Exactly.AdminAccess = new(true)
	all := dra.Claim("two", 2)
	all.Spec.Devices.Requests[0].Exactly.AllocationMode = resourceapi.DeviceAllocationModeAll
	ours := dra.Claim("two", 2)
	ours.Spec.Devices.Requests[0].Exactly.DeviceClassName = "ours"
	for sentence, c := range map[string]struct {
		objects []runtime.Object
		want    int
	}{
		"devices that are left":            {[]runtime.Object{dra.Claim("two", 2)}, 4},
		"but for those that are allocated": {[]runtime.Object{dra.Claim("two", 2), held}, 3},
		// Only the node with devices takes members then, and no more pods than any node.
		"unless several nodes reach some":            {[]runtime.Object{dra.Claim("two", 2), reachedByAll(dra.Driver)}, 110},
		"unless several claims can have one of them": {[]runtime.Object{dra.Claim("two", 2), several}, 110},
		"not for claims with admin access":           {[]runtime.Object{admin}, 110},
		"not for claims for whatever there is":       {[]runtime.Object{all}, 110},
		"not for a claim that is allocated":          {[]runtime.Object{dra.Held(dra.Claim("two", 2), "n0", 0)}, 110},
		"none for a claim that does not exist":       {nil, 0},
		"devices of another driver do not matter":    {append(anotherDriver(), ours), 4},
	} {
		t.Run(sentence, func(t *testing.T) {
			devices := append([]int{8}, slices.Repeat([]int{0}, nodesPerRack)...)
			room, err := devicePlanner(t, devices, c.objects...).CapacityIn(t.Context(), attemptOf([]*v1.Pod{dra.Pod("m", "two")}), rackLabel, anyNode, func(string) int { return math.MaxInt })
			if err != nil || room["r0"] != c.want {
				t.Errorf("a rack in which a node has 8 devices takes %d members with 2 each, error %v; want %d", room["r0"], err, c.want)
			}
		})
	}
}

// TestRoomAsFarAsWanted: of the nodes of a rack that takes enough the others are not looked at, nor are those that do
// not count.
func TestRoomAsFarAsWanted(t *testing.T) {
	p := devicePlanner(t, slices.Repeat([]int{8}, 3*nodesPerRack), dra.Claim("two", 2))
	counts := func(node *v1.Node) bool { return node.Labels[rackLabel] != "r1" && node.Name != "n32" }
	want := func(value string) int { return map[string]int{"r0": 5, "r1": 5, "r2": 100}[value] }
	room, err := p.CapacityIn(t.Context(), attemptOf([]*v1.Pod{dra.Pod("m", "two")}), rackLabel, counts, want)
	must.Succeed(t, err)
	if diff := cmp.Diff(map[string]int{"r0": 8, "r2": 60}, room); diff != "" {
		t.Errorf("room for members with 2 devices each, 4 on a node (-want +got):\n%s", diff)
	}
}

// anotherDriver returns a device of another driver that all nodes reach, and a class "ours" that does not select it.
func anotherDriver() []runtime.Object {
	class := dra.Class()
	class.Name, class.Spec.ExtendedResourceName = "ours", nil
	class.Spec.Selectors = selecting(`device.driver == "` + dra.Driver + `"`)
	return []runtime.Object{reachedByAll("nic.example.com"), class}
}

// reachedByAll returns the ResourceSlice of a device of a driver that all nodes reach.
func reachedByAll(driver string) *resourceapi.ResourceSlice {
	slice := dra.Slice("all."+driver, 1)
	slice.Spec.Driver, slice.Spec.NodeName, slice.Spec.AllNodes = driver, nil, new(true)
	return slice
}

func selecting(expression string) []resourceapi.DeviceSelector {
	return []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}}
}

// extended returns members with so many devices each, by extended resource.
func extended(members, devices int) (pods []*v1.Pod) {
	for i := range members {
		name := fmt.Sprint("m", i)
		pods = append(pods, st.MakePod().Namespace("ns").Name(name).UID(name).Req(map[v1.ResourceName]string{v1.ResourceCPU: "10m", dra.Backed: fmt.Sprint(devices)}).Obj())
	}
	return pods
}

// waysToAsk are gangs that ask for as many devices of their nodes, each in another way.
func waysToAsk(members int) map[string]wayToAsk {
	claimed, claims := each(members, 1)
	_, ours := each(members, 1)
	for _, claim := range ours {
		claim.(*resourceapi.ResourceClaim).Spec.Devices.Requests[0].Exactly.DeviceClassName = "ours"
	}
	return map[string]wayToAsk{
		"claims":                       {claimed, claims},
		"an extended resource":         {extended(members, 1), nil},
		"claims, beside other devices": {claimed, append(anotherDriver(), ours...)},
	}
}

type wayToAsk struct {
	pods    []*v1.Pod
	objects []runtime.Object
}

// TestTightestRackOfDevices: of racks that take a gang the tightest is preferred, however it asks for devices.
func TestTightestRackOfDevices(t *testing.T) {
	devices := append(slices.Repeat([]int{8}, nodesPerRack), slices.Repeat([]int{0}, nodesPerRack)...)
	tightest := nodesPerRack
	devices[tightest] = 2
	for sentence, way := range waysToAsk(2) {
		t.Run(sentence, func(t *testing.T) {
			a := attemptOf(way.pods)
			a.Gangs[0].Spec.RequiredTopology = rackLabel
			plan, err := devicePlanner(t, devices, way.objects...).Plan(t.Context(), a, nil)
			if err != nil || !plan.Complete {
				t.Fatal(plan, err)
			}
			for member, node := range plan.Nodes {
				if node != nodeNames(len(devices))[tightest] {
					t.Errorf("%s is on %s, want the rack that has room for just these", member, node)
				}
			}
		})
	}
}

// BenchmarkPlanOfClaimsInRacks plans such a gang for racks of 16 nodes, of which none takes more than half of it.
func BenchmarkPlanOfClaimsInRacks(b *testing.B) {
	pods, claims := each(256, 1)
	p := devicePlanner(b, slices.Repeat([]int{8}, 1000), claims...)
	for name, spec := range map[string]gangspec.Spec{
		"required":  {RequiredTopology: rackLabel},
		"preferred": {Layout: gangspec.Layout{Levels: []gangspec.Level{{Key: rackLabel}}}},
		"slices":    {Layout: gangspec.Layout{Levels: []gangspec.Level{{Key: rackLabel, Slice: 64}}}},
	} {
		b.Run(name, func(b *testing.B) {
			a := attemptOf(pods)
			spec.Min = len(pods)
			a.Gangs[0].Spec = spec
			for b.Loop() {
				if plan, err := p.Plan(b.Context(), a, nil); err != nil || plan.Complete == (name == "required") {
					b.Fatal(plan.Why, err)
				}
			}
		})
	}
}

// BenchmarkRoomInOfClaims looks for racks of 16 nodes that take 64 members with a claim each.
func BenchmarkRoomInOfClaims(b *testing.B) {
	p := devicePlanner(b, slices.Repeat([]int{8}, 5000), dra.Claim("one", 1))
	a := attemptOf([]*v1.Pod{dra.Pod("m", "one")})
	for b.Loop() {
		if room, err := p.CapacityIn(b.Context(), a, rackLabel, anyNode, func(string) int { return 64 }); err != nil || room["r0"] != 64 {
			b.Fatal(room["r0"], err)
		}
	}
}

// BenchmarkPlanOfClaims plans a gang of 256 members with a claim each on 1,000 nodes with 8 devices each.
func BenchmarkPlanOfClaims(b *testing.B) {
	pods, claims := each(256, 1)
	p := devicePlanner(b, slices.Repeat([]int{8}, 1000), claims...)
	for b.Loop() {
		if plan, err := p.Plan(b.Context(), attemptOf(pods), nil); err != nil || !plan.Complete {
			b.Fatal(plan.Why, err)
		}
	}
}
