package placement

import (
	"context"
	"math"
	"slices"
)

// World is the cluster as a plan sees and changes it. Nodes and classes are indexes. A class is a set of members that
// scheduling cannot tell apart; classes are numbered from the largest to the smallest.
type World interface {
	// Slots bounds from above how many more members of a class a node takes.
	Slots(class, node int) int
	// Label returns a label of a node.
	Label(node int, key string) (value string, ok bool)
	// Open returns offers for up to want members of a class on nodes of scope; tight asks for the fullest node first
	// instead of the best scored.
	Open(class int, scope []int, want int, tight bool) Offers
	// LackingExtra reports which of these gangs lack their extra if all get theirs at once, beside all placements. It
	// takes nothing.
	LackingExtra(ctx context.Context, extras []Extra) (lacking []int, err error)
	// Mark and Undo: Undo takes back every placement since the mark.
	Mark() int
	Undo(ctx context.Context, mark int) error
}

// Offers places members of one class, one by one.
type Offers interface {
	// Take places a member on the best node left; ok is false if there is none.
	Take(ctx context.Context, member int) (node int, ok bool, err error)
}

// Extra is room that a gang asks for beyond its members.
type Extra struct {
	// Gang is its index in Problem.Gangs.
	Gang int
	// Placed are its placed members: what they take counts.
	Placed map[int]int
	// Nodes are the nodes that count: those of the domain Value of its required topology, if any.
	Nodes []int
	Value string
}

// Member is a member that may be placed.
type Member struct {
	Class int
	Role  string
	// Rank is its number within its gang: neighbours in rank communicate most.
	Rank int
	// Own: the world can tell it from others of its class, so it must not be swapped with them.
	Own bool
}

// Level is a level of a topology by which a gang is laid out.
type Level struct {
	// Key is a label key: nodes that share its value are a domain.
	Key string
	// Slice members with consecutive ranks, counted from a multiple of it, must be in one domain; 0 for none: then members
	// go to as few domains as possible.
	Slice int
}

// WholeGang is the Slice of a required topology.
const WholeGang = math.MaxInt

func (l Level) sliced() bool { return l.Slice > 0 }

// Sliced returns those of some levels that have slices: the hard constraints of a layout.
func Sliced(levels []Level) []Level {
	return slices.DeleteFunc(slices.Clone(levels), func(level Level) bool { return !level.sliced() })
}

// PlacedMember is the node and rank of a placed member.
type PlacedMember struct{ Node, Rank int }

// Gang is what to place of one gang.
type Gang struct {
	// Members are indexes into Problem.Members, in the order in which they are entitled to a place.
	Members []int
	// Min of them must be placed, among them MinByRole of each role. Min is at least the sum of MinByRole, and at most the
	// number of members.
	Min       int
	MinByRole map[string]int
	// Required is the label key of the topology that must have all in one domain; empty for none.
	Required string
	// Levels are the levels of its layout inside that, coarsest first. The slices of a level are multiples of those of the
	// levels after it.
	Levels []Level
	// Unordered: the order of the levels without slices is unknown.
	Unordered bool
	// Even: members that no single domain takes spread evenly over the domains that they need.
	Even bool
	// Shared: all gangs with Shared must be in one domain of their common required topology.
	Shared bool
	// Custom: the levels are a default, not the gang's own. They must not prevent a placement together with other gangs.
	Custom bool
	// HasExtra: it asks for room beyond its members; see World.LackingExtra. Also set if its Min is 0, since other gangs
	// of its group are still to be placed.
	HasExtra bool
	// On are its placed members: they fix the required domain and the domains of their slices, and come first in those of
	// the other levels.
	On []PlacedMember
}

// fixedLevels returns the required topology and the levels with slices: those that have each slice in one domain.
func (g *Gang) fixedLevels() []Level {
	levels := Sliced(g.Levels)
	if g.Required != "" {
		levels = slices.Insert(levels, 0, Level{g.Required, WholeGang})
	}
	return levels
}

// Problem is a group of gangs.
type Problem struct {
	Members []Member
	Gangs   []Gang
	// Nodes are the nodes to place on, in the order to try them.
	Nodes []int
	// ExtraNodes are the nodes that count for extras; nil for Nodes.
	ExtraNodes []int
	// KeepPartial keeps what fits, even if the whole does not. It never keeps every minimum if a gang lacks its extra: the
	// gangs would start.
	KeepPartial bool
	// Attracted: members may need others nearby, so a gang that finds no place alone may find one beside other gangs.
	Attracted bool
	// Effort bounds the search, in Takes of the world; 0 for the default. It should be many times the number of members.
	Effort int
}

// Result is the outcome of a problem.
type Result struct {
	// Node is where each placed member goes, by its index.
	Node map[int]int
	// As is the member in whose place each of them goes: the world placed that member there, and cannot tell the two
	// apart.
	As       map[int]int
	Complete bool
	Gangs    []Outcome
}

// Outcome is how far a gang came.
type Outcome struct {
	// Fit is how many members of the Min were placed, at best.
	Fit int
	// Domains is how far it came in the domains of its required topology, best first; empty if it requires none.
	Domains []DomainFit
	// Untried is how many further domains there are. They take no more members than the first of Domains, unless the
	// search was cut short.
	Untried int
	// LacksExtra: wherever its minimum was placed, its extra was missing.
	LacksExtra bool
	// Unplaced are members of the minimum without a place: as many as are missing, at best.
	Unplaced []int
}

// DomainFit is how many members a domain takes.
type DomainFit struct {
	Value string
	Fit   int
}
