package planner

import "github.com/lockstep-sh/lockstep/pkg/rules/placement"

// Piece is a set of members that a gang needs and that must share a domain of each of some topologies.
type Piece struct {
	// Counts is the number of members of each of the gang's classes.
	Counts []int
	// In are the domains: that of the gang's required topology first, then those of its slices.
	In []placement.Bond
}

// Pieces divides the members that gang i needs by its finest slices.
func (r *Simulation) Pieces(i int) []Piece {
	g := r.problem.Gangs[i]
	bonds := g.Bonds(r.w.Label)
	kind := map[int]int{} // by class of the plan state
	for k, c := range r.Classes()[i] {
		kind[c.class] = k
	}
	var pieces []Piece
	at := map[int]int{} // by the number of the finest slice
	for _, member := range placement.Minimum(r.problem, g) {
		in, finest := bonds(r.problem.Members[member].Rank), 0
		if len(in) > 0 {
			finest = in[len(in)-1].Number
		}
		if _, known := at[finest]; !known {
			at[finest] = len(pieces)
			pieces = append(pieces, Piece{Counts: make([]int, len(kind)), In: in})
		}
		pieces[at[finest]].Counts[kind[r.w.classOf[member]]]++
	}
	return pieces
}
