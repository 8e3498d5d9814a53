package schedulersetup

import (
	"fmt"
	"testing"
)

// BenchmarkPlainPod measures PreFilter and Filter for a pod that owns nothing, on 500 nodes, beside Reservations for
// others: each is held on one node, for pods with a label of its own.
func BenchmarkPlainPod(b *testing.B) {
	for _, count := range []int{0, 1, 5000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			nodes := map[string]string{}
			for i := range 500 {
				nodes[fmt.Sprint("n", i)] = "64"
			}
			s := newStage(b, nodes)
			for i := range count {
				s.reserve(fmt.Sprint("r", i), fmt.Sprint("owner", i), 1, true, fmt.Sprint("n", i%500))
			}
			pod := s.pod(1, "plain")
			b.ResetTimer()
			for range b.N {
				if _, nodes := s.fits(pod); len(nodes) != 500 {
					b.Fatalf("it fits on %d nodes", len(nodes))
				}
			}
		})
	}
}

// BenchmarkOwner measures them for the owner of one of 5,000 Reservations.
func BenchmarkOwner(b *testing.B) {
	nodes := map[string]string{}
	for i := range 500 {
		nodes[fmt.Sprint("n", i)] = "64"
	}
	s := newStage(b, nodes)
	for i := range 5000 {
		s.reserve(fmt.Sprint("r", i), fmt.Sprint("owner", i), 1, true, fmt.Sprint("n", i%500))
	}
	pod := s.pod(1, "owner77")
	b.ResetTimer()
	for range b.N {
		if _, nodes := s.fits(pod); len(nodes) != 1 {
			b.Fatalf("it fits on %d nodes", len(nodes))
		}
	}
}
