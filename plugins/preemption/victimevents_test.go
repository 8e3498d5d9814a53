package preemption

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// TestSuccessors: whoever makes the pods of an evicted gang again is named, and how long that takes.
func TestSuccessors(t *testing.T) {
	by := func(apiVersion, kind string, labels map[string]string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: labels, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: apiVersion, Kind: kind, Name: "train", Controller: new(true)}}}}
	}
	for want, c := range map[string]struct {
		pod       *v1.Pod
		suspended bool
	}{
		"its pods have no controller that makes them again":          {pod: &v1.Pod{}},
		`Job "train" is suspended, and makes its pods again once`:    {by("batch/v1", "Job", nil), true},
		`Job "train" makes its pods again after a pause of up to 10`: {pod: by("batch/v1", "Job", nil)},
		`JobSet "all" makes its pods again at once if one of its Jobs`: {
			pod: by("batch/v1", "Job", map[string]string{v1alpha1.JobSetNameLabel: "all"})},
		`PyTorchJob "train" makes its pods again`: {pod: by("kubeflow.org/v1", "PyTorchJob", nil)},
	} {
		if got := successors(c.pod, c.suspended); !strings.HasPrefix(got, want) {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
}
