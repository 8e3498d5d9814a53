package reservationlifecycle

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

const (
	autoscaler = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	karpenter  = "karpenter.sh/do-not-disrupt"
	record     = "scheduling.lockstep.dev/reservation-marks"
)

func TestMarked(t *testing.T) {
	type annotations = map[string]string
	both := annotations{autoscaler: "true", karpenter: "true", record: autoscaler + "," + karpenter}
	for sentence, c := range map[string]struct {
		is             annotations
		held, released annotations
	}{
		"a node without any":         {nil, both, annotations{}},
		"other annotations are kept": {annotations{"a": "b"}, annotations{"a": "b", autoscaler: "true", karpenter: "true", record: autoscaler + "," + karpenter}, annotations{"a": "b"}},
		"one that is marked":         {both, both, annotations{}},
		"what somebody else has set stays theirs": {
			annotations{autoscaler: "true"},
			annotations{autoscaler: "true", karpenter: "true", record: karpenter},
			annotations{autoscaler: "true"},
		},
		"whatever it says": {
			annotations{autoscaler: "false", karpenter: "30m"},
			annotations{autoscaler: "false", karpenter: "30m"},
			annotations{autoscaler: "false", karpenter: "30m"},
		},
		"what somebody has changed is theirs": {
			annotations{autoscaler: "false", karpenter: "true", record: autoscaler + "," + karpenter},
			annotations{autoscaler: "false", karpenter: "true", record: karpenter},
			annotations{autoscaler: "false"},
		},
		"what somebody has removed is set again": {
			annotations{karpenter: "true", record: autoscaler + "," + karpenter}, both, annotations{},
		},
		"a record of what is none of ours": {
			annotations{"a": "true", record: "a"}, annotations{"a": "true", autoscaler: "true", karpenter: "true", record: autoscaler + "," + karpenter}, annotations{"a": "true"},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			before := maps.Clone(c.is)
			for held, want := range map[bool]annotations{true: c.held, false: c.released} {
				got := marked(c.is, held)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("held %t (-want +got):\n%s", held, diff)
				}
				if diff := cmp.Diff(got, marked(got, held)); diff != "" {
					t.Errorf("held %t, asked again (-first +second):\n%s", held, diff)
				}
			}
			if diff := cmp.Diff(before, c.is); diff != "" {
				t.Errorf("the node was changed:\n%s", diff)
			}
		})
	}
}

// TestMarks: a node is marked for as long as something is held on it.
func TestMarks(t *testing.T) {
	other := node("n2")
	other.Annotations = map[string]string{karpenter: "true"}
	s := newStage(t, reserve(2, true), node("n1"), other)
	m := &marker{client: s.client}
	want := func(name string, want map[string]string) {
		t.Helper()
		if _, err := m.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}); err != nil {
			t.Fatal(err)
		}
		var node v1.Node
		must.Succeed(t, s.client.Get(t.Context(), client.ObjectKey{Name: name}, &node))
		if diff := cmp.Diff(want, node.Annotations); diff != "" {
			t.Errorf("node %s (-want +got):\n%s", name, diff)
		}
	}
	want("n1", nil)
	s.place("n1", "n2")
	want("n1", map[string]string{autoscaler: "true", karpenter: "true", record: autoscaler + "," + karpenter})
	want("n2", map[string]string{autoscaler: "true", karpenter: "true", record: autoscaler})
	must.Succeed(t, s.client.Delete(t.Context(), s.get()))
	want("n1", nil)
	must.Succeed(t, removeMarks(t.Context(), s.client, s.client))
	want("n2", map[string]string{karpenter: "true"})
}
