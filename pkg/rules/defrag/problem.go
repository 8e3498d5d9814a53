package defrag

import (
	"cmp"
	"slices"
)

// Problem is a cluster and a gang that waits. Nodes, pods, groups and limits are known
// by their indices. All vectors of a problem have one length, a column for each
// resource; the number of pods is one of them, if it is bounded.
type Problem struct {
	Nodes []Node
	// Pods are the pods that may be moved. Other pods only reduce Free.
	Pods   []Pod
	Groups []Group
	// Limits are how many of the pods that name a limit may be gone at a time, such as those of a
	// PodDisruptionBudget. Where it is 0 none of them moves; otherwise their moves take turns.
	Limits []int
	// Want is the gang that waits. EmptyUnits has no use for it.
	Want []Part
	// Fits reports whether, arithmetic aside, a pod may be on a node. It is the same for pods of one
	// kind.
	Fits func(pod, node int) bool
	// FitsMember is the same for members of a class of a part.
	FitsMember func(part, class, node int) bool
	Budget     Budget
}

// Node is a node that may receive pods, or have them taken away.
type Node struct {
	// Free is what no pod has requested. It is negative if the node is overcommitted: such a node
	// receives no pod that requests that resource.
	Free []int64
}

// Pod is a pod that may be moved.
type Pod struct {
	Node    int
	Request []int64
	// Cost is the cost of moving it alone.
	Cost Cost
	// Group is its gang, or negative.
	Group int
	// Limits are the limits that its move counts for.
	Limits []int
	// Kind is the same for pods that ask for the same, fit the same nodes, cost the same,
	// and are of one group with the same limits; they stand for each other.
	Kind int
}

// Group is a gang that runs.
type Group struct {
	// Spare is how many of its pods may move before it breaks. Then Break is the cost, in place of
	// those of its pods. Break should be no less than what Spare pods cost, otherwise the plan may
	// not be the cheapest.
	Spare int
	Break Cost
}

// Part is members of the waiting gang that have to be in one domain.
type Part struct {
	Classes []Class
	// Domains are the sets of nodes to choose from, at least one.
	Domains [][]int
	// Joins bind the choice to that of other parts. A part with joins has members.
	Joins []Join
	// Twin: the part is like the one before it, FitsMember included; they stand for each
	// other.
	Twin bool
}

// Join keeps parts close to each other: the domains of all parts that name it are in one area.
type Join struct {
	Name int
	// Area is the area that each of the part's domains is in.
	Area []int
}

// Class is members that are alike.
type Class struct {
	Request []int64
	Count   int
}

// Budget bounds a plan, and the search for it.
type Budget struct {
	// MaxMoves and MaxGroups bound how many pods move, and of how many groups they are.
	MaxMoves, MaxGroups int
	// Steps bounds the effort: a step is about one node looked at. 0 means DefaultSteps.
	Steps int
}

// DefaultSteps is the effort if the problem sets none: half a second or so.
const DefaultSteps = 6_000_000

// Cost is what moving pods costs, compared from the first element to the last, lower
// is better. Elements are not negative.
type Cost [3]int64

// Compare orders costs by: 1. the first element; 2. the second; 3. the third.
func (c Cost) Compare(d Cost) int {
	return cmp.Or(cmp.Compare(c[0], d[0]), cmp.Compare(c[1], d[1]), cmp.Compare(c[2], d[2]))
}

func (c Cost) plus(d Cost) Cost   { return Cost{c[0] + d[0], c[1] + d[1], c[2] + d[2]} }
func (c Cost) times(n int64) Cost { return Cost{n * c[0], n * c[1], n * c[2]} }
func (c Cost) minus(d Cost) Cost  { return Cost{c[0] - d[0], c[1] - d[1], c[2] - d[2]} }

// cost returns what moving this many pods of the group costs; alone these pods cost own.
func (g Group) cost(moved int, own Cost) Cost {
	if moved > g.Spare {
		return g.Break
	}
	return own
}

// least is like cost, but never falls when one more pod moves.
func (g Group) least(moved int, own Cost) Cost {
	if moved == 0 {
		return Cost{}
	}
	if moved > g.Spare || g.Break.Compare(own) < 0 {
		return g.Break
	}
	return own
}

// barred reports whether a limit lets a pod not move at all.
func (p *Problem) barred(pod *Pod) bool {
	return slices.ContainsFunc(pod.Limits, func(limit int) bool { return p.Limits[limit] <= 0 })
}

// Like reports whether two parts may be twins, except for what FitsMember says.
func (part Part) Like(other Part) bool {
	return slices.EqualFunc(part.Classes, other.Classes,
		func(a, b Class) bool { return a.Count == b.Count && slices.Equal(a.Request, b.Request) }) &&
		slices.EqualFunc(part.Domains, other.Domains, slices.Equal) &&
		slices.EqualFunc(part.Joins, other.Joins,
			func(a, b Join) bool { return a.Name == b.Name && slices.Equal(a.Area, b.Area) })
}

// columns returns the length of the problem's vectors.
func (p *Problem) columns() int {
	if len(p.Nodes) == 0 {
		return 0
	}
	return len(p.Nodes[0].Free)
}

// cost returns what a set of moved pods costs.
func (p *Problem) cost(moves []Move) Cost {
	var sum Cost
	moved, own := map[int]int{}, map[int]Cost{}
	for _, m := range moves {
		pod := p.Pods[m.Pod]
		if pod.Group < 0 {
			sum = sum.plus(pod.Cost)
			continue
		}
		moved[pod.Group]++
		own[pod.Group] = own[pod.Group].plus(pod.Cost)
	}
	for group, n := range moved {
		sum = sum.plus(p.Groups[group].cost(n, own[group]))
	}
	return sum
}
