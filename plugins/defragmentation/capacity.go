package defragmentation

import (
	"slices"

	"github.com/lockstep-sh/lockstep/pkg/rules/defrag"
)

// capacity returns how many gangs like a part fit in each of its domains. It takes from free what they use.
func capacity(p *defrag.Problem, part int, free [][]int64) []int {
	want := p.Want[part]
	counts := make([]int, len(want.Domains))
	for i, domain := range want.Domains {
		counts[i] = defrag.Capacity(free, domain, want.Classes,
			func(class, node int) bool { return p.FitsMember(part, class, node) })
	}
	return counts
}

// freeOf returns what each node has free once moves are done.
func freeOf(p *defrag.Problem, moves []defrag.Move) [][]int64 {
	free := make([][]int64, len(p.Nodes))
	for i, node := range p.Nodes {
		free[i] = slices.Clone(node.Free)
	}
	for _, m := range moves {
		pod := p.Pods[m.Pod]
		for column, amount := range pod.Request {
			free[pod.Node][column] += amount
			free[m.To][column] -= amount
		}
	}
	return free
}
