package defragmentation

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestThresholdsOfPods: thresholds count pods like any other resource. Each node may have 110 pods.
func TestThresholdsOfPods(t *testing.T) {
	nodes := []*v1.Node{node("n0", 8, "a"), node("n1", 8, "b"), node("n2", 8, "c")}
	pods := []*v1.Pod{runs("p", 1, "n0"), runs("q", 1, "n0"), runs("r", 5, "n2")}
	for sentence, args := range map[string]string{
		"n0 has more than 1% of its pods":        `{"mode": "Threshold", "lowThresholds": {"nvidia.com/gpu": 40, "pods": 1}}`,
		"n2 would have more than 1% of its pods": `{"mode": "Threshold", "lowThresholds": {"nvidia.com/gpu": 40}, "protectionThresholds": {"nvidia.com/gpu": 100, "pods": 1}}`,
		"n2 has less than 5% of its pods":        `{"mode": "Threshold", "lowThresholds": {"nvidia.com/gpu": 40}, "defragmentThresholds": {"pods": 5}}`,
	} {
		s := newStage(t, nodes, pods, args)
		if got := s.moves(t); got != "" {
			t.Errorf("%s: moves %q, want none", sentence, got)
		}
	}
}
