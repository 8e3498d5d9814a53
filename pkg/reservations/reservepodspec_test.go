package reservations

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// TestReservePods: they are pods as the API server would have made them of the template, and members of no gang but
// that of their Reservation.
func TestReservePods(t *testing.T) {
	s := newStage(t)
	r := s.make("r", func(r *v1alpha1.Reservation) {
		r.Spec.Replicas = 3
		r.Annotations = map[string]string{v1alpha1.RequiredTopologyAnnotation: "rack", v1alpha1.PreferredTopologyAnnotation: "row"}
		template := &r.Spec.Template
		template.Namespace = "team-a"
		template.Labels = map[string]string{v1alpha1.PodGroupXLabel: "train", v1alpha1.QueueLabel: "research", "app": "owner"}
		template.Annotations = map[string]string{
			v1alpha1.GangNameAnnotation: "train", v1alpha1.GroupsAnnotation: `["team-a/eval"]`, v1alpha1.MinByRoleAnnotation: `{"head":1}`,
			v1alpha1.ReservationAnnotation: "r", v1alpha1.PreferredTopologyAnnotation: "zone",
		}
		template.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: new("train")}
		template.Spec.Containers[0].Resources = v1.ResourceRequirements{Limits: v1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}}
	})
	pods := reservePods(r, templateOf(r), []int32{0, 2}, 1)
	if got := slices.Sorted(maps.Keys(pods)); !slices.Equal(got, []int32{0, 2}) {
		t.Fatalf("indexes %v", got)
	}
	pod := pods[2]
	key, _, member := gangspec.KeyOf(pod)
	want := map[string]string{
		v1alpha1.GangNameAnnotation: "reservation_r", v1alpha1.MinAvailableAnnotation: "2", v1alpha1.WaitingTimeAnnotation: waitingTime,
		v1alpha1.RequiredTopologyAnnotation: "rack", v1alpha1.PreferredTopologyAnnotation: "zone",
	}
	if !member || key.String() != "team-a/reservation_r" || !maps.Equal(pod.Annotations, want) {
		t.Errorf("gang %v, annotations %v", key, pod.Annotations)
	}
	if !maps.Equal(pod.Labels, map[string]string{v1alpha1.QueueLabel: "research", "app": "owner"}) || pod.Spec.SchedulingGroup != nil {
		t.Errorf("labels %v, scheduling group %v", pod.Labels, pod.Spec.SchedulingGroup)
	}
	if got := pod.Spec.Containers[0].Resources.Requests["nvidia.com/gpu"]; got.Value() != 8 || pod.Spec.SchedulerName != "lockstep-scheduler" {
		t.Errorf("requests %v of scheduler %s: limits are requests", pod.Spec.Containers[0].Resources.Requests, pod.Spec.SchedulerName)
	}
	alone := reservePods(r, templateOf(r), []int32{1}, 2)[1]
	if _, _, member := gangspec.KeyOf(alone); member || alone.UID == pods[0].UID {
		t.Errorf("one alone is a member, or has the UID of another: %s", alone.UID)
	}
}

func TestRefusal(t *testing.T) {
	for sentence, c := range map[string]struct {
		change func(spec *v1.PodSpec)
		want   string
	}{
		"a template without names and images": {func(spec *v1.PodSpec) { spec.Containers = append(spec.Containers, spec.Containers[0]) }, ""},
		"a volume in the pod": {func(spec *v1.PodSpec) {
			spec.Volumes = []v1.Volume{{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
		}, ""},
		"a claim": {func(spec *v1.PodSpec) {
			spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
		}, `spec.template.spec.volumes[0]: Invalid value: "data"`},
		"a device claim": {func(spec *v1.PodSpec) { spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu"}} }, `spec.template.spec.resourceClaims[0]: Invalid value: "gpu"`},
		"a selector that cannot be": {func(spec *v1.PodSpec) {
			spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
				NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "gpu", Operator: "Is", Values: []string{"h200"}}}}},
			}}}
		}, `operator: Invalid value: "Is"`},
		"a spread of nothing": {func(spec *v1.PodSpec) {
			spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{MaxSkew: 0, TopologyKey: "rack", WhenUnsatisfiable: v1.DoNotSchedule}}
		}, `maxSkew: Invalid value: 0`},
		"more than any node can have": {func(spec *v1.PodSpec) {
			spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("1e30")
		}, "spec.template.spec.containers[0].resources.requests[cpu] is 1e30: want at most 1T"},
		"requests above limits": {func(spec *v1.PodSpec) {
			spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}
		}, "must be less than or equal to cpu limit"},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t)
			got := refusal(templateOf(s.make("r", func(r *v1alpha1.Reservation) { c.change(&r.Spec.Template.Spec) })))
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("refused with %q, want %q", got, c.want)
			}
		})
	}
}

