package hold

import (
	"maps"

	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// maxHeld is a bound on what is held on any one node. It rises as holds are added, and is recomputed after as many
// changes as there are nodes with holds, so that a change costs constant time on average.
type maxHeld struct {
	bound *Taken
	// touched are the nodes that have changed since MaxHeld was last called, possibly with duplicates.
	touched []*onNode
	// changes counts the changes since the bound was recomputed.
	changes int
}

// MaxHeld returns a bound on what is held on any node, by resource and for places of pods, without host ports. It is
// nil if nothing is held. The result must not be changed.
func (l *Ledger) MaxHeld() *Taken {
	m := &l.maxHeld
	m.changes += len(m.touched)
	if m.changes > len(l.nodes) {
		m.changes, m.bound = 0, nil
		for _, on := range l.nodes {
			m.raiseTo(on.sum())
		}
	} else {
		for _, on := range m.touched {
			m.raiseTo(on.sum())
		}
	}
	m.touched = m.touched[:0]
	return m.bound
}

// raiseTo raises the bound to what is held on a node.
func (m *maxHeld) raiseTo(sum *Taken) {
	if sum.zero() {
		return
	}
	if m.bound == nil {
		m.bound = &Taken{Request: resource.Vector{}}
	}
	over := sum.Pods > m.bound.Pods
	for name, amount := range sum.Request {
		over = over || amount > m.bound.Request[name]
	}
	if !over {
		return
	}
	bound := &Taken{Pods: max(m.bound.Pods, sum.Pods), Request: maps.Clone(m.bound.Request)}
	for name, amount := range sum.Request {
		bound.Request[name] = max(bound.Request[name], amount)
	}
	m.bound = bound
}
