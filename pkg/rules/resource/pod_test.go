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
