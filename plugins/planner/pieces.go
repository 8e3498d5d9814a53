package planner

import (
	"maps"

	"github.com/lockstep-sh/lockstep/plugins/internal/placement"
)

// Piece is members of a gang, of those that it needs, that have to be in one domain of each of some topologies.
type Piece struct {
	// Counts are how many of each of the gang's classes.
	Counts []int
	// In are the topologies, the gang's required one first, and then those of its slices.
	In []Bond
}

// Bond is a topology, all pieces of which in the same run of members have to be in one domain.
type Bond struct {
	Key string
	// Run is the number of the slice; 0 where it is all of the gang.
	Run int
	// On is a node on which a placed member of the run is; negative where there is none.
	On int
}

// Pieces divides the members that a gang needs, by the finest of its slices.
func (r *Room) Pieces(i int) []Piece {
	g, levels := r.problem.Gangs[i], r.sliced[i].Levels
	if g.Required != "" {
		levels = append([]placement.Level{{Key: g.Required}}, levels...)
	}
	kind := map[int]int{} // by class of the world, in the order of Classes
	for _, member := range g.Members {
		if _, known := kind[r.w.classOf[member]]; !known {
			kind[r.w.classOf[member]] = len(kind)
		}
	}
	var pieces []Piece
	at := map[int]int{}
	for _, member := range r.needed(g) {
		rank, finest := r.problem.Members[member].Rank, 0
		if len(levels) > 0 {
			finest = run(levels[len(levels)-1], rank)
		}
		if _, known := at[finest]; !known {
			at[finest] = len(pieces)
			pieces = append(pieces, Piece{Counts: make([]int, len(kind)), In: bonds(levels, rank, g.On)})
		}
		pieces[at[finest]].Counts[kind[r.w.classOf[member]]]++
	}
	return pieces
}

// run returns the number of the slice of a level that a rank is in.
func run(level placement.Level, rank int) int {
	if level.Slice == 0 {
		return 0
	}
	return rank / level.Slice
}

// bonds returns those of members around a rank, beside members that have their place.
func bonds(levels []placement.Level, rank int, on []placement.Standing) []Bond {
	list := make([]Bond, len(levels))
	for i, level := range levels {
		list[i] = Bond{Key: level.Key, Run: run(level, rank), On: -1}
		for _, standing := range on {
			if run(level, standing.Rank) == list[i].Run {
				list[i].On = standing.Node
				break
			}
		}
	}
	return list
}

// needed returns the members of a gang that are entitled to a place first, as many as it needs, and of each role.
func (r *Room) needed(g placement.Gang) []int {
	missing, others := maps.Clone(g.MinByRole), g.Min
	for _, n := range g.MinByRole {
		others -= n
	}
	var list []int
	for _, member := range g.Members {
		switch role := r.problem.Members[member].Role; {
		case missing[role] > 0:
			missing[role]--
		case others > 0:
			others--
		default:
			continue
		}
		list = append(list, member)
	}
	return list
}
