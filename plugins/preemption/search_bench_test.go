package preemption

import (
	"context"
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
	"github.com/lockstep-sh/lockstep/test/helpers/cputime"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// known is a profile that knows its gangs, with those that start together with them.
type known map[gangspec.Key][]gangstate.RunningGang

func (k known) Running(of string, key gangspec.Key) []gangstate.RunningGang {
	if of != profile {
		return nil
	}
	return slices.Clone(k[key])
}

// IsEvictedAlone reports whether a pod is in no gang.
func (k known) IsEvictedAlone(pod *v1.Pod) bool {
	_, _, member := gangspec.KeyOf(pod)
	return !member
}

func (k known) PodGroupsOf(gangspec.Key) gangspec.PodGroups { return gangspec.PodGroups{} }

func (k known) PartialHolders() map[hold.Holder]turns.Rank { return nil }
func (k known) Yield(context.Context, []hold.Holder)       {}
func (k known) Placing(hold.Holder) bool                   { return true }
func (k known) Synced() bool                               { return true }
func (k known) Recall(*v1.Pod)                             {}
func (k known) Wants(*v1.Pod) (gangstate.PlacementRequest, bool) {
	return gangstate.PlacementRequest{}, false
}

// full returns a cluster of nodes of 8 GPUs, in racks, full of gangs of 8 pods of low priority, each on 8
// nodes beside each other.
func full(nodes, racks, min int) ([]*v1.Node, []*v1.Pod, known) {
	var all []*v1.Node
	var pods []*v1.Pod
	gangs := known{}
	for i := range nodes {
		all = append(all, node(fmt.Sprintf("n%04d", i), 8, fmt.Sprint("r", i*racks/nodes)))
	}
	for g := range nodes {
		name := fmt.Sprintf("g%04d", g)
		f := gangstate.RunningGang{Key: gangspec.Key{Namespace: "default", Name: name}, Min: min}
		for i := range 8 {
			on := all[(g/8*8+i)%nodes].Name
			pod := member(name, i, min, 10, 1, on)
			pods = append(pods, pod)
			f.Running = append(f.Running, gangstate.Placed{Pod: pod, Node: on})
		}
		gangs[f.Key] = []gangstate.RunningGang{f}
	}
	return all, pods, gangs
}

// BenchmarkSearch measures one search: 40,000 pods on 5,000 nodes, and a preemptor of 64 that needs 64 GPUs, or of 512.
// Where a topology is required its time must grow with the domain, not with the cluster.
func BenchmarkSearch(b *testing.B) {
	for _, c := range []struct {
		name         string
		nodes, racks int
		min, size    int // of a victim gang, of the preemptor
		spec         gangspec.Spec
	}{
		{"surplus/nodes=5000", 5000, 50, 4, 64, gangspec.Spec{}},
		{"surplus/nodes=1000", 1000, 10, 4, 64, gangspec.Spec{}},
		{"512/nodes=10000", 10000, 100, 4, 512, gangspec.Spec{}},
		{"512/nodes=5000", 5000, 50, 4, 512, gangspec.Spec{}},
		{"512/nodes=1000", 1000, 10, 4, 512, gangspec.Spec{}},
		{"whole/nodes=5000", 5000, 50, 8, 64, gangspec.Spec{}},
		{"rack=100/nodes=5000", 5000, 50, 8, 64, gangspec.Spec{RequiredTopology: rack}},
		{"rack=100/nodes=1000", 1000, 10, 8, 64, gangspec.Spec{RequiredTopology: rack}},
		{"hopeless/nodes=5000", 5000, 50, 8, 64, gangspec.Spec{RequiredTopology: v1.LabelHostname}},
	} {
		b.Run(c.name, func(b *testing.B) {
			nodes, pods, gangs := full(c.nodes, c.racks, c.min)
			s := newStage(b, nodes, pods)
			s.know(gangs)
			d := s.demand(b, c.spec, members("p", c.size, c.size, 100, 1)...)
			b.ReportAllocs()
			report := cputime.Start(b)
			for b.Loop() {
				f, err := s.search(s.ctx, d)
				must.Succeed(b, err)
				want := c.size
				if c.spec.RequiredTopology == v1.LabelHostname {
					want = 0
				}
				got := 0
				if f != nil {
					got = len(f.victims)
				}
				if got != want {
					b.Fatalf("%d victims, want %d", got, want)
				}
			}
			report()
		})
	}
}

// BenchmarkSearchMembersThatDiffer does what BenchmarkSearch does for a preemptor whose members care about
// each other, or have a claim each: 64 of them, on 5,000 nodes with 40,000 pods.
func BenchmarkSearchMembersThatDiffer(b *testing.B) {
	apart := st.MakeLabelSelector().Label("app", "p").Obj()
	for _, c := range []struct {
		name   string
		change func(*st.PodWrapper)
		claims func(nodes []*v1.Node, pods []*v1.Pod) []runtime.Object
	}{
		{"anti-affinity=hostname", func(p *st.PodWrapper) {
			p.PodAntiAffinityIn("app", v1.LabelHostname, []string{"p"}, st.PodAntiAffinityWithRequiredReq)
		}, nil},
		{"affinity=zone", func(p *st.PodWrapper) {
			p.PodAffinityIn("app", v1.LabelTopologyZone, []string{"p"}, st.PodAffinityWithRequiredReq)
		}, nil},
		{"spread=zone", func(p *st.PodWrapper) {
			p.SpreadConstraint(1, v1.LabelTopologyZone, v1.DoNotSchedule, apart, nil, nil, nil, nil)
		}, nil},
		{"spread=hostname", func(p *st.PodWrapper) {
			p.SpreadConstraint(1, v1.LabelHostname, v1.DoNotSchedule, apart, nil, nil, nil, nil)
		}, nil},
		{"claims=bound-local", nil, boundClaims},
		{"claims=waiting", nil, func(_ []*v1.Node, pods []*v1.Pod) []runtime.Object { return waitingClaims("example.com", pods) }},
		{"claims=waiting-local", nil, func(nodes []*v1.Node, pods []*v1.Pod) []runtime.Object {
			objects := waitingClaims("kubernetes.io/no-provisioner", pods)
			for i := range 256 { // of which some are good
				objects = append(objects, volumeOn(fmt.Sprint("free-", i), nodes[i*7%len(nodes)], nil))
			}
			return objects
		}},
	} {
		for _, min := range []int{4, 8} {
			b.Run(fmt.Sprintf("%s/min=%d", c.name, min), func(b *testing.B) {
				nodes, pods, gangs := full(5000, 50, min)
				for i, n := range nodes {
					n.Labels[v1.LabelTopologyZone] = fmt.Sprint("z", i%3)
				}
				preemptor := members("p", 64, 64, 100, 1)
				for i, pod := range preemptor {
					wrapped := st.PodWrapper{Pod: *pod}
					wrapped.Label("app", "p")
					if c.change != nil {
						c.change(&wrapped)
					}
					if c.claims != nil {
						wrapped.PVC(pod.Name)
					}
					preemptor[i] = wrapped.Obj()
				}
				var objects []runtime.Object
				if c.claims != nil {
					objects = c.claims(nodes, preemptor)
				}
				s := newStage(b, nodes, pods, objects...)
				s.know(gangs)
				d := s.demand(b, gangspec.Spec{}, preemptor...)
				b.ReportAllocs()
				victims, report := 0, cputime.Start(b)
				for b.Loop() {
					f, err := s.search(s.ctx, d)
					must.Succeed(b, err)
					if f == nil || len(f.victims) < 64 {
						b.Fatalf("found %+v, want 64 victims or more", f)
					}
					victims = len(f.victims)
				}
				report()
				b.ReportMetric(float64(victims), "victims")
			})
		}
	}
}

const benchClass = "bench"

// claimOf returns a claim for 1Gi of the class, as the pod of its name has it.
func claimOf(pod *v1.Pod) *v1.PersistentVolumeClaim {
	return &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: "1"},
		Spec: v1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To(benchClass), AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
}

