package gang

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// TestPlansLeaveWhatIsAskedForBesideTheMinimum: two nodes of 8 GPUs and 64 CPUs, in a rack each, for a gang of
// one that takes a GPU and 2 CPUs.
func TestPlansLeaveWhatIsAskedForBesideTheMinimum(t *testing.T) {
	taken := func(node string, gpus int64) hold.Hold {
		return hold.Hold{For: types.UID("held-" + node), Holder: hold.Holder{Profile: testProfile, Group: "default/other"}, Node: node, Reason: hold.Plan, Request: resource.Vector{gpu: gpus}}
	}
	only := func(zone string) func(int, *st.PodWrapper) {
		return func(_ int, pod *st.PodWrapper) { pod.NodeSelector(map[string]string{v1.LabelTopologyZone: zone}) }
	}
	const n0, n1 = "node-0000", "node-0001"
	begun := func(gpus int64, nodes ...string) gangstate.Outstanding {
		return gangstate.Outstanding{Gang: gangspec.Key{Namespace: "default", Name: "spark"}, Amount: resource.Vector{gpu: gpus}, Nodes: nodes}
	}
	for sentence, c := range map[string]struct {
		floor    resource.Vector
		spec     gangspec.Spec
		change   func(int, *st.PodWrapper)
		used     []*v1.Pod
		holds    []hold.Hold
		placed   []string // nodes of members that run
		partial  bool
		why      string
		hopeless bool
		others   []gangstate.Outstanding
		// firstNode, if not nil, changes the first node.
		firstNode func(*v1.Node)
	}{
		"all there is counts, with what the member takes":   {floor: resource.Vector{gpu: 16, v1.ResourceCPU: 128000}},
		"one more is too much":                              {floor: resource.Vector{gpu: 17}, why: `gang "default/train": its PodGroup's minResources ask for 17 nvidia.com/gpu; 16 are free; short 1 nvidia.com/gpu`, hopeless: true},
		"what is used is not free":                          {floor: resource.Vector{gpu: 16}, used: fill(makeNodes(2, 2)[:1], 3), why: "ask for 16 nvidia.com/gpu; 11 are free; short 5 nvidia.com/gpu"},
		"nor what is held for others":                       {floor: resource.Vector{gpu: 16}, holds: []hold.Hold{taken(n1, 4)}, why: "ask for 16 nvidia.com/gpu; 12 are free; short 4 nvidia.com/gpu"},
		"members that run have their part":                  {floor: resource.Vector{gpu: 16}, placed: []string{n0, n1}},
		"and no more than that":                             {floor: resource.Vector{gpu: 17}, placed: []string{n0, n1}, why: "ask for 17 nvidia.com/gpu; 16 are free; short 1 nvidia.com/gpu", hopeless: true},
		"nodes that members may not use do not count":       {floor: resource.Vector{gpu: 9}, change: only("z0"), why: "ask for 9 nvidia.com/gpu; 8 are free; short 1 nvidia.com/gpu", hopeless: true},
		"a node too small for a member does":                {floor: resource.Vector{gpu: 11}, change: func(_ int, pod *st.PodWrapper) { pod.Req(map[v1.ResourceName]string{gpu: "7"}) }, used: fill(makeNodes(2, 2)[:1], 3)},
		"a required rack has to have it all":                {floor: resource.Vector{gpu: 9}, spec: gangspec.Spec{RequiredTopology: rack}, why: "ask for 9 nvidia.com/gpu; 8 are free in rack r0, the most of any; short 1 nvidia.com/gpu", hopeless: true},
		"and of racks the one that has":                     {floor: resource.Vector{gpu: 8}, spec: gangspec.Spec{RequiredTopology: rack}, used: fill(makeNodes(2, 2)[:1], 7)},
		"a resource that nobody has":                        {floor: resource.Vector{"example.com/fpga": 1}, why: "ask for 1 example.com/fpga; 0 are free; short 1 example.com/fpga", hopeless: true},
		"several that are short":                            {floor: resource.Vector{gpu: 17, v1.ResourceCPU: 129000}, why: "ask for 129 cpu, 17 nvidia.com/gpu; 128 cpu, 16 nvidia.com/gpu are free; short 1 cpu, 1 nvidia.com/gpu", hopeless: true},
		"a gang that keeps what fits does not start either": {floor: resource.Vector{gpu: 17}, partial: true, why: "short 1 nvidia.com/gpu", hopeless: true},
		"a node that is not ready may be by then":           {floor: resource.Vector{gpu: 9}, firstNode: tainted(v1.TaintNodeNotReady, v1.TaintEffectNoSchedule), why: "ask for 9 nvidia.com/gpu; 8 are free; short 1 nvidia.com/gpu"},
		"what others are to take where they began is left to them": {
			floor: resource.Vector{gpu: 8}, others: []gangstate.Outstanding{begun(9, n0)},
			why: `its PodGroup's minResources ask for 8 nvidia.com/gpu; 7 are free, after reserving 9 nvidia.com/gpu for gangs still starting; short 1 nvidia.com/gpu`,
		},
		"and the rest is there":                     {floor: resource.Vector{gpu: 8}, others: []gangstate.Outstanding{begun(5, n0), begun(3, n0, n1)}},
		"more than there is does not make it less":  {floor: resource.Vector{gpu: 1}, others: []gangstate.Outstanding{begun(20, n1)}, why: "ask for 1 nvidia.com/gpu; 0 are free, after reserving 20 nvidia.com/gpu for gangs still starting; short 5 nvidia.com/gpu"},
		"where members may not go they may take it": {floor: resource.Vector{gpu: 8}, change: only("z0"), others: []gangstate.Outstanding{begun(9, n1)}},
		"in another rack, too":                      {floor: resource.Vector{gpu: 8}, spec: gangspec.Spec{RequiredTopology: rack}, others: []gangstate.Outstanding{begun(8, n0)}},
		"what nobody asks for is not short":         {floor: resource.Vector{v1.ResourceCPU: 1000}, others: []gangstate.Outstanding{begun(20, n0)}},
		"members that care about each other too":    {floor: resource.Vector{gpu: 17}, change: constraints["each on a node of its own"], why: "short 1 nvidia.com/gpu", hopeless: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			var running []gangstate.Placed
			used := c.used
			for i, node := range c.placed {
				pod := makeMembers("train", 2, 2, nil)[i]
				pod.Name, pod.UID, pod.Spec.NodeName = pod.Name+"-runs", pod.UID+"-runs", node
				running, used = append(running, gangstate.Placed{Pod: pod, Node: node}), append(used, pod)
			}
			nodes := makeNodes(2, 2)
			if c.firstNode != nil {
				c.firstNode(nodes[0])
			}
			s := newStage(t, nodes, used...)
			put(s.holds, c.holds...)
			a := attemptOf(makeMembers("train", 1, 1, c.change), c.spec)
			a.Strict, a.Gangs[0].Floor, a.Gangs[0].Placed = !c.partial, c.floor, running
			a.Outstanding = c.others
			result := mustPlan(t, s, a)
			why := result.Why[a.Gangs[0].Key]
			if result.Complete != (c.why == "") || !strings.Contains(why, c.why) || result.Hopeless != c.hopeless {
				t.Errorf("complete %v, hopeless %v, %q; want %q, hopeless %v", result.Complete, result.Hopeless, why, c.why, c.hopeless)
			}
			if !result.Complete && len(result.Nodes) > 0 {
				t.Errorf("it keeps %v, and would start", result.Nodes)
			}
		})
	}
}

// TestFloorsOfAGroup: gangs that start together do not count on the same room.
func TestFloorsOfAGroup(t *testing.T) {
	for sentence, c := range map[string]struct {
		floors [2]int64
		want   bool
	}{
		"room for both":          {[2]int64{8, 8}, true},
		"for either, not both":   {[2]int64{9, 8}, false},
		"one that asks for none": {[2]int64{15, 0}, true},
		"whose member counts":    {[2]int64{16, 0}, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t, makeNodes(2, 2))
			a, b := attemptOf(makeMembers("train", 1, 1, nil), gangspec.Spec{}), attemptOf(makeMembers("eval", 1, 1, nil), gangspec.Spec{})
			a.Gangs = append(a.Gangs, b.Gangs...)
			for i, amount := range c.floors {
				if amount > 0 {
					a.Gangs[i].Floor = resource.Vector{gpu: amount}
				}
			}
			if result := mustPlan(t, s, a); result.Complete != c.want {
				t.Errorf("complete %v, want %v: %v", result.Complete, c.want, result.Why)
			}
		})
	}
}
