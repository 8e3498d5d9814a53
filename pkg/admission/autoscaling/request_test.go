package autoscaling

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

const rack = "topology.example.com/rack"

// member makes a pod as it comes from a Job: numbered, with a token of its own mounted; change, if not nil, is applied
// to it.
func member(i int, change func(*v1.Pod)) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "llm", Name: fmt.Sprintf("train-%d", i), UID: types.UID(fmt.Sprintf("train-%d", i)),
			Labels: map[string]string{"app": "train", "batch.kubernetes.io/job-completion-index": fmt.Sprint(i)},
		},
		Spec: v1.PodSpec{
			Hostname: fmt.Sprintf("train-%d", i), SchedulerName: "lockstep-scheduler", NodeName: "", NodeSelector: map[string]string{"pool": "gpu"},
			SchedulingGates: []v1.PodSchedulingGate{{Name: "later"}},
			Volumes:         []v1.Volume{{Name: fmt.Sprintf("kube-api-access-%d", i), VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{}}}},
			Containers: []v1.Container{{
				Name: "worker", Image: "train", Env: []v1.EnvVar{{Name: "RANK", Value: fmt.Sprint(i)}},
				VolumeMounts: []v1.VolumeMount{{Name: fmt.Sprintf("kube-api-access-%d", i), MountPath: "/var/run"}},
				Resources:    v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}},
			}},
		},
	}
	if change != nil {
		change(pod)
	}
	return pod
}

func members(n int, change func(*v1.Pod)) []*v1.Pod {
	pods := make([]*v1.Pod, n)
	for i := range pods {
		pods[i] = member(i, change)
	}
	return pods
}

func large(pod *v1.Pod) {
	pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("8")}
}

func demand(pods ...*v1.Pod) Demand {
	return Demand{
		Gang: gangspec.Key{Namespace: "llm", Name: "train"}, SchedulerName: "lockstep-scheduler", ClassName: "best-effort", Topology: rack,
		Owner: metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "job"}, Pods: pods,
	}
}

func mustRequest(t *testing.T, d Demand) Request {
	t.Helper()
	r, err := d.Request()
	must.Succeed(t, err)
	return r
}

func counts(t *testing.T, r Request) (list []int64) {
	t.Helper()
	podSets, ok, err := unstructured.NestedSlice(r.Object.Object, "spec", "podSets")
	if err != nil || !ok {
		t.Fatalf("pod sets: %t, %v", ok, err)
	}
	for _, set := range podSets {
		list = append(list, set.(map[string]any)["count"].(int64))
	}
	return list
}

// TestWhatIsAsked: the whole of a small request.
func TestWhatIsAsked(t *testing.T) {
	r := mustRequest(t, demand(members(3, nil)...))
	id := strings.TrimPrefix(r.Name, "lockstep-train-")
	label := map[string]string{v1alpha1.ProvisioningRequestLabel: id}
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Namespace: "llm", Name: name, Labels: label, OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "job"}},
			Annotations: map[string]string{v1alpha1.GangNameAnnotation: "train", v1alpha1.SchedulerNameAnnotation: "lockstep-scheduler"},
		}
	}
	want := []v1.PodTemplate{{ObjectMeta: meta(r.Name + "-0"), Template: v1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "train", v1alpha1.ProvisioningRequestLabel: id}},
		Spec: v1.PodSpec{
			SchedulerName: "lockstep-scheduler", NodeSelector: map[string]string{"pool": "gpu"},
			Containers: []v1.Container{{Name: "worker", Image: "train", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}}}},
			Affinity: &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
				LabelSelector: &metav1.LabelSelector{MatchLabels: label}, TopologyKey: rack,
			}}}},
		},
	}}}
	if diff := cmp.Diff(want, r.Templates); diff != "" {
		t.Errorf("templates (-want +got):\n%s", diff)
	}
	spec := map[string]any{
		"provisioningClassName": "best-effort",
		"podSets":               []any{map[string]any{"count": int64(3), "podTemplateRef": map[string]any{"name": r.Name + "-0"}}},
	}
	if diff := cmp.Diff(spec, r.Object.Object["spec"]); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{r.Name + "-0"}, TemplatesOf(r.Object)); diff != "" {
		t.Errorf("templates to be deleted with it (-want +got):\n%s", diff)
	}
	key, ours := GangOf(r.Object, "lockstep-scheduler")
	if _, others := GangOf(r.Object, "another"); !ours || others || key != demand().Gang || !IsNameOf(key, r.Name) {
		t.Errorf("it is of gang %s, of this profile: %t, of another: %t", key, ours, others)
	}
}

