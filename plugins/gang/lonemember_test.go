package gang

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
	"github.com/lockstep-sh/lockstep/test/helpers/sample"
)

const (
	block           = "block"
	completionIndex = "batch.kubernetes.io/job-completion-index"
)

// feasible lists the nodes on which a member fits that is placed by itself, with the state of its cycle.
func (s *stage) feasible(t *testing.T, pod *v1.Pod) ([]fwk.NodeInfo, fwk.CycleState) {
	t.Helper()
	fw, state := s.scheduler.Profiles[testProfile], framework.NewCycleState()
	if _, status, _ := fw.RunPreFilterPlugins(s.ctx, state, pod); !status.IsSuccess() {
		t.Fatal(status)
	}
	infos, err := s.snapshot.List()
	must.Succeed(t, err)
	return slices.DeleteFunc(slices.Clone(infos), func(info fwk.NodeInfo) bool {
		return !fw.RunFilterPlugins(s.ctx, state, pod, info).IsSuccess()
	}), state
}

// best returns the nodes that have the highest score among those on which such a member fits.
func (s *stage) best(t *testing.T, pod *v1.Pod) sets.Set[string] {
	t.Helper()
	fw := s.scheduler.Profiles[testProfile]
	infos, state := s.feasible(t, pod)
	if status := fw.RunPreScorePlugins(s.ctx, state, pod, infos); !status.IsSuccess() {
		t.Fatal(status)
	}
	scores, status := fw.RunScorePlugins(s.ctx, state, pod, infos)
	if !status.IsSuccess() {
		t.Fatal(status)
	}
	best, most := sets.New[string](), int64(0)
	for _, score := range scores {
		if score.TotalScore > most {
			best, most = sets.New[string](), score.TotalScore
		}
		if score.TotalScore == most {
			best.Insert(score.Name)
		}
	}
	return best
}

func namesOf(nodes ...*v1.Node) sets.Set[string] {
	names := sets.New[string]()
	for _, node := range nodes {
		names.Insert(node.Name)
	}
	return names
}

// TestSliceBeginsWhereItHasRoom: the first member of a slice that was lost whole does not go where only nodes that it
// cannot use have room for the others.
func TestSliceBeginsWhereItHasRoom(t *testing.T) {
	for sentence, spoil := range map[string]func(node *v1.Node){
		"full nodes": nil,
		"nodes without GPUs": func(node *v1.Node) {
			delete(node.Status.Capacity, gpu)
			delete(node.Status.Allocatable, gpu)
		},
		"cordoned nodes":         func(node *v1.Node) { node.Spec.Unschedulable = true },
		"tainted nodes":          func(node *v1.Node) { node.Spec.Taints = []v1.Taint{{Key: "repair", Effect: v1.TaintEffectNoSchedule}} },
		"nodes of another model": func(node *v1.Node) { node.Labels["model"] = "other" },
	} {
		t.Run(sentence, func(t *testing.T) {
			nodes := makeNodes(12, 2)
			for _, node := range nodes {
				node.Labels["model"], node.Labels[block] = "ours", "b"
			}
			// In the first rack are the other slice, a node that is free, and three that are not of use.
			var pods []*v1.Pod
			for _, node := range nodes[3:6] {
				if spoil == nil {
					pods = append(pods, fill([]*v1.Node{node}, 0)...)
				} else {
					spoil(node)
				}
			}
			members := makeMembers("train", 4, 8, func(_ int, pod *st.PodWrapper) {
				pod.Annotation(v1alpha1.TopologySlicesAnnotation, fmt.Sprintf(`[{"topology":%q,"size":4},{"topology":%q,"size":2}]`, block, rack))
				pod.NodeSelector(map[string]string{"model": "ours"})
			})
			members[2], members[3] = sample.Bound(members[2], nodes[0].Name), sample.Bound(members[3], nodes[1].Name)
			s := newStage(t, nodes, append(pods, members[2], members[3])...)
			s.open()
			s.see(members...)
			if best := s.best(t, members[0]); !namesOf(nodes[6:]...).IsSuperset(best) {
				t.Errorf("the first member of the slice goes to one of %v; only the other rack has room for the second", best)
			}
		})
	}
}

// TestSliceBeginsBesideMatesInNoDomain: a slice whose only placed member is on a node without the label begins where it
// has room.
func TestSliceBeginsBesideMatesInNoDomain(t *testing.T) {
	nodes := makeNodes(12, 2)
	delete(nodes[0].Labels, rack)
	members := makeMembers("train", 2, 8, func(_ int, pod *st.PodWrapper) {
		pod.Annotation(v1alpha1.TopologySlicesAnnotation, fmt.Sprintf(`[{"topology":%q,"size":2}]`, rack))
	})
	members[0] = sample.Bound(members[0], nodes[0].Name)
	s := newStage(t, nodes, append(fill(nodes[1:5], 0), members[0])...)
	s.open()
	s.see(members...)
	if best := s.best(t, members[1]); !namesOf(nodes[6:]...).IsSuperset(best) {
		t.Errorf("the second member of the slice goes to one of %v; only the other rack has room for a slice", best)
	}
}

