package gang

import (
	"fmt"
	"strconv"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/test/helpers/cputime"
	"github.com/lockstep-sh/lockstep/test/helpers/dra"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// attemptOf returns an attempt to place all of these pods, as the state machine would make it.
func attemptOf(pods []*v1.Pod, spec gangspec.Spec) *gangstate.Attempt {
	key, _, _ := gangspec.KeyOf(pods[0])
	spec.Min = len(pods)
	return &gangstate.Attempt{
		Group: key.String(), Leader: pods[0].UID, Strict: true,
		Gangs: []gangstate.Need{{Key: key, Spec: spec, Min: len(pods), Pending: pods}},
	}
}

// benchmarkPlan measures one plan, and checks that its result is as it should be.
func benchmarkPlan(b *testing.B, s *stage, a *gangstate.Attempt, complete bool) {
	b.Helper()
	p := s.ready()
	b.ReportAllocs()
	report := cputime.Start(b)
	for b.Loop() {
		result, err := p.Plan(s.ctx, a, nil)
		must.Succeed(b, err)
		if result.Complete != complete {
			b.Fatalf("complete is %t, want %t: %v", result.Complete, complete, result.Why)
		}
	}
	report()
}

// The time of a plan must grow with the members and with the nodes, not with their product.
func BenchmarkPlan(b *testing.B) {
	sizes := []struct{ members, nodes int }{
		{8, 500}, {8, 2000}, {100, 5000}, {300, 5000}, {1000, 10000}, {1000, 5000}, {1000, 1000}, {1000, 500},
	}
	for _, size := range sizes {
		b.Run(fmt.Sprintf("members=%d/nodes=%d", size.members, size.nodes), func(b *testing.B) {
			s := newStage(b, makeNodes(size.nodes, 100))
			benchmarkPlan(b, s, attemptOf(makeMembers("train", size.members, 1, nil), gangspec.Spec{}), true)
		})
	}
}

// BenchmarkPlanLabels plans gangs whose members have a label of their own, or one for all, in a cluster in which pods
// keep away from each other, or do not. A label that nothing selects by must cost next to nothing.
func BenchmarkPlanLabels(b *testing.B) {
	label := func(of func(i int) string) func(i int, pod *st.PodWrapper) {
		return func(i int, pod *st.PodWrapper) { pod.Label("spark-exec-id", of(i)) }
	}
	nodes := makeNodes(5000, 100)
	apart := fill(nodes, 8)
	for _, pod := range apart {
		pod.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
			TopologyKey: v1.LabelHostname, LabelSelector: st.MakeLabelSelector().Label("app", "other").Obj(),
		}}}}
	}
	for _, others := range [][]*v1.Pod{nil, apart} {
		s := newStage(b, nodes, others...)
		for _, members := range []int{3, 1000} {
			one := attemptOf(makeMembers("train", members, 1, label(func(int) string { return "1" })), gangspec.Spec{})
			own := attemptOf(makeMembers("train", members, 1, label(strconv.Itoa)), gangspec.Spec{})
			name := fmt.Sprintf("apart=%d/members=%d/label=", len(others), members)
			b.Run(name+"one", func(b *testing.B) { benchmarkPlan(b, s, one, true) })
			b.Run(name+"own", func(b *testing.B) { benchmarkPlan(b, s, own, true) })
		}
	}
}

// BenchmarkPlanClaims plans a gang in which each member has a ResourceClaim of its own, for one of 8 devices of a node.
// Half of the nodes have no device left.
func BenchmarkPlanClaims(b *testing.B) {
	const members, count = 256, 1000
	nodes := makeNodes(count, 100)
	objects := []runtime.Object{dra.Class()}
	for i, node := range nodes {
		objects = append(objects, dra.Slice(node.Name, 8))
		if i%2 == 0 {
			objects = append(objects, dra.Held(dra.Claim("of-"+node.Name, 8), node.Name, 0, "on-"+node.Name))
		}
	}
	pods := makeMembers("train", members, 1, func(i int, pod *st.PodWrapper) {
		claim := fmt.Sprint("gpu-", i)
		objects = append(objects, dra.Claim(claim, 1))
		pod.Namespace("ns").PodResourceClaims(v1.PodResourceClaim{Name: "gpu", ResourceClaimName: &claim})
	})
	s := newStageWith(b, objects, nodes)
	benchmarkPlan(b, s, attemptOf(pods, gangspec.Spec{}), true)
}

// BenchmarkPlanRoles plans small gangs whose members request different amounts.
func BenchmarkPlanRoles(b *testing.B) {
	s := newStage(b, makeNodes(5000, 100))
	launcher := func(i int, pod *st.PodWrapper) {
		if i == 0 {
			pod.Req(map[v1.ResourceName]string{v1.ResourceCPU: "1"})
		}
	}
	benchmarkPlan(b, s, attemptOf(makeMembers("train", 3, 1, launcher), gangspec.Spec{}), true)
}

func BenchmarkPlanShapes(b *testing.B) {
	s := newStage(b, makeNodes(5000, 100))
	shapes := func(i int, pod *st.PodWrapper) {
		pod.Req(map[v1.ResourceName]string{v1.ResourceCPU: fmt.Sprint(1 + i%5)})
	}
	benchmarkPlan(b, s, attemptOf(makeMembers("train", 1000, 1, shapes), gangspec.Spec{}), true)
}

