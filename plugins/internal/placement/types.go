package placement

import "context"

// World is the cluster as a plan sees and changes it. Nodes and classes are
// indexes; a class is members that scheduling cannot tell apart, and classes are
// numbered from the largest to the smallest.
type World interface {
	// Slots bounds from above how many more members of a class a node takes.
	Slots(class, node int) int
	// Label returns a label of a node.
	Label(node int, key string) (value string, ok bool)
	// Open prepares to place up to want members of a class on nodes of scope;
	// tight asks for the fullest node first instead of the best scored.
	Open(ctx context.Context, class int, scope []int, want int, tight bool) (Offers, error)
	// Spare reports which of these gangs lack the room that they ask for beyond their
	// members, if all are to have theirs at once, with all that is placed. It takes nothing.
	Spare(ctx context.Context, floors []Floor) (short []int, err error)
	// Mark and Undo: Undo takes back every placement since the mark.
	Mark() int
	Undo(ctx context.Context, mark int) error
}

// Offers places members of one class, one by one.
type Offers interface {
	// Take places a member on the best node left; ok is false where none is.
	Take(ctx context.Context, member int) (node int, ok bool, err error)
}

// Floor is where a gang may have the room that it asks for beyond its members.
type Floor struct {
	// Gang is its index in Problem.Gangs.
	Gang int
	// Placed are the members that have been placed: what they take counts.
	Placed map[int]int
	// Nodes are those that count: of the domain of its required topology, Value, if it
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
	// Own: the world can tell it from the others of its class, so that it has to be placed
	// where it goes itself.
	Own bool
}

// Level is a level of a topology by which a gang is laid out.
type Level struct {
	// Key is a label key: nodes that share its value are a domain.
	Key string
	// Slice members with consecutive ranks, counted from a multiple of it, have to be in one
	// domain; 0 for no such runs. Then members go to as few domains as can be.
	Slice int
}

func (l Level) sliced() bool { return l.Slice > 0 }

// Standing is where a member is that has its place.
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
	// Required is the label key of the topology of which all have to be in one domain; empty
	// for none.
	Required string
	// Levels are those by which it is laid out inside that, coarsest first. The slices of a
	// level are multiples of those of the levels after it.
	Levels []Level
	// Unordered: which of the levels without slices are coarser than others is not known.
	Unordered bool
	// Even: members that no one domain takes spread evenly over those that they need.
	Even bool
	// Shared: all gangs that say so have to be in one domain of their required topology,
	// which is the same.
	Shared bool
	// Custom: the levels are not its own wish. They do not stand in the way of a placement
	// together with others.
	Custom bool
	// Floor: it asks for room beyond its members, see World.Spare. Also where its Min is 0,
	// since others of its group are still to be placed.
	Floor bool
	// On is where members are that are placed already: they decide the required domain and
	// those of their slices, and lead in those of the other levels.
	On []Standing
}

// Problem is a group of gangs.
type Problem struct {
	Members []Member
	Gangs   []Gang
	// Nodes are the nodes to place on, in the order to try them.
	Nodes []int
	// Floors are the nodes that count for what gangs ask for beyond their members; nil is
	// Nodes.
	Floors []int
	// KeepPartial leaves what fits placed, also where the whole does not. It never leaves
	// every minimum placed where a gang lacks its floor: they would start.
	KeepPartial bool
	// Effort bounds the search, in Takes of the world; 0 leaves it to Solve. It
	// should be many times the number of members.
	Effort int
}

// Result is what came of a problem.
type Result struct {
	// Node is where each placed member goes, by its index.
	Node map[int]int
	// As is in whose place each of them goes: the world placed that member there, which it
	// cannot tell apart.
	As       map[int]int
	Complete bool
	Gangs    []Outcome
}

// Outcome is how far a gang came.
type Outcome struct {
	// Fit members of the Min that were wanted were placed, at best.
	Fit int
	// Domains is how far it came in the domains of its required topology, best
	// first; empty where it requires none.
	Domains []DomainFit
	// Untried is how many further domains there are. They take no more members than
	// those of Domains that come first, if the search was not cut short.
	Untried int
	// FloorShort: wherever its minimum was placed, the room that it asks for beyond was not.
	FloorShort bool
	// Unplaced are members that were meant for the minimum and found no place: as
	// many as are missing, at best.
	Unplaced []int
}

// DomainFit is how many members a domain takes.
type DomainFit struct {
	Value string
	Fit   int
}
