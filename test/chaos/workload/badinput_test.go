package workload

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// TestBadInputBesideTheRest: the rest of a plan is the same with and without bad input, and a longer run begins like a
// shorter one.
func TestBadInputBesideTheRest(t *testing.T) {
	without, short := options(4), options(4)
	without.BadInput, short.Length = false, time.Minute
	a, b, c := Make(options(4)), Make(without), Make(short)
	if diff := cmp.Diff(a.Works, b.Works); diff != "" {
		t.Errorf("the works differ: %s", diff)
	}
	if len(b.BadInputs) > 0 {
		t.Errorf("there are %d bad inputs, want none", len(b.BadInputs))
	}
	if diff := cmp.Diff(c.BadInputs, a.BadInputs[:len(c.BadInputs)]); diff != "" || len(c.BadInputs) < 10 {
		t.Errorf("the first minute has %d bad inputs, and differs: %s", len(c.BadInputs), diff)
	}
}

// TestBadInput: each kind occurs, and no object has a field that its type has not.
func TestBadInput(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(20) {
		p := Make(options(seed))
		for _, b := range p.BadInputs {
			seen[b.Kind]++
			if life := b.Until - b.At; len(b.Objects) == 0 || life < badShort || life > badLong {
				t.Errorf("seed %d: %s %s has %d objects and lives %s", seed, b.Kind, b.Name, len(b.Objects), life)
			}
			for _, object := range b.Objects {
				if err := sound(object); err != nil {
					t.Errorf("seed %d: %s %s: %v", seed, b.Kind, b.Name, err)
				}
				if _, labelled := object.GetLabels()[BadInputLabel]; object.GetKind() == "Pod" && !labelled {
					t.Errorf("seed %d: %s: pod %s does not say that it is bad input", seed, b.Kind, object.GetName())
				}
			}
			for _, change := range b.Changes {
				if !json.Valid([]byte(change.Patch)) || change.At <= b.At || change.At >= b.Until || change.Object >= len(b.Objects) {
					t.Errorf("seed %d: %s %s has the change %+v", seed, b.Kind, b.Name, change)
				}
			}
		}
	}
	for _, one := range badKinds {
		if seen[one.kind] == 0 {
			t.Errorf("no plan has bad %s", one.kind)
		}
	}
}

// sound reports whether an object can be sent to an API server, and has no field that its type has not.
func sound(object *unstructured.Unstructured) error {
	types := map[string]any{
		"Pod": &v1.Pod{}, "Queue": &v1alpha1.Queue{}, "Reservation": &v1alpha1.Reservation{}, "PodMigration": &v1alpha1.PodMigration{}, "DefragmentationPlan": &v1alpha1.DefragmentationPlan{},
	}
	if _, err := object.DeepCopy().MarshalJSON(); err != nil {
		return err
	}
	if into := types[object.GetKind()]; into != nil {
		return runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, into, true)
	}
	return nil
}
