package queuestatus

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/planning/clusterdevices"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/share"
	"github.com/lockstep-sh/lockstep/test/helpers/dra"
)

// TestDevicesCount: the devices of claims, made and to be made, count as the resource that their class counts as.
func TestDevicesCount(t *testing.T) {
	const gpu = v1.ResourceName("nvidia.com/gpu")
	counts := clusterdevices.NewCounts(map[string]v1.ResourceName{dra.Driver: gpu})
	counts.Replace([]*resourceapi.ResourceSlice{dra.Slice("node", 8)}, []*resourceapi.DeviceClass{dra.Class()})
	claiming := func(names ...string) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Spec.ResourceClaims = dra.Pod("p", names...).Spec.ResourceClaims }
	}
	fromTemplate := func(p *v1.Pod) {
		p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpus", ResourceClaimTemplateName: ptr.To("four")}}
	}
	template := &resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "four"}}
	template.Spec.Spec = dra.Claim("four", 4).Spec
	k := &cluster{
		queues: []*v1alpha1.Queue{queueOf("a"), queueOf("b")}, nodes: []*v1.Node{nodeOf("8")}, devices: counts,
		schedulers: map[string]bool{ours: true}, rules: share.Rules{Weighted: true, Stated: true},
		claims:    []*resourceapi.ResourceClaim{dra.Held(dra.Claim("two", 2), "node", 0, "runs"), dra.Claim("three", 3)},
		templates: []*resourceapi.ResourceClaimTemplate{template},
	}
	for _, pod := range []*v1.Pod{
		podOf("runs", "1", in("a"), bound, claiming("two")), podOf("waits", "1", in("a"), claiming("three", "missing")),
		podOf("beside", "1", in("b"), claiming("three")), podOf("new", "1", in("b"), fromTemplate),
	} {
		k.pods = append(k.pods, strip(t, pod))
	}
	got := map[string]string{}
	for name, s := range mustReckon(t, k, now) {
		deserved, allocated, requested := s.Deserved[gpu], s.Allocated[gpu], s.Requested[gpu]
		got[name] = fmt.Sprintf("%s/%s/%s %s", &deserved, &allocated, &requested, s.Share)
	}
	// The claim that "beside" shares with "waits" counts in the queues of both, while neither has a node.
	if diff := cmp.Diff(map[string]string{"a": "4/2/5 25%", "b": "4/0/7 0%"}, got); diff != "" {
		t.Errorf("deserved/allocated/requested and share (-want +got):\n%s", diff)
	}
}

// TestClaimsOfBasicPods: a claim that pods of a native PodGroup share counts for each of them while they wait, unless
// the PodGroup makes a gang of them.
func TestClaimsOfBasicPods(t *testing.T) {
	const gpu = v1.ResourceName("nvidia.com/gpu")
	counts := clusterdevices.NewCounts(map[string]v1.ResourceName{dra.Driver: gpu})
	counts.Replace([]*resourceapi.ResourceSlice{dra.Slice("node", 8)}, []*resourceapi.DeviceClass{dra.Class()})
	member := func(p *v1.Pod) {
		p.Spec.ResourceClaims = dra.Pod("p", "three").Spec.ResourceClaims
		p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: new("train")}
	}
	for sentence, c := range map[string]struct {
		says *gangspec.PodGroupDescription
		want string
	}{
		"the basic policy": {&gangspec.PodGroupDescription{Basic: true, Min: 1}, "6"},
		"a gang":           {&gangspec.PodGroupDescription{Min: 2}, "3"},
	} {
		t.Run(sentence, func(t *testing.T) {
			first, second := podOf("first", "1", in("a"), member), podOf("second", "1", in("a"), member)
			k := &cluster{
				queues: []*v1alpha1.Queue{queueOf("a")}, nodes: []*v1.Node{nodeOf("8")}, devices: counts,
				schedulers: map[string]bool{ours: true}, rules: share.Rules{Weighted: true, Stated: true},
				claims: []*resourceapi.ResourceClaim{dra.Claim("three", 3)},
				pods:   []*v1.Pod{strip(t, first), strip(t, second)},
				groups: map[gangspec.Key]gangspec.PodGroups{{Namespace: first.Namespace, Name: "train"}: {gangspec.Native: c.says}},
			}
			if got := mustReckon(t, k, now)["a"].Requested[gpu]; got.String() != c.want {
				t.Errorf("requested %s, want %s", &got, c.want)
			}
		})
	}
}
