package cachetransform

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// TestTransforms: the little that is read of an object is kept, and of what was kept the same again.
func TestTransforms(t *testing.T) {
	meta := func(annotations map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: "a", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}, Annotations: annotations}
	}
	for sentence, c := range map[string]struct {
		keep      func(any) (any, error)
		of, wants any
	}{
		"the place of a pod": {
			Pod, &v1.Pod{ObjectMeta: meta(nil), Status: v1.PodStatus{Phase: v1.PodSucceeded, NominatedNodeName: "n1", HostIP: "::1"}},
			&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: v1.PodStatus{Phase: v1.PodSucceeded, NominatedNodeName: "n1"}},
		},
		"the Reservation that it uses": {
			Pod, &v1.Pod{ObjectMeta: meta(map[string]string{v1alpha1.ReservationAllocatedAnnotation: "r", "a": "b"}), Status: v1.PodStatus{Phase: v1.PodFailed}},
			&v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{v1alpha1.ReservationAllocatedAnnotation: "r"}},
				Status:     v1.PodStatus{Phase: v1.PodFailed},
			},
		},
		"whether a node is ready": {
			Node, &v1.Node{ObjectMeta: meta(nil), Status: v1.NodeStatus{Conditions: []v1.NodeCondition{
				{Type: v1.NodeDiskPressure}, {Type: v1.NodeReady, Status: v1.ConditionFalse, Message: "long"},
			}}},
			&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionFalse}}}},
		},
		"its marks": {
			Node, &v1.Node{ObjectMeta: meta(map[string]string{ScaleDownAnnotations[0]: "true", v1alpha1.ReservationMarksAnnotation: "m", "a": "b"})},
			&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{ScaleDownAnnotations[0]: "true", v1alpha1.ReservationMarksAnnotation: "m"}}},
		},
		"the queue of a namespace": {
			Namespace, &v1.Namespace{ObjectMeta: meta(map[string]string{v1alpha1.QueueLabel: "q", "a": "b"})},
			&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{v1alpha1.QueueLabel: "q"}}},
		},
		"no pod":  {Pod, "tombstone", "tombstone"},
		"no node": {Node, "tombstone", "tombstone"},
		"no Job":  {Job, "tombstone", "tombstone"},
	} {
		t.Run(sentence, func(t *testing.T) {
			got := c.of
			for range 2 {
				var err error
				if got, err = c.keep(got); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(c.wants, got); diff != "" {
					t.Errorf("kept (-want +got):\n%s", diff)
				}
			}
		})
	}
}
