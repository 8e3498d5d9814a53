package hold

import (
	"iter"
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// onNode is what is held on a node.
type onNode struct {
	shares map[Holder]*share
	// ofPods counts the holds for pods, which may be counted on the node as well.
	ofPods int
	// total is the sum of all shares; nil if they have changed since. Readers compute it.
	total atomic.Pointer[Taken]
}

// addToShare adds to the share of a holder on a node, or with -1 subtracts.
func (l *Ledger) addToShare(on *onNode, holder Holder, amount Taken, by int) {
	on.shares[holder].add(amount, by)
	on.total.Store(nil)
	l.maxHeld.touched = append(l.maxHeld.touched, on)
}

// sum returns what all holders hold on the node. It must not be changed.
func (n *onNode) sum() *Taken {
	if known := n.total.Load(); known != nil {
		return known
	}
	sum := &Taken{Request: resource.Vector{}}
	for _, of := range n.shares {
		sum.add(of.Taken, 1)
	}
	n.total.Store(sum)
	return sum
}

// Total returns what all holders hold on a node, and whether that is anything. The result must not be changed.
func (l *Ledger) Total(nodeName string) (Taken, bool) {
	on := l.nodes[nodeName]
	if on == nil {
		return Taken{}, false
	}
	sum := on.sum()
	return *sum, !sum.zero()
}

// share is what a holder has on a node.
type share struct {
	Taken
	holds int
}

// Among returns those of some holders that hold something on any of these nodes.
func (l *Ledger) Among(holders []Holder, nodes iter.Seq[string]) []Holder {
	on := map[Holder]bool{}
	for node := range nodes {
		if there := l.nodes[node]; there != nil {
			for holder := range there.shares {
				on[holder] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(holders), func(holder Holder) bool { return !on[holder] })
}

// NodesOf lists the nodes on which one of these holders holds something.
func (l *Ledger) NodesOf(holders ...Holder) []string {
	var nodes []string
	for node, on := range l.nodes {
		if on.hasAny(holders) {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// hasAny reports whether one of these holders holds something there.
func (n *onNode) hasAny(holders []Holder) bool {
	return slices.ContainsFunc(holders, func(holder Holder) bool { return n.shares[holder] != nil })
}

// Others returns what all but the given holders hold on a node, without the holds for pods that are counted there
// already. The second result is false, at little cost, if there is nothing. The first must not be changed.
func (l *Ledger) Others(nodeName string, there iter.Seq[types.UID], holders ...Holder) (Taken, bool) {
	on := l.nodes[nodeName]
	if on == nil {
		return Taken{}, false
	}
	exempt := on.hasAny(holders)
	if !exempt && on.ofPods == 0 {
		return l.Total(nodeName)
	}
	left := Taken{Request: resource.Vector{}}
	if !exempt {
		left.add(*on.sum(), 1)
	} else {
		for holder, t := range on.shares {
			if !slices.Contains(holders, holder) {
				left.add(t.Taken, 1)
			}
		}
	}
	if on.ofPods > 0 {
		for pod := range there {
			if e, ok := l.holds[IDOf(pod)]; ok && e.Node == nodeName && !slices.Contains(holders, e.Holder) {
				left.add(e.left, -1)
			}
		}
	}
	return left, !left.zero()
}
