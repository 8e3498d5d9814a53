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
	// On is a node of a placed member of the run; negative if there is none.
	On int
}

// Pieces divides the members that gang i needs by its finest slices.
func (r *Simulation) Pieces(i int) []Piece {
	g, levels := r.problem.Gangs[i], r.sliced[i].Levels
	if g.Required != "" {
		levels = append([]placement.Level{{Key: g.Required}}, levels...)
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
			finest = runOf(levels[len(levels)-1], rank)
		}
		if _, known := at[finest]; !known {
			at[finest] = len(pieces)
			pieces = append(pieces, Piece{Counts: make([]int, len(kind)), In: bondsOf(levels, rank, g.On)})
		}
		pieces[at[finest]].Counts[kind[r.w.classOf[member]]]++
	}
	return pieces
}

// runOf returns the number of the slice of a level that contains a rank.
func runOf(level placement.Level, rank int) int {
	if level.Slice == 0 {
		return 0
	}
	return rank / level.Slice
}

// bondsOf returns the bonds of the members around a rank, given the members that have their place.
func bondsOf(levels []placement.Level, rank int, on []placement.PlacedMember) []Bond {
	list := make([]Bond, len(levels))
	for i, level := range levels {
		list[i] = Bond{Key: level.Key, Run: runOf(level, rank), On: -1}
		for _, standing := range on {
			if runOf(level, standing.Rank) == list[i].Run {
				list[i].On = standing.Node
				break
			}
		}
	}
	return list
}
