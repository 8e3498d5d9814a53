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
