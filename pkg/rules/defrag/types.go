package defrag

// Plan is what to move, in which order, and where the gang fits then.
type Plan struct {
	Moves []Move
	// Domain is which of its domains each part is in.
	Domain []int
	// Places are the nodes of members, by part and class, in ascending order.
	Places [][][]int
	// Cleared are the units that EmptyUnits emptied, in order.
	Cleared []int
	Cost    Cost
}

// Move is a pod that goes to another node.
type Move struct {
	Pod, To int
	// After are the earlier moves, by index in ascending order, that have to end before this one
	// begins: they make its room, or it is its turn after them. Moves may be made in any order that
	// respects it, also at the same time.
	After []int
}

// Result is the outcome of a search.
type Result struct {
	// Plan is the best plan found, if Found.
	Plan  Plan
	Found bool
	// Exhaustive: everything was tried. No plan is cheaper; if none was found, there is none.
	Exhaustive bool
	// Steps is the effort that was made.
	Steps int
}

// free returns what each node has once the members of a plan have their places.
func (p *Problem) free(places [][][]int) [][]int64 {
	columns := p.columns()
	all := make([]int64, len(p.Nodes)*columns)
	free := make([][]int64, len(p.Nodes))
	for i, node := range p.Nodes {
		free[i] = all[i*columns : (i+1)*columns : (i+1)*columns]
		copy(free[i], node.Free)
	}
	p.eachMember(places, func(node int, request []int64) { take(free[node], request) })
	return free
}

func take(free, request []int64) {
	for c, amount := range request {
		free[c] -= amount
	}
}

func give(free, request []int64) {
	for c, amount := range request {
		free[c] += amount
	}
}

// Fits reports whether a request fits, by the columns that it asks for.
func Fits(free, request []int64) bool {
	for c, amount := range request {
		if amount > 0 && free[c] < amount {
			return false
		}
	}
	return true
}
