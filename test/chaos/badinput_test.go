package main

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"

	"github.com/lockstep-sh/lockstep/test/chaos/invariant"
	"github.com/lockstep-sh/lockstep/test/chaos/workload"
)

// TestBadInputIsDeleted: all objects of bad input are made, and none is left, whether its time is over or the run ends
// before.
func TestBadInputIsDeleted(t *testing.T) { synctest.Test(t, deleteBadInput) }

func deleteBadInput(t *testing.T) {
	kinds := map[schema.GroupVersionResource]string{{Version: "v1", Resource: "pods"}: "PodList"}
	for _, resource := range ourResources {
		kinds[resource] = "List"
	}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds)
	d := newDriver(client, newObserver(invariant.Config{}, io.Discard))
	d.begin = time.Now()
	inputs := workload.Make(workload.Options{Seed: 1, Length: 3 * time.Minute, BadInput: true, Queues: true, Reservations: true, Moves: true, Nodes: 64, NodesPerRack: 8, GPUs: 8}).BadInputs
	calls := 0
	for i := range inputs {
		b := &inputs[i]
		b.At, b.Until = 0, 2*time.Second
		if i%2 > 0 {
			b.Until = time.Hour
		}
		for c := range b.Changes {
			b.Changes[c].At = time.Second
		}
		calls += len(b.Objects) + len(b.Changes)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	d.runBadInputs(ctx, inputs)
	if d.bad.taken != calls || d.bad.refused != 0 || len(d.bad.there) != len(inputs)/2 {
		t.Errorf("%d of %d calls were taken, %d refused, and %d of %d inputs are there", d.bad.taken, calls, d.bad.refused, len(d.bad.there), len(inputs))
	}
	d.deleteBadInputs(t.Context())
	for resource := range kinds {
		list, err := client.Resource(resource).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) > 0 || len(d.bad.there) > 0 {
			t.Errorf("%d %s are left, and %d inputs", len(list.Items), resource.Resource, len(d.bad.there))
		}
	}
}
