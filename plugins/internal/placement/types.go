package placement

import "context"

// World is the cluster as a plan sees and changes it. Nodes and classes are indexes. A class is a
// set of members that scheduling cannot tell apart; classes are numbered from the largest to the
// smallest.
type World interface {
	// Slots bounds from above how many more members of a class a node takes.
	Slots(class, node int) int
	// Label returns a label of a node.
	Label(node int, key string) (value string, ok bool)
	// Open prepares to place up to want members of a class on nodes of scope;
	// tight asks for the fullest node first instead of the best scored.
	Open(ctx context.Context, class int, scope []int, want int, tight bool) (Offers, error)
	// Spare reports which of these gangs lack the room that they ask for beyond their members, if
	// all are to have theirs at once, with all that is placed. It takes nothing.
	Spare(ctx context.Context, floors []Floor) (short []int, err error)
	// Mark and Undo: Undo takes back every placement since the mark.
	Mark() int
	Undo(ctx context.Context, mark int) error
}

// Offers places members of one class, one by one.
type Offers interface {
	// Take places a member on the best node left; ok is false if there is none.
	Take(ctx context.Context, member int) (node int, ok bool, err error)
}

// Floor is where a gang may have the room that it asks for beyond its members.
type Floor struct {
	// Gang is its index in Problem.Gangs.
	Gang int
	// Placed are the members that have been placed: what they take counts.
	Placed map[int]int
	// Nodes are the nodes that count: those of the domain Value of its required topology, if it
	// requires one.
	Nodes []int
	Value string
}

// Member is a member that may be placed.
type Member struct {
	Class int
	Role  string
	// Rank is its number within its gang: neighbours in rank exchange most.
	Rank int
	// Own: the world can tell it from the others of its class, so it has to be placed itself on the
	// node that it goes to.
	Own bool
}

// Level is a level of a topology by which a gang is laid out.
type Level struct {
	// Key is a label key: nodes that share its value are a domain.
	Key string
	// Slice members with consecutive ranks, counted from a multiple of it, have to be in one
	// domain; 0 for no such runs: then members go to as few domains as possible.
	Slice int
}

func (l Level) sliced() bool { return l.Slice > 0 }

// Standing is the node and rank of a member that has its place.
type Standing struct{ Node, Rank int }

// Gang is what has to be placed of one gang.
type Gang struct {
	// Members are indexes into Problem.Members, in the order in which they are
	// entitled to a place.
	Members []int
	// Min of them have to be placed, among them MinByRole of each role. Min is not
	// below the sum of MinByRole, nor above the number of members.
	Min       int
	MinByRole map[string]int
	// Required is the label key of the topology that has to have all in one domain; empty for
	// none.
	Required string
	// Levels are the levels by which it is laid out inside that, coarsest first. The slices of a
	// level are multiples of those of the levels after it.
	Levels []Level
	// Unordered: it is not known which of the levels without slices are coarser than others.
	Unordered bool
	// Even: members that no single domain takes spread evenly over the domains that they need.
	Even bool
	// Shared: all gangs with Shared have to be in one domain of their required topology, which is
	// the same.
	Shared bool
	// Custom: the gang does not itself wish for the levels. They do not stand in the way of a
	// placement together with other gangs.
	Custom bool
	// Floor: it asks for room beyond its members, see World.Spare. Also set if its Min is 0, since
	// other gangs of its group are still to be placed.
	Floor bool
	// On are the places of members that are placed already: they decide the required domain and the
	// domains of their slices, and take the lead in those of the other levels.
	On []Standing
	// Unnumbered: its members carry no numbers. Those that are placed have numbers by which they are in whole slices, see Number;
	// beside them the others may have any.
	Unnumbered bool
}

// Problem is a group of gangs.
type Problem struct {
	Members []Member
	Gangs   []Gang
	// Nodes are the nodes to place on, in the order to try them.
	Nodes []int
	// Floors are the nodes that count for what gangs ask for beyond their members; nil means Nodes.
	Floors []int
	// KeepPartial keeps placed what fits, even if the whole does not. It never keeps every minimum
	// placed if a gang lacks its floor: the gangs would start.
	KeepPartial bool
	// Effort bounds the search, in Takes of the world; 0 leaves it to Solve. It
	// should be many times the number of members.
	Effort int
}

// Result is the outcome of a problem.
type Result struct {
	// Node is where each placed member goes, by its index.
	Node map[int]int
	// As is the member in whose place each of them goes: the world placed that member there, and
	// cannot tell the two apart.
	As       map[int]int
	Complete bool
	Gangs    []Outcome
}

// Outcome is how far a gang came.
type Outcome struct {
	// Fit members of the Min that were wanted were placed, at best.
	Fit int
	// Domains is how far it came in the domains of its required topology, best first; empty if it
	// requires none.
	Domains []DomainFit
	// Untried is how many further domains there are. They take no more members than
	// those of Domains that come first, if the search was not cut short.
	Untried int
	// FloorShort: wherever its minimum was placed, the room that it asks for beyond that was
	// missing.
	FloorShort bool
	// Unplaced are members that were meant for the minimum and found no place: as many as are
	// missing, at best.
	Unplaced []int
}

// DomainFit is how many members a domain takes.
type DomainFit struct {
	Value string
	Fit   int
}
