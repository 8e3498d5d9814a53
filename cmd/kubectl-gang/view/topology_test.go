package view

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

const gpu v1.ResourceName = "nvidia.com/gpu"

// fleet returns so many nodes of eight GPUs in each of the racks, two racks to a zone.
func fleet(racks, each int) []*v1.Node {
	var list []*v1.Node
	for r := range racks {
		for n := range each {
			list = append(list, &v1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d-%d", r, n), Labels: map[string]string{zone: fmt.Sprintf("z%d", r/2), rack: fmt.Sprintf("r%d", r)}},
				Status:     v1.NodeStatus{Allocatable: v1.ResourceList{gpu: resource.MustParse("8"), v1.ResourceCPU: resource.MustParse("32")}},
			})
		}
	}
	return list
}

// asking returns a pod on a node that asks for so many GPUs.
func asking(node string, gpus string, phase v1.PodPhase) *v1.Pod {
	p := &v1.Pod{Spec: v1.PodSpec{NodeName: node}, Status: v1.PodStatus{Phase: phase}}
	p.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{gpu: resource.MustParse(gpus)}}}}
	return p
}

func holding(node, gpus, used string, spent bool) *v1alpha1.Reservation {
	r := &v1alpha1.Reservation{}
	r.Status.Phase = v1alpha1.ReservationAvailable
	r.Status.Placements = []v1alpha1.ReservationPlacement{{
		NodeName: node, Allocatable: v1.ResourceList{gpu: resource.MustParse(gpus)}, Allocated: v1.ResourceList{gpu: resource.MustParse(used)}, Spent: spent,
	}}
	return r
}

// text draws lines as the picture is printed.
func text(lines []Line) string {
	var b strings.Builder
	for _, l := range lines {
		in := ""
		if l.LargestIn != "" {
			in = " in " + l.LargestIn
		}
		fmt.Fprintf(&b, "%s%s: %d nodes, %d empty; %d total, %d used, %d held, %d closed, %d free; at most %d%s %s\n",
			strings.Repeat("  ", l.Depth), l.Title, l.Nodes, l.Empty, l.Total, l.Used, l.Held, l.Closed, l.Free, l.Largest, in, l.Picture)
	}
	return b.String()
}

