package resource

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestRequests(t *testing.T) {
	asks := func(cpu string) v1.Container {
		return v1.Container{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}}}
	}
	pod := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{asks("5")},
		Containers:     []v1.Container{asks("500m"), asks("1")},
		Overhead:       v1.ResourceList{v1.ResourceCPU: resource.MustParse("250m")},
	}}
	if diff := cmp.Diff(Vector{v1.ResourceCPU: 5250}, FromList(Requests(pod))); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// TestRequestsOfTemplate: what is missing is what the API server writes into the pods.
func TestRequestsOfTemplate(t *testing.T) {
	list := func(cpu, memory string) v1.ResourceList {
		l := v1.ResourceList{}
		for name, amount := range map[v1.ResourceName]string{v1.ResourceCPU: cpu, v1.ResourceMemory: memory} {
			if amount != "" {
				l[name] = resource.MustParse(amount)
			}
		}
		return l
	}
	for sentence, c := range map[string]struct {
		container, pod v1.ResourceRequirements
		want           v1.ResourceList
	}{
		"a limit stands in for a request":             {container: v1.ResourceRequirements{Limits: list("2", "")}, want: list("2", "")},
		"of the pod, too":                             {pod: v1.ResourceRequirements{Limits: list("8", "")}, want: list("8", "")},
		"but what containers request comes before it": {container: v1.ResourceRequirements{Requests: list("2", "")}, pod: v1.ResourceRequirements{Limits: list("8", "1Gi")}, want: list("2", "1Gi")},
		"and what the pod requests before that":       {container: v1.ResourceRequirements{Requests: list("2", "")}, pod: v1.ResourceRequirements{Requests: list("4", ""), Limits: list("8", "")}, want: list("4", "")},
	} {
		t.Run(sentence, func(t *testing.T) {
			template := &v1.PodTemplateSpec{Spec: v1.PodSpec{Containers: []v1.Container{{Resources: c.container}}}}
			if len(c.pod.Limits) > 0 {
				template.Spec.Resources = &c.pod
			}
			if diff := cmp.Diff(FromList(c.want), FromList(RequestsOfTemplate(template))); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

// What nothing has is still more than anything has in a sum, and takes no time to add up.
func TestRequestsOfTooMuch(t *testing.T) {
	asks := func(cpu string) v1.ResourceList { return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)} }
	pod := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: asks("1e10000000")}}},
		Containers:     []v1.Container{{Resources: v1.ResourceRequirements{Requests: asks("12345678901234567890e1000000")}}, {Resources: v1.ResourceRequirements{Requests: asks("1e10000000")}}},
		Overhead:       asks("1"),
	}}
	before := pod.DeepCopy()
	sum := Requests(pod)[v1.ResourceCPU]
	if want := resource.MustParse("2000000000000000000000000000001"); sum.AsApproximateFloat64() > 1e31 || sum.Cmp(want) != 0 {
		t.Errorf("it asks for %s", Text(&sum))
	}
	if before.Spec.Containers[0].Resources.Requests.Cpu().AsApproximateFloat64() != pod.Spec.Containers[0].Resources.Requests.Cpu().AsApproximateFloat64() {
		t.Error("the pod was changed")
	}
}
