package gangstate

import (
	"slices"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// The two modes of a group. A Strict group holds capacity for a whole plan only, and gives all of it back when a round
// fails. A NonStrict group keeps the part of a plan that was found while it gathers the rest, until its wait time ends.

// strict reports whether a group is Strict: it is NonStrict only if all its gangs are.
func (g *group) strict() bool {
	return slices.ContainsFunc(g.gangs, func(gang *gang) bool { return gang.spec.Mode != gangspec.NonStrict })
}

// keeps reports whether a group keeps the places that an attempt has found.
func (g *group) keeps(o Outcome) bool { return o.Complete || !g.strict() && !o.Hopeless }

// holdsPart reports whether the group has accumulated capacity that does not suffice, and is not on
// its way. It may wait for its turn, or have it.
func (g *group) holdsPart() bool {
	return g.waiting(Planned) > 0 && !g.strict() && (g.phase == awaiting || g.phase == inTurn && g.replans == 0)
}
