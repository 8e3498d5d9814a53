package planner

import "github.com/lockstep-sh/lockstep/pkg/rules/placement"

// Piece is a set of members that a gang needs and that must share a domain of each of some topologies.
type Piece struct {
	// Counts is the number of members of each of the gang's classes.
	Counts []int
	// In are the topologies: the gang's required one first, then those of its slices.
	In []Bond
}

// Bond is a topology in which all pieces of the same run of members must share a domain.
type Bond struct {
	Key string
	// Run is the number of the slice; 0 for the whole gang.
	Run int
	// On is a node of the domain, if members of the run are placed in one; otherwise it is negative.
	On int
}

// Pieces divides the members that gang i needs by its finest slices.
func (r *Simulation) Pieces(i int) []Piece {
	g := r.problem.Gangs[i]
	levels := g.FixedLevels()
	homes := make([]map[int]int, len(levels))
	for k, level := range levels {
		homes[k] = level.Homes(g.On, r.w.Label)
	}
	kind := map[int]int{} // by class of the plan state
	for k, c := range r.Classes()[i] {
		kind[c.class] = k
	}
	var pieces []Piece
	at := map[int]int{}
	for _, member := range placement.Minimum(r.problem, g) {
		rank, finest := r.problem.Members[member].Rank, 0
		if len(levels) > 0 {
			finest = rank / levels[len(levels)-1].Slice
		}
		if _, known := at[finest]; !known {
			at[finest] = len(pieces)
			pieces = append(pieces, Piece{Counts: make([]int, len(kind)), In: bondsOf(levels, rank, homes)})
		}
		pieces[at[finest]].Counts[kind[r.w.classOf[member]]]++
	}
	return pieces
}

// bondsOf returns the bonds of the members around a rank, given the homes of the slices of each level.
func bondsOf(levels []placement.Level, rank int, homes []map[int]int) []Bond {
	list := make([]Bond, len(levels))
	for i, level := range levels {
		list[i] = Bond{Key: level.Key, Run: rank / level.Slice, On: -1}
		if home, ok := homes[i][list[i].Run]; ok {
			list[i].On = home
		}
	}
	return list
}
