package victim

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestEqualPodsGoByDeletionCost: of pods that request the same, the cheapest to delete goes first.
func TestEqualPodsGoByDeletionCost(t *testing.T) {
	need := Vector{v1.ResourceCPU: 10, v1.ResourceMemory: 10, "nvidia.com/gpu": 10}
	request := Vector{v1.ResourceCPU: 1, v1.ResourceMemory: 2, "nvidia.com/gpu": 3}
	g := Gang{ID: "g", Min: 1}
	for i, uid := range []types.UID{"a", "b", "c"} {
		g.Pods = append(g.Pods, Pod{UID: uid, Request: request, DeletionCost: int32(i), Local: true})
	}
	for i := range 200 {
		if safe := Split(need, &g)[0]; safe.Pods[0].UID != "a" || safe.Pods[1].UID != "b" {
			t.Fatalf("run %d: %s and %s go, want a and b, which cost less to delete than c", i, safe.Pods[0].UID, safe.Pods[1].UID)
		}
	}
}

// TestEqualHarm: victims that request the same do the same harm.
func TestEqualHarm(t *testing.T) {
	need := Vector{v1.ResourceCPU: 10, v1.ResourceMemory: 10, "nvidia.com/gpu": 10}
	request := Vector{v1.ResourceCPU: 1, v1.ResourceMemory: 2, "nvidia.com/gpu": 3}
	of := func(id string) Harm {
		g := &Gang{ID: id, Min: 1, Pods: []Pod{{UID: types.UID(id), Request: request, Local: true}}}
		return Selection{Bundles: Split(need, g)}.Harm()
	}
	for i := range 200 {
		if a, b := of("a"), of("b"); a.Compare(b) != 0 {
			t.Fatalf("run %d: equal harm compares as %d: cost %v and %v", i, a.Compare(b), a.Cost, b.Cost)
		}
	}
}