func TestTopology(t *testing.T) {
	small := fleet(3, 2)
	small[1].Spec.Unschedulable = true
	small[2].Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionUnknown}}
	delete(small[5].Labels, rack)
	noGPU := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cpu-only", Labels: map[string]string{zone: "z9", rack: "r9"}}, Status: v1.NodeStatus{Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("32")}}}
	in := TopologyIn{
		Nodes: append(small, noGPU), Levels: []string{zone, rack}, Resource: gpu,
		Pods: []*v1.Pod{
			asking("n0-0", "5", v1.PodRunning), asking("n0-0", "2", v1.PodSucceeded), asking("n0-1", "2", v1.PodPending),
			asking("n1-0", "8", v1.PodRunning), asking("", "4", v1.PodPending),
		},
		Reservations: []*v1alpha1.Reservation{holding("n0-0", "4", "2", false), holding("n1-1", "8", "0", true), holding("n2-0", "6", "0", false), holding("n2-0", "6", "0", false)},
	}
	topology := TopologyOf(in)
	for sentence, c := range map[string]struct {
		withNodes bool
		want      string
	}{
		"domain by domain: what has ended, waits or is spent counts for nothing": {false, `
nvidia.com/gpu on all nodes: 6 nodes, 2 empty; 48 total, 15 used, 10 held, 6 closed, 17 free; at most 9 in zone z0 
  zone z0: 4 nodes, 1 empty; 32 total, 15 used, 2 held, 6 closed, 9 free; at most 8 in rack r1 
    rack r0: 2 nodes, 0 empty; 16 total, 7 used, 2 held, 6 closed, 1 free; at most 1 in n0-0 [#####++.][##xxxxxx]
    rack r1: 2 nodes, 1 empty; 16 total, 8 used, 0 held, 0 closed, 8 free; at most 8 in n1-1 [########][........]
  zone z1: 2 nodes, 1 empty; 16 total, 0 used, 8 held, 0 closed, 8 free; at most 0 
    rack r2: 1 nodes, 0 empty; 8 total, 0 used, 8 held, 0 closed, 0 free; at most 0 [++++++++]
    without a rack: 1 nodes, 1 empty; 8 total, 0 used, 0 held, 0 closed, 8 free; at most 8 in n2-1 [........]
`},
		"node by node": {true, `
nvidia.com/gpu on all nodes: 6 nodes, 2 empty; 48 total, 15 used, 10 held, 6 closed, 17 free; at most 9 in zone z0 
  zone z0: 4 nodes, 1 empty; 32 total, 15 used, 2 held, 6 closed, 9 free; at most 8 in rack r1 
    rack r0: 2 nodes, 0 empty; 16 total, 7 used, 2 held, 6 closed, 1 free; at most 1 in n0-0 [#####++.][##xxxxxx]
      n0-0: 1 nodes, 0 empty; 8 total, 5 used, 2 held, 0 closed, 1 free; at most 1 [#####++.]
      n0-1: 1 nodes, 0 empty; 8 total, 2 used, 0 held, 6 closed, 0 free; at most 0 [##xxxxxx]
    rack r1: 2 nodes, 1 empty; 16 total, 8 used, 0 held, 0 closed, 8 free; at most 8 in n1-1 [########][........]
      n1-0: 1 nodes, 0 empty; 8 total, 8 used, 0 held, 0 closed, 0 free; at most 0 [########]
      n1-1: 1 nodes, 1 empty; 8 total, 0 used, 0 held, 0 closed, 8 free; at most 8 [........]
  zone z1: 2 nodes, 1 empty; 16 total, 0 used, 8 held, 0 closed, 8 free; at most 0 
    rack r2: 1 nodes, 0 empty; 8 total, 0 used, 8 held, 0 closed, 0 free; at most 0 [++++++++]
      n2-0: 1 nodes, 0 empty; 8 total, 0 used, 8 held, 0 closed, 0 free; at most 0 [++++++++]
    without a rack: 1 nodes, 1 empty; 8 total, 0 used, 0 held, 0 closed, 8 free; at most 8 in n2-1 [........]
      n2-1: 1 nodes, 1 empty; 8 total, 0 used, 0 held, 0 closed, 8 free; at most 8 [........]
`},
	} {
		t.Run(sentence, func(t *testing.T) {
			if diff := cmp.Diff(strings.TrimPrefix(c.want, "\n"), text(topology.Lines(c.withNodes))); diff != "" {
				t.Errorf("picture (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTopologyOfMany: many nodes are drawn as one bar, in which nothing is free that is not.
func TestTopologyOfTaints(t *testing.T) {
	taint := func(effect v1.TaintEffect) []v1.Taint { return []v1.Taint{{Key: "gangs", Effect: effect}} }
	tolerating := func(key string, phase v1.PodPhase) []*v1.Pod {
		p := &v1.Pod{Status: v1.PodStatus{Phase: phase}}
		p.Spec.Tolerations = []v1.Toleration{{Key: key, Operator: v1.TolerationOpExists}}
		return []*v1.Pod{p}
	}
	for sentence, c := range map[string]struct {
		taints []v1.Taint
		pods   []*v1.Pod
		closed int64
	}{
		"nobody tolerates it":                {taint(v1.TaintEffectNoSchedule), nil, 8},
		"nor this one":                       {taint(v1.TaintEffectNoExecute), nil, 8},
		"it only puts off":                   {taint(v1.TaintEffectPreferNoSchedule), nil, 0},
		"a pod tolerates it":                 {taint(v1.TaintEffectNoSchedule), tolerating("gangs", v1.PodPending), 0},
		"a pod that has ended says nothing":  {taint(v1.TaintEffectNoSchedule), tolerating("gangs", v1.PodSucceeded), 8},
		"a pod tolerates another":            {taint(v1.TaintEffectNoSchedule), tolerating("other", v1.PodPending), 8},
		"a daemon tolerates whatever it has": {taint(v1.TaintEffectNoSchedule), tolerating("", v1.PodRunning), 8},
	} {
		nodes := fleet(1, 2)
		nodes[0].Spec.Taints = c.taints
		got := TopologyOf(TopologyIn{Nodes: nodes, Pods: c.pods, Resource: gpu})
		if got.Closed != c.closed || got.Free != 16-c.closed {
			t.Errorf("%s: %d closed, %d free; want %d closed of 16", sentence, got.Closed, got.Free, c.closed)
		}
	}
}

func TestTopologyOfMany(t *testing.T) {
	in := TopologyIn{Nodes: fleet(2, 16), Levels: []string{rack}, Resource: gpu, Pods: []*v1.Pod{asking("n0-0", "1", v1.PodRunning)}}
	for i := range 15 {
		in.Pods = append(in.Pods, asking(fmt.Sprintf("n1-%d", i), "8", v1.PodRunning))
	}
	const want = `nvidia.com/gpu on all nodes: 32 nodes, 16 empty; 256 total, 121 used, 0 held, 0 closed, 135 free; at most 127 in rack r0 
  rack r0: 16 nodes, 15 empty; 128 total, 1 used, 0 held, 0 closed, 127 free; at most 8 in n0-1 [#.....................................]
  rack r1: 16 nodes, 1 empty; 128 total, 120 used, 0 held, 0 closed, 8 free; at most 8 in n1-15 [####################################..]
`
	topology := TopologyOf(in)
	if diff := cmp.Diff(want, text(topology.Lines(false))); diff != "" {
		t.Errorf("picture (-want +got):\n%s", diff)
	}
}

func TestTopologyWithoutLevels(t *testing.T) {
	topology := TopologyOf(TopologyIn{Nodes: fleet(1, 2), Resource: v1.ResourceCPU})
	const want = "cpu on all nodes: 2 nodes, 2 empty; 64000 total, 0 used, 0 held, 0 closed, 64000 free; at most 32000 in n0-0 [........][........]\n"
	if diff := cmp.Diff(want, text(topology.Lines(false))); diff != "" {
		t.Errorf("picture (-want +got):\n%s", diff)
	}
	if got := Amount(v1.ResourceCPU, 500); got != "500m" {
		t.Errorf("500 of cpu is %s, want 500m", got)
	}
}

func TestResourceOfInterest(t *testing.T) {
	with := func(names ...v1.ResourceName) *v1.Node {
		n := &v1.Node{Status: v1.NodeStatus{Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}}}
		for _, name := range names {
			n.Status.Allocatable[name] = resource.MustParse("1")
		}
		return n
	}
	for sentence, c := range map[string]struct {
		nodes []*v1.Node
		asked string // by a gang; empty for no gang
		want  v1.ResourceName
	}{
		"what gangs ask for":             {[]*v1.Node{with("amd.com/gpu"), with(gpu)}, "amd.com/gpu", "amd.com/gpu"},
		"gangs ask for cpu alone":        {[]*v1.Node{with(gpu)}, "cpu", v1.ResourceCPU},
		"no node has what they ask for":  {[]*v1.Node{with(gpu)}, "amd.com/gpu", v1.ResourceCPU},
		"GPUs as most name them":         {[]*v1.Node{with("amd.com/gpu"), with("amd.com/gpu"), with(gpu)}, "", gpu},
		"else what most nodes advertise": {[]*v1.Node{with("amd.com/gpu"), with("example.com/fpga"), with("amd.com/gpu")}, "", "amd.com/gpu"},
		"else cpu":                       {[]*v1.Node{with("kubernetes.io/batch-cpu")}, "", v1.ResourceCPU},
		"none has any":                   {nil, "", v1.ResourceCPU},
	} {
		t.Run(sentence, func(t *testing.T) {
			var pods []*v1.Pod
			if c.asked != "" {
				pods = append(pods, &v1.Pod{
					ObjectMeta: metav1.ObjectMeta{Namespace: "team", Labels: map[string]string{v1alpha1.PodGroupXLabel: "train"}},
					Spec:       v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceName(c.asked): resource.MustParse("1")}}}}},
				})
			}
			if got := TopologyOf(TopologyIn{Nodes: c.nodes, Pods: pods}).Resource; got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}
