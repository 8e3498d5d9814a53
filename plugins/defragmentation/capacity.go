package defragmentation

import (
	"slices"

	"github.com/lockstep-sh/lockstep/pkg/rules/defrag"
)

// capacity returns how many gangs like the first part fit in each of its domains once moves are done, and what each
// node has free then beside them.
func capacity(p *defrag.Problem, moves []defrag.Move) (counts []int, left [][]int64) {
	left = make([][]int64, len(p.Nodes))
	for i, node := range p.Nodes {
		left[i] = slices.Clone(node.Free)
	}
	for _, m := range moves {
		pod := p.Pods[m.Pod]
		for column, amount := range pod.Request {
			left[pod.Node][column] += amount
			left[m.To][column] -= amount
		}
	}
	for _, domain := range p.Want[0].Domains {
		counts = append(counts, defrag.Capacity(left, domain, p.Want[0].Classes,
			func(class, node int) bool { return p.FitsMember(0, class, node) }))
	}
	return counts, left
}