// TestKinds: pods are of one kind if scheduling cannot tell them apart.
func TestKinds(t *testing.T) {
	byIndex := func(pod *v1.Pod) {
		pod.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "batch.kubernetes.io/job-completion-index", Operator: metav1.LabelSelectorOpExists}}},
			TopologyKey:   v1.LabelHostname,
		}}}}
	}
	for sentence, c := range map[string]struct {
		pods []*v1.Pod
		want []int64
	}{
		"what numbers them makes no kinds":             {members(5, nil), []int64{5}},
		"members that differ, in their order":          {slices.Concat(members(1, large), members(3, nil), members(2, large)), []int64{3, 3}},
		"labels count that their own affinity goes by": {members(2, byIndex), []int64{1, 1}},
		"a volume claim of its own is a kind of its own": {members(2, func(pod *v1.Pod) {
			pod.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: pod.Name}}}}
		}), []int64{1, 1}},
	} {
		if diff := cmp.Diff(c.want, counts(t, mustRequest(t, demand(c.pods...)))); diff != "" {
			t.Errorf("%s: counts (-want +got):\n%s", sentence, diff)
		}
	}
	if kept := mustRequest(t, demand(members(2, byIndex)...)).Templates[0].Template.Spec.Affinity.PodAntiAffinity; kept == nil {
		t.Error("the pods' own affinity is lost")
	}
	if pod := member(0, byIndex); pod.Spec.Affinity.PodAffinity != nil {
		t.Error("the pods themselves are changed")
	}
	_, err := demand(members(33, byIndex)...).Request()
	if want := "its members are of 33 kinds, and a ProvisioningRequest takes 32"; err == nil || err.Error() != want {
		t.Errorf("of 33 kinds: %v, want %s", err, want)
	}
}

// TestNames: the same demand has the same name, and any other demand another one. The API server accepts all names.
func TestNames(t *testing.T) {
	same := mustRequest(t, demand(members(3, nil)...)).Name
	if again := mustRequest(t, demand(members(3, func(pod *v1.Pod) { pod.UID += "-again" })...)).Name; again != same {
		t.Errorf("pods that were made again: %s, want %s", again, same)
	}
	seen := map[string]string{same: "what it is compared with"}
	for sentence, d := range map[string]Demand{
		"more pods":           demand(members(4, nil)...),
		"larger pods":         demand(members(3, large)...),
		"another topology":    func() Demand { d := demand(members(3, nil)...); d.Topology = "zone"; return d }(),
		"another class":       func() Demand { d := demand(members(3, nil)...); d.ClassName = "other"; return d }(),
		"another owner":       func() Demand { d := demand(members(3, nil)...); d.Owner.UID = "other"; return d }(),
		"another gang":        func() Demand { d := demand(members(3, nil)...); d.Gang.Name = "train-2"; return d }(),
		"a name of its own":   func() Demand { d := demand(members(3, nil)...); d.Gang.Name = "My_Gang"; return d }(),
		"another such":        func() Demand { d := demand(members(3, nil)...); d.Gang.Name = "Your_Gang"; return d }(),
		"a name that is long": func() Demand { d := demand(members(3, nil)...); d.Gang.Name = strings.Repeat("a", 253); return d }(),
	} {
		r := mustRequest(t, d)
		if other, ok := seen[r.Name]; ok {
			t.Errorf("%s has the name of %s: %s", sentence, other, r.Name)
		}
		seen[r.Name] = sentence
		if !IsNameOf(d.Gang, r.Name) || d.Gang != demand().Gang && IsNameOf(demand().Gang, r.Name) {
			t.Errorf("%s: whose name is %s?", sentence, r.Name)
		}
		for _, template := range r.Templates {
			if errs := validation.IsDNS1123Subdomain(template.Name); len(errs) > 0 {
				t.Errorf("%s: %s: %v", sentence, template.Name, errs)
			}
		}
	}
}

// TestEnds: after which conditions an autoscaler does no more for a request.
func TestEnds(t *testing.T) {
	for sentence, c := range map[string]struct {
		kind, status, want string
	}{
		"accepted":         {"Accepted", "True", ""},
		"provisioned":      {"Provisioned", "True", ""},
		"not found yet":    {"Provisioned", "False", ""},
		"failed":           {"Failed", "True", "Failed: Why: so"},
		"not failed":       {"Failed", "False", ""},
		"nobody came":      {"BookingExpired", "True", "BookingExpired: Why: so"},
		"taken away again": {"CapacityRevoked", "True", "CapacityRevoked: Why: so"},
	} {
		request := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": []any{
			map[string]any{"type": c.kind, "status": c.status, "reason": "Why", "message": "so"},
		}}}}
		if why, over := EndOf(request); why != c.want || over != (c.want != "") {
			t.Errorf("%s: %q, %t; want %q", sentence, why, over, c.want)
		}
	}
}
