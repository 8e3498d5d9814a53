package simulate

import (
	"maps"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// TestNewNode: a new node is like one of the pool, except for what is that node's own.
func TestNewNode(t *testing.T) {
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", Labels: map[string]string{v1.LabelHostname: "n", "eks.amazonaws.com/nodegroup": "a100"}},
		Spec:       v1.NodeSpec{Unschedulable: true, Taints: []v1.Taint{{Key: "node.kubernetes.io/unschedulable"}, {Key: "karpenter.sh/disrupted"}, {Key: "gpu"}}, ProviderID: "p"},
		Status:     v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionFalse}}},
	}
	for pool, want := range map[string]bool{"n": true, "a100": true, "eks.amazonaws.com/nodegroup=a100": true, "x": false, "kubernetes.io/hostname=x": false, "none=": false} {
		if got := inPool(node, pool); got != want {
			t.Errorf("the node is in pool %q: %t, want %t", pool, got, want)
		}
	}
	made := like(node, "new")
	if made.UID == node.UID || made.Name != "new" || made.Labels[v1.LabelHostname] != "new" || made.Spec.Unschedulable || made.Spec.ProviderID != "" {
		t.Errorf("the new node has what is another's: %+v", made)
	}
	if len(made.Spec.Taints) != 1 || made.Spec.Taints[0].Key != "gpu" || made.Status.Conditions[0].Status != v1.ConditionTrue {
		t.Errorf("the new node has the taints %v and the conditions %v", made.Spec.Taints, made.Status.Conditions)
	}
	if node.Name != "n" || len(node.Spec.Taints) != 3 {
		t.Error("the node of the pool was changed")
	}
}

// TestNewNodeHasItsCards: what plugins read of a node is that of the pool. Without the annotation GPUShare takes a node
// for one with a single card with all the memory.
func TestNewNodeHasItsCards(t *testing.T) {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{
		v1alpha1.GPUCardsAnnotation: "[8192,8192]", v1alpha1.ReservationMarksAnnotation: "example.com/keep", "example.com/keep": "true",
	}}}
	if got, want := like(node, "new").Annotations, map[string]string{v1alpha1.GPUCardsAnnotation: "[8192,8192]"}; !maps.Equal(got, want) {
		t.Errorf("the new node has the annotations %v, want %v", got, want)
	}
	if len(node.Annotations) != 3 {
		t.Error("the node of the pool was changed")
	}
}