func BenchmarkPlanRequiredTopology(b *testing.B) {
	nodes := makeNodes(5000, 100)
	none := func(_ int, pod *st.PodWrapper) { pod.NodeSelector(map[string]string{"kind": "none"}) }
	cases := []struct {
		name     string
		pods     []*v1.Pod
		change   func(int, *st.PodWrapper)
		complete bool
	}{
		{"every=fits", nil, nil, true},                  // into any of the 100 racks
		{"last=fits", fill(nodes[:4950], 1), nil, true}, // 50 GPUs are left in each rack but one
		{"none=counts", fill(nodes, 1), nil, false},     // 50 GPUs are left in each rack
		{"none=capacity", fill(nodes, 0), nil, false},   // nothing is left
		{"none=filters", fill(nodes, 4), none, false},   // room in each rack, but no node of the right kind
	}
	for _, c := range cases {
		b.Run(c.name, func(b *testing.B) {
			s := newStage(b, nodes, c.pods...)
			members := makeMembers("train", 100, 1, c.change)
			benchmarkPlan(b, s, attemptOf(members, gangspec.Spec{RequiredTopology: rack}), c.complete)
		})
	}
}

// BenchmarkPlanLayout plans gangs that are laid out by three levels: 4 zones, 20 blocks and 200 racks.
func BenchmarkPlanLayout(b *testing.B) {
	const block = "example.com/block"
	levels := func(zones, blocks, racks int) gangspec.Layout {
		return gangspec.Layout{Levels: []gangspec.Level{{Key: v1.LabelTopologyZone, Slice: zones}, {Key: block, Slice: blocks}, {Key: rack, Slice: racks}}}
	}
	for name, layout := range map[string]gangspec.Layout{"few": levels(0, 0, 0), "slices": levels(500, 100, 25)} {
		b.Run(name, func(b *testing.B) {
			nodes := makeNodes(5000, 200)
			for i, node := range nodes {
				node.Labels[block] = fmt.Sprint("b", i/250)
			}
			s := newStage(b, nodes, fill(nodes, 5)...) // a rack takes 75 members, a block 750
			benchmarkPlan(b, s, attemptOf(makeMembers("train", 1000, 1, nil), gangspec.Spec{Layout: layout}), true)
		})
	}
}

// BenchmarkRoomIn looks for racks that have room for a slice of which a member is the first.
func BenchmarkRoomIn(b *testing.B) {
	nodes := makeNodes(5000, 200)
	none := func(_ int, pod *st.PodWrapper) { pod.NodeSelector(map[string]string{"kind": "none"}) }
	for name, change := range map[string]func(int, *st.PodWrapper){"racks=roomy": nil, "racks=refused": none} {
		b.Run(name, func(b *testing.B) {
			s := newStage(b, nodes, fill(nodes, 4)...)
			a, report := attemptOf(makeMembers("train", 1, 1, change), gangspec.Spec{}), cputime.Start(b)
			for b.Loop() {
				if _, err := s.ready().CapacityIn(s.ctx, a, rack, func(*v1.Node) bool { return true }, func(string) int { return 16 }); err != nil {
					b.Fatal(err)
				}
			}
			report()
		})
	}
}

func BenchmarkPlanUnschedulable(b *testing.B) {
	nodes := makeNodes(5000, 100)
	cases := []struct {
		name   string
		left   int
		change func(int, *st.PodWrapper)
	}{
		{"none=capacity", 0, nil},
		{"none=filters", 8, func(_ int, pod *st.PodWrapper) { pod.NodeSelector(map[string]string{"kind": "none"}) }},
	}
	for _, c := range cases {
		b.Run(c.name, func(b *testing.B) {
			s := newStage(b, nodes, fill(nodes, c.left)...)
			benchmarkPlan(b, s, attemptOf(makeMembers("train", 100, 1, c.change), gangspec.Spec{}), false)
		})
	}
	b.Run("one=short", func(b *testing.B) { // all members but one find a place
		s := newStage(b, nodes[:500], fill(nodes[:500], 1)...)
		benchmarkPlan(b, s, attemptOf(makeMembers("train", 501, 1, nil), gangspec.Spec{}), false)
	})
}

// Members that keep away from each other are placed one by one.
func BenchmarkPlanCoupled(b *testing.B) {
	cases := []struct {
		name   string
		change func(int, *st.PodWrapper)
	}{
		{"anti-affinity=hostname", func(_ int, pod *st.PodWrapper) {
			pod.PodAntiAffinityExists("app", v1.LabelHostname, st.PodAntiAffinityWithRequiredReq)
		}},
		{"spread=zone", func(_ int, pod *st.PodWrapper) {
			pod.SpreadConstraint(1, v1.LabelTopologyZone, v1.DoNotSchedule, st.MakeLabelSelector().Exists("app").Obj(), nil, nil, nil, nil)
		}},
	}
	for _, c := range cases {
		b.Run(c.name, func(b *testing.B) {
			s := newStage(b, makeNodes(500, 10))
			benchmarkPlan(b, s, attemptOf(makeMembers("train", 100, 1, c.change), gangspec.Spec{}), true)
		})
	}
}

// PreEnqueue runs under the queue's lock, for every pod, while gangs wait for members.
func BenchmarkPreEnqueue(b *testing.B) {
	s := newStage(b, makeNodes(10, 1))
	var member *v1.Pod
	for i := range 1000 {
		pods := makeMembers(fmt.Sprintf("train-%d", i), 8, 1, nil)
		for _, pod := range pods[:7] {
			s.podSeen(s.ctx, pod)
			member = pod
		}
	}
	plain := st.MakePod().Name("plain").UID("plain").SchedulerName(testProfile).Obj()
	run := func(name string, pod *v1.Pod, through bool) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if status := s.PreEnqueue(s.ctx, pod); status.IsSuccess() != through {
					b.Fatal(status)
				}
			}
		})
	}
	run("pod=plain", plain, true)
	run("pod=member", member, false)
}