// volumeOn returns a local volume of 1Gi on a node, bound to a claim if one is given.
func volumeOn(name string, node *v1.Node, claim *v1.PersistentVolumeClaim) *v1.PersistentVolume {
	volume := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1"},
		Spec: v1.PersistentVolumeSpec{
			StorageClassName: benchClass, AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Capacity:               v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")},
			PersistentVolumeSource: v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: "/" + name}},
			NodeAffinity: &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{node.Name}}},
			}}}},
		},
		Status: v1.PersistentVolumeStatus{Phase: v1.VolumeAvailable},
	}
	if claim != nil {
		volume.Spec.ClaimRef = &v1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}
		volume.Status.Phase = v1.VolumeBound
	}
	return volume
}

// boundClaims gives each pod a claim that is bound to a volume on a node of its own.
func boundClaims(nodes []*v1.Node, pods []*v1.Pod) []runtime.Object {
	var objects []runtime.Object
	for i, pod := range pods {
		claim := claimOf(pod)
		claim.Annotations = map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
		claim.Spec.VolumeName, claim.Status.Phase = pod.Name, v1.ClaimBound
		objects = append(objects, claim, volumeOn(pod.Name, nodes[i], claim))
	}
	return objects
}

// waitingClaims gives each pod a claim of a class that waits for its first consumer.
func waitingClaims(provisioner string, pods []*v1.Pod) []runtime.Object {
	objects := []runtime.Object{&storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: benchClass}, Provisioner: provisioner, VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	}}
	for _, pod := range pods {
		objects = append(objects, claimOf(pod))
	}
	return objects
}
