package preemption

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// claiming returns members with a claim each, of their name.
func claiming(n int, claim func(i int) string) []*v1.Pod {
	pods := members("p", n, n, 100, 1)
	for i, pod := range pods {
		wrapped := st.PodWrapper{Pod: *pod}
		pods[i] = wrapped.PVC(claim(i)).Obj()
	}
	return pods
}

func own(i int) string { return fmt.Sprint("p-", i) }

// small returns a volume that is too small for claims.
func small(name string, node *v1.Node) *v1.PersistentVolume {
	volume := volumeOn(name, node, nil)
	volume.Spec.Capacity[v1.ResourceStorage] = resource.MustParse("1Mi")
	return volume
}

// released returns a volume that a claim had and that is not available again yet.
func released(name string, node *v1.Node) *v1.PersistentVolume {
	volume := volumeOn(name, node, nil)
	volume.Status.Phase = v1.VolumeReleased
	return volume
}

// shared returns a volume that two nodes reach.
func shared(name string, one, other *v1.Node) *v1.PersistentVolume {
	volume := volumeOn(name, one, nil)
	host := &volume.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0]
	host.Values = append(host.Values, other.Name)
	return volume
}

// TestPlansWithClaims: four nodes with room for all, and volumes for some.
func TestPlansWithClaims(t *testing.T) {
	var nodes []*v1.Node
	for i := range 4 {
		nodes = append(nodes, node(fmt.Sprint("n", i), 8, "r0"))
	}
	const none, csi = "kubernetes.io/no-provisioner", "example.com"
	onEach := func(n int) (objects []runtime.Object) {
		for i := range n {
			objects = append(objects, volumeOn(fmt.Sprint("free-", i), nodes[i%4], nil))
		}
		return objects
	}
	attachable := func(n int32) (objects []runtime.Object) {
		for _, node := range nodes {
			objects = append(objects, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node.Name}, Spec: storagev1.CSINodeSpec{
				Drivers: []storagev1.CSINodeDriver{{Name: csi, NodeID: node.Name, Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To(n)}}},
			}})
		}
		return objects
	}
	for sentence, c := range map[string]struct {
		members     int
		claim       func(int) string
		provisioner string
		objects     []runtime.Object
		most        int // members on a node
		why         string
		differ      bool // every second member asks for more of the node
	}{
		"a local volume on each node, for as many":       {members: 4, claim: own, provisioner: none, objects: onEach(4), most: 1},
		"for one more than there are":                    {members: 5, claim: own, provisioner: none, objects: onEach(4), why: "4 of 5 members fit (of 4 nodes: 4 node(s) didn't find available persistent volumes to bind)"},
		"two on each node":                               {members: 8, claim: own, provisioner: none, objects: onEach(8), most: 2},
		"volumes on some nodes":                          {members: 3, claim: own, provisioner: none, objects: onEach(2), why: "2 of 3 members fit"},
		"members of two makes have the same volumes":     {members: 4, claim: own, provisioner: none, objects: onEach(4), most: 1, differ: true},
		"and no more than there are":                     {members: 5, claim: own, provisioner: none, objects: onEach(4), differ: true, why: "4 of 5 members fit"},
		"volumes that are too small are none":            {members: 4, claim: own, provisioner: none, objects: append(onEach(3), small("small", nodes[3])), why: "3 of 4 members fit"},
		"nor are those that nobody may have yet":         {members: 4, claim: own, provisioner: none, objects: append(onEach(3), released("released", nodes[3])), why: "3 of 4 members fit"},
		"a volume that two nodes reach is one":           {members: 3, claim: own, provisioner: none, objects: append(onEach(2), shared("shared", nodes[2], nodes[3])), most: 1},
		"and not two":                                    {members: 4, claim: own, provisioner: none, objects: append(onEach(2), shared("shared", nodes[2], nodes[3])), why: "3 of 4 members fit"},
		"volumes that are made where they are wanted":    {members: 9, claim: own, provisioner: csi, most: 9},
		"of which a node may have two":                   {members: 8, claim: own, provisioner: csi, objects: attachable(2), most: 2},
		"and no more":                                    {members: 9, claim: own, provisioner: csi, objects: attachable(2), why: "8 of 9 members fit (of 4 nodes: 4 node(s) exceed max volume count)"},
		"one claim for all is where the first is":        {members: 8, claim: func(int) string { return "p-0" }, provisioner: csi, most: 8},
		"and takes no more than its node does":           {members: 9, claim: func(int) string { return "p-0" }, provisioner: csi, why: "8 of 9 members fit"},
		"one local volume for all is where the first is": {members: 3, claim: func(int) string { return "p-0" }, provisioner: none, objects: onEach(1), most: 3},
	} {
		t.Run(sentence, func(t *testing.T) {
			preemptor := claiming(c.members, c.claim)
			for i := 1; i < len(preemptor) && c.differ; i += 2 {
				preemptor[i].Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("1m")
			}
			s := newStage(t, nodes, nil, slices.Concat(waitingClaims(c.provisioner, preemptor), c.objects)...)
			d := s.demand(t, gangspec.Spec{}, preemptor...)
			for range 2 { // a plan leaves nothing taken
				plan, err := s.planner().Plan(s.ctx, d.attempt, nil)
				must.Succeed(t, err)
				on := map[string]int{}
				for _, name := range plan.Nodes {
					on[name]++
				}
				most := 0
				for _, n := range on {
					most = max(most, n)
				}
				why := plan.Why[d.attempt.Gangs[0].Key]
				if plan.Complete != (c.why == "") || !strings.Contains(why, c.why) || most > c.most {
					t.Errorf("complete %v on %v, because %q; want %q, at most %d on a node", plan.Complete, on, why, c.why, c.most)
				}
			}
		})
	}
}

// TestSearchWithClaims: room is made where the volumes are, and for all members or not at all.
func TestSearchWithClaims(t *testing.T) {
	var nodes []*v1.Node
	var low []*v1.Pod
	for i := range 4 {
		name := fmt.Sprint("n", i)
		nodes = append(nodes, node(name, 1, "r0"))
		low = append(low, members(fmt.Sprint("low", i), 1, 1, 10, 1, name)...)
	}
	bound := func(preemptor []*v1.Pod) []runtime.Object {
		objects := boundClaims(nodes[1:3], preemptor)
		return append(objects, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: benchClass}})
	}
	waiting := func(volumes ...int) func([]*v1.Pod) []runtime.Object {
		return func(preemptor []*v1.Pod) []runtime.Object {
			objects := waitingClaims("kubernetes.io/no-provisioner", preemptor)
			for i, on := range volumes {
				objects = append(objects, volumeOn(fmt.Sprint("free-", i), nodes[on], nil))
			}
			return objects
		}
	}
	for sentence, c := range map[string]struct {
		objects func([]*v1.Pod) []runtime.Object
		want    string
	}{
		"claims that are bound":                      {bound, "low1-0 low2-0"},
		"claims that wait for local volumes":         {waiting(0, 3), "low0-0 low3-0"},
		"of which both are on a node that takes one": {waiting(2, 2), "none"},
		"of which there is one":                      {waiting(3), "none"},
	} {
		t.Run(sentence, func(t *testing.T) {
			preemptor := claiming(2, own)
			s := newStage(t, nodes, low, c.objects(preemptor)...)
			d := s.demand(t, gangspec.Spec{}, preemptor...)
			for range 2 { // a search leaves nothing taken
				if got := s.victimsOf(t, d); got != c.want {
					t.Errorf("victims %q, want %q", got, c.want)
				}
			}
		})
	}
}
