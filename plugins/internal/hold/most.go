package hold

import (
	"maps"

	"github.com/lockstep-sh/lockstep/plugins/internal/resource"
)

// most is a bound on what is held on any one node. It rises as holds are added, and is recounted after as many
// changes as there are nodes with holds: so the cost of a change does not depend on the number of nodes.
type most struct {
	bound *Taken
	// touched are the nodes that have changed since Most was last called, some of them more than once.
	touched []*onNode
	// changes is how many changes there were since the bound was counted.
	changes int
}

// Most returns no less than what is held on any node, of each resource and of places for pods; host ports
// are not in it. It is nil if nothing is held. The result must not be changed.
func (l *Ledger) Most() *Taken {
	m := &l.most
	m.changes += len(m.touched)
	if m.changes > len(l.nodes) {
		m.changes, m.bound = 0, nil
		for _, on := range l.nodes {
			m.raise(on.sum())
		}
	} else {
		for _, on := range m.touched {
			m.raise(on.sum())
		}
	}
	m.touched = m.touched[:0]
	return m.bound
}

// raise adds what is held on a node to the bound.
func (m *most) raise(sum *total) {
	if !sum.any {
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