// TestSliceLeavesRoomForLostMates: the first member of a slice that was lost whole does not begin it in the room in
// which members of another slice have to be. Room where the slice may not be does not count.
func TestSliceLeavesRoomForLostMates(t *testing.T) {
	for _, otherBlock := range []string{"b", "c"} {
		t.Run("the third rack is in block "+otherBlock, func(t *testing.T) {
			nodes := makeNodes(18, 3)
			for i, node := range nodes {
				node.Labels[block] = "b"
				if i >= 12 {
					node.Labels[block] = otherBlock
				}
				if i >= 12 && otherBlock != "b" {
					node.Labels[rack] = nodes[0].Labels[rack]
				}
			}
			members := makeMembers("train", 4, 8, func(i int, pod *st.PodWrapper) {
				pod.Annotation(v1alpha1.TopologySlicesAnnotation, fmt.Sprintf(`[{"topology":%q,"size":4},{"topology":%q,"size":2}]`, block, rack))
				pod.Label(completionIndex, fmt.Sprint(i))
			})
			members[2] = sample.Bound(members[2], nodes[0].Name) // its mate needs one of two nodes that are left in the first rack
			s := newStage(t, nodes, append(fill(nodes[3:6], 0), members[2])...)
			s.open()
			s.see(members...)
			if best := s.best(t, members[0]); !namesOf(nodes[6:]...).IsSuperset(best) {
				t.Errorf("the first member of the slice goes to one of %v; with the second no node is left for the mate of the other slice", best)
			}
		})
	}
}

// TestNewcomerJoinsTheOldestSliceThatLacksOne: where members carry no numbers, one that is made anew joins the oldest
// slice that lacks one, and no other; it begins a slice only if none lacks any.
func TestNewcomerJoinsTheOldestSliceThatLacksOne(t *testing.T) {
	slices := func(sizes ...int) string {
		if len(sizes) == 1 {
			return fmt.Sprintf(`[{"topology":%q,"size":%d}]`, rack, sizes[0])
		}
		return fmt.Sprintf(`[{"topology":%q,"size":%d},{"topology":%q,"size":%d}]`, block, sizes[0], rack, sizes[1])
	}
	for sentence, c := range map[string]struct {
		slices string
		on     []int // the racks of the members that run, the oldest first
		full   []int // racks that take no other
		want   []int
	}{
		"two slices lack one":                        {slices(2), []int{0, 1}, nil, []int{0}},
		"the oldest is in the last rack":             {slices(2), []int{1, 0}, nil, []int{1}},
		"it has no room":                             {slices(2), []int{0, 1}, []int{0}, nil},
		"one slice lacks one":                        {slices(2), []int{0, 0, 1}, nil, []int{1}},
		"a slice has no room, its block has":         {slices(4, 2), []int{0}, []int{0}, nil},
		"all are complete":                           {slices(2), []int{0, 0, 1, 1}, nil, []int{0, 1, 2, 3}},
		"the oldest block lacks a slice":             {slices(4, 2), []int{0, 0, 2}, nil, []int{0, 1}},
		"the oldest slice lacks one, a block others": {slices(4, 2), []int{0, 1, 1, 2, 2}, nil, []int{0}},
	} {
		t.Run(sentence, func(t *testing.T) {
			nodes := makeNodes(16, 4) // four to a rack, and two racks to a block
			for i, node := range nodes {
				node.Labels[block] = fmt.Sprint("b", i/8)
			}
			members := makeMembers("train", len(c.on)+1, 8, func(_ int, pod *st.PodWrapper) { pod.Annotation(v1alpha1.TopologySlicesAnnotation, c.slices) })
			var pods []*v1.Pod
			for i, in := range c.on {
				members[i] = sample.Bound(members[i], nodes[4*in].Name)
				pods = append(pods, members[i])
			}
			for _, in := range c.full {
				pods = append(pods, fill(nodes[4*in:4*in+4], 0)...)
			}
			s := newStage(t, nodes, pods...)
			s.open()
			s.see(members...)
			infos, _ := s.feasible(t, members[len(c.on)])
			racks := sets.New[string]()
			for _, info := range infos {
				racks.Insert(info.Node().Labels[rack])
			}
			want := sets.New[string]()
			for _, in := range c.want {
				want.Insert(nodes[4*in].Labels[rack])
			}
			if !racks.Equal(want) {
				t.Errorf("it may go to %v, want %v", racks, want)
			}
		})
	}
}