// TestReservePodsMatchLabelKeys: a reserve pod is what the API server would make of the template, with what
// mismatchLabelKeys mean in the selector: else the replicas of one Reservation keep each other out of their rack, and
// none is ever held.
func TestReservePodsMatchLabelKeys(t *testing.T) {
	s := newStage(t)
	r := s.make("r", func(r *v1alpha1.Reservation) {
		r.Spec.Replicas = 2
		r.Spec.Template.Labels = map[string]string{"tenant": "a"}
		r.Spec.Template.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
			TopologyKey: "rack", MismatchLabelKeys: []string{"tenant"},
			LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tenant", Operator: metav1.LabelSelectorOpExists}}},
		}}}}
	})
	template := templateOf(r)
	if why := refusal(template); why != "" {
		t.Fatalf("refused: %s", why)
	}
	for _, pod := range reservePods(r, template, []int32{0, 1}, 1) {
		term := pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0]
		if !slices.ContainsFunc(term.LabelSelector.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool {
			return r.Key == "tenant" && r.Operator == metav1.LabelSelectorOpNotIn && slices.Equal(r.Values, []string{"a"})
		}) {
			t.Errorf("reserve pod %s keeps away pods with %v, the other replicas too; want tenant notin (a) in it", pod.Name, term.LabelSelector.MatchExpressions)
		}
	}
	r.Spec.Template.Spec = *template.Spec.DeepCopy()
	if got := templateOf(r).Spec.Affinity; !equality.Semantic.DeepEqual(got, template.Spec.Affinity) {
		t.Errorf("from the template of a pod, which has it already: %v, want %v", got, template.Spec.Affinity)
	}
}

// TestDomain: what is sought anew is sought where the rest is, if it has to be in one domain.
func TestDomain(t *testing.T) {
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	for name, rack := range map[string]string{"a": "r0", "b": "r1"} {
		must.Succeed(t, nodes.Add(st.MakeNode().Name(name).Label("rack", rack).Obj()))
	}
	s := newStage(t)
	s.nodes = corelisters.NewNodeLister(nodes)
	at := func(names ...string) (list []v1alpha1.ReservationPlacement) {
		for _, name := range names {
			list = append(list, v1alpha1.ReservationPlacement{NodeName: name})
		}
		return list
	}
	for sentence, c := range map[string]struct {
		key      string
		standing []v1alpha1.ReservationPlacement
		want     string
	}{
		"where the rest is":        {"rack", at("b"), "r1"},
		"a node of it is gone":     {"rack", at("gone", "a"), "r0"},
		"nothing stands":           {"rack", nil, ""},
		"no topology is required":  {"", at("b"), ""},
		"the node is in no domain": {"row", at("b"), ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			pod := st.MakePod().NodeSelector(map[string]string{"pool": "gpu"}).Obj()
			if c.key != "" {
				pod.Annotations = map[string]string{v1alpha1.RequiredTopologyAnnotation: c.key}
			}
			must.Succeed(t, s.requireDomain(pod, c.standing))
			if got := pod.Spec.NodeSelector[c.key]; got != c.want || pod.Spec.NodeSelector["pool"] != "gpu" {
				t.Errorf("selector %v, want %s=%s in it", pod.Spec.NodeSelector, c.key, c.want)
			}
		})
	}
}

// TestInPlaceOf: the Reservation itself has the pod that a place is for, for its scheduler as for the status of its
// queue.
func TestInPlaceOf(t *testing.T) {
	annotated := func(of string) map[string]string { return map[string]string{v1alpha1.InPlaceOfAnnotation: of} }
	for sentence, c := range map[string]struct {
		own, template map[string]string
		want          types.UID
	}{
		"by itself":            {annotated("moves"), nil, "moves"},
		"by its template":      {nil, annotated("moves"), ""},
		"by both, differently": {annotated("moves"), annotated("other"), "moves"},
	} {
		r := &v1alpha1.Reservation{ObjectMeta: metav1.ObjectMeta{Name: "r", UID: "r", Annotations: c.own, CreationTimestamp: metav1.NewTime(time.Unix(1000, 0))}}
		r.Spec.Template.Annotations = c.template
		r.Status.Placements = []v1alpha1.ReservationPlacement{{NodeName: "n", Allocatable: v1.ResourceList{"cpu": resource.MustParse("1")}}}
		if got := reservationstate.InPlaceOf(templateOf(r)); got != c.want {
			t.Errorf("%s: the scheduler has it in place of %q, want %q", sentence, got, c.want)
		}
		if standing := reservationstate.CountedPods(r, time.Unix(1000, 0)); len(standing) == 0 || reservationstate.InPlaceOf(standing[0]) != c.want {
			t.Errorf("%s: its queue has it otherwise: %v", sentence, standing)
		}
	}
}
