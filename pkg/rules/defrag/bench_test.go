package defrag

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// racks is a cluster of nodes with 8 cards in racks of 16, which pods of 1, 2 and 4 cards
// fill to three quarters, so that holes are everywhere; there are perNode places for pods
// of no card, too. Half of the pods are of gangs of 8, some with a pod to spare. A gang of
// 8 members with 8 cards each waits for one rack.
func racks(nodeCount, podCount int) Problem {
	r := rand.New(rand.NewPCG(1, uint64(nodeCount)))
	p := Problem{Fits: func(int, int) bool { return true }, FitsMember: func(int, int, int) bool { return true }, Budget: ample}
	var domains [][]int
	for i := range nodeCount {
		p.Nodes = append(p.Nodes, Node{Free: []int64{8, 96_000, 1 << 40, 110}})
		if i%16 == 0 {
			domains = append(domains, nil)
		}
		domains[i/16] = append(domains[i/16], i)
	}
	used := 0
	for len(p.Pods) < podCount {
		size := int64(1) << r.IntN(3)
		if used*4 >= nodeCount*8*3 {
			size = 0
		}
		pod := Pod{Request: []int64{size, 2000 + 8000*size, (4 + 16*size) << 30, 1}, Group: -1, Cost: Cost{0, 1, int64(r.IntN(100))}, Kind: len(p.Pods)}
		pod.Node = r.IntN(nodeCount)
		if !Fits(p.Nodes[pod.Node].Free, pod.Request) {
			continue
		}
		used += int(size)
		if r.IntN(2) == 0 {
			if len(p.Groups) == 0 || r.IntN(8) == 0 {
				g := Group{Spare: r.IntN(4) / 3, Break: Cost{1, 8, 400}}
				p.Groups = append(p.Groups, g)
			}
			pod.Group = r.IntN(len(p.Groups))
		}
		take(p.Nodes[pod.Node].Free, pod.Request)
		p.Pods = append(p.Pods, pod)
	}
	p.Want = []Part{{Classes: []Class{{Request: []int64{8, 90_000, 1 << 39, 1}, Count: 8}}, Domains: domains}}
	return p
}

func BenchmarkBest(b *testing.B) {
	for _, size := range []struct{ nodes, pods int }{{1000, 10_000}, {5000, 40_000}} {
		b.Run(fmt.Sprintf("%dx%d", size.nodes, size.pods), func(b *testing.B) {
			p := racks(size.nodes, size.pods)
			b.ReportAllocs()
			for b.Loop() {
				r, err := CheapestMoves(p)
				if err != nil || !r.Found {
					b.Fatalf("no plan: %+v, %v", r, err)
				}
				b.ReportMetric(float64(r.Steps), "steps")
				b.ReportMetric(float64(len(r.Plan.Moves)), "moves")
				b.ReportMetric(float64(r.Plan.Cost[0]), "broken")
			}
		})
	}
}
