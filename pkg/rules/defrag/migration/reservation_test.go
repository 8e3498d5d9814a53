package migration

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/keys"
)

// TestTemplatesHaveNoKeysThatAreRefused: labels of a pod that the policies would refuse on a Reservation are left out.
func TestTemplatesHaveNoKeysThatAreRefused(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
		"app": "train", v1alpha1.QueueLabel: "research", keys.Prefix + "team": "a", v1alpha1.GangAnnotation: "Owner",
	}}}
	want := map[string]string{"app": "train", v1alpha1.QueueLabel: "research"}
	if diff := cmp.Diff(want, TemplateOf(pod).Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}
