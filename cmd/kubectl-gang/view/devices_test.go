package view

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/planning/clusterdevices"
	"github.com/lockstep-sh/lockstep/test/helpers/dra"
)

// TestTopologyOfDevices: devices of ResourceSlices are capacity beside that of device plugins, and used by the pods
// that claim them: once, where pods share a claim.
func TestTopologyOfDevices(t *testing.T) {
	nodes := fleet(1, 3)
	for _, node := range nodes[1:] {
		delete(node.Status.Allocatable, gpu) // by their slices alone
	}
	onNode := func(name, node string, claims ...string) *v1.Pod {
		p := dra.Pod(name, claims...)
		p.Spec.NodeName = node
		return p
	}
	ended := onNode("ended", "n0-2", "gone")
	ended.Status.Phase = v1.PodSucceeded
	in := TopologyIn{
		Nodes: nodes, Resource: gpu,
		Devices: Devices{
			Counts: clusterdevices.NewCounts(map[string]v1.ResourceName{dra.Driver: gpu}),
			Claims: []*resourceapi.ResourceClaim{
				dra.Held(dra.Claim("two", 2), "n0-1", 0, "a"), dra.Held(dra.Claim("shared", 3), "n0-1", 2, "b", "c"),
				dra.Held(dra.Claim("gone", 1), "n0-2", 0, "ended"), dra.Claim("waits", 4),
			},
		},
		Pods: []*v1.Pod{
			asking("n0-0", "5", v1.PodRunning), onNode("a", "n0-1", "two"), onNode("b", "n0-1", "shared"), onNode("c", "n0-1", "shared"),
			ended, onNode("d", "", "waits"),
		},
		Reservations: []*v1alpha1.Reservation{{Status: v1alpha1.ReservationStatus{
			Phase:      v1alpha1.ReservationAvailable,
			Placements: []v1alpha1.ReservationPlacement{{NodeName: "n0-2", Allocatable: v1.ResourceList{dra.Backed: resource.MustParse("2")}}},
		}}},
	}
	in.Devices.Counts.Replace([]*resourceapi.ResourceSlice{dra.Slice("n0-1", 8), dra.Slice("n0-2", 4)}, []*resourceapi.DeviceClass{dra.Class()})
	const want = `nvidia.com/gpu on all nodes: 3 nodes, 0 empty; 20 total, 10 used, 2 held, 0 closed, 8 free; at most 3 in n0-0 [#####...][#####...][++..]
  n0-0: 1 nodes, 0 empty; 8 total, 5 used, 0 held, 0 closed, 3 free; at most 3 [#####...]
  n0-1: 1 nodes, 0 empty; 8 total, 5 used, 0 held, 0 closed, 3 free; at most 3 [#####...]
  n0-2: 1 nodes, 0 empty; 4 total, 0 used, 2 held, 0 closed, 2 free; at most 2 [++..]
`
	topology := TopologyOf(in)
	if diff := cmp.Diff(want, text(topology.Lines(true))); diff != "" {
		t.Errorf("picture (-want +got):\n%s", diff)
	}
}

// TestDevicesOfInterest: what gangs ask for by claims is of interest, also by claims that are to be made.
func TestDevicesOfInterest(t *testing.T) {
	template := &resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "one"}}
	template.Spec.Spec = dra.Claim("one", 1).Spec
	node := fleet(1, 1)[0]
	node.Name = "n"
	in := TopologyIn{Nodes: []*v1.Node{node}, Devices: Devices{
		Counts: clusterdevices.NewCounts(nil), Templates: []*resourceapi.ResourceClaimTemplate{template},
	}}
	in.Devices.Counts.Replace([]*resourceapi.ResourceSlice{dra.Slice("n", 1)}, []*resourceapi.DeviceClass{dra.Class()})
	for i := range 2 {
		p := dra.Pod(fmt.Sprint("p", i))
		p.UID, p.Labels = types.UID(p.Name), map[string]string{v1alpha1.PodGroupXLabel: "train"}
		p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpus", ResourceClaimTemplateName: new("one")}}
		in.Pods = append(in.Pods, p)
	}
	got := TopologyOf(in)
	if got.Resource != dra.Backed || got.Total != 1 || !strings.Contains(text(got.Lines(false)), "1 free") {
		t.Errorf("of interest is %s, of which the topology is %s", got.Resource, text(got.Lines(false)))
	}
}
