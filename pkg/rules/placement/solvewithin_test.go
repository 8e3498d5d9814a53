package placement

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

func TestSolveWithin(t *testing.T) {
	three := Problem{Members: make([]Member, 3), Gangs: []Gang{{Members: []int{0, 1, 2}, Min: 3}}}
	partial := three
	partial.KeepPartial = true
	for sentence, c := range map[string]struct {
		free    []int
		refuses map[[2]int]bool
		problem Problem
		sets    [][]int
		want    map[int]int // members by node
	}{
		"the tightest that takes all":                      {free: []int{9, 4, 5}, problem: three, sets: [][]int{{0}, {1}, {2}}, want: map[int]int{1: 3}},
		"of equals the first":                              {free: []int{4, 4, 9}, problem: three, sets: [][]int{{1}, {0}}, want: map[int]int{1: 3}},
		"a set may have many nodes, and share them":        {free: []int{2, 1, 9}, problem: three, sets: [][]int{{0, 2}, {0, 1}}, want: map[int]int{0: 2, 1: 1}},
		"one where filters refuse what sums allow is none": {free: []int{9, 4}, refuses: map[[2]int]bool{{0, 1}: true}, problem: three, sets: [][]int{{1}, {0}}, want: map[int]int{0: 3}},
		"where none does nothing stays":                    {free: []int{1, 2}, problem: three, sets: [][]int{{0}, {1}}, want: map[int]int{}},
		"or what fits where most do, not in the last":      {free: []int{1, 2, 0}, problem: partial, sets: [][]int{{0}, {1}, {2}}, want: map[int]int{1: 2}},
		"also if sums promise more elsewhere":              {free: []int{2, 9}, refuses: map[[2]int]bool{{0, 1}: true}, problem: partial, sets: [][]int{{1}, {0}}, want: map[int]int{0: 2}},
		"without sets anywhere":                            {free: []int{2, 1}, problem: func() Problem { p := three; p.Nodes = []int{0, 1}; return p }(), want: map[int]int{0: 2, 1: 1}},
		"a set without nodes takes nobody":                 {free: []int{3}, problem: three, sets: [][]int{{}}, want: map[int]int{}},
	} {
		t.Run(sentence, func(t *testing.T) {
			world := uniform(c.free...)
			world.refuses = c.refuses
			r, err := SolveWithin(t.Context(), world, c.problem, c.sets)
			must.Succeed(t, err)
			got := map[int]int{}
			for _, node := range r.Node {
				got[node]++
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("members by node (-want +got):\n%s", diff)
			}
			if r.Complete != (len(r.Node) == 3) || len(world.log) != len(r.Node) {
				t.Errorf("complete %v, the world has %d", r.Complete, len(world.log))
			}
		})
	}
}

// TestSolveWithinIsTheBestOfAll compares with solving in every set by itself: the result is complete if it is
// in any, and otherwise as many members find a place as in any.
func TestSolveWithinIsTheBestOfAll(t *testing.T) {
	s := shape{classes: 2, resources: 2, gangs: 2, topology: true, roles: true}
	complete := 0
	for seed := range uint64(600) {
		c, p := s.random(seed)
		rng := rand.New(rand.NewPCG(seed, 11))
		var sets [][]int
		for range 1 + rng.IntN(4) {
			nodes := rng.Perm(len(c.free))
			sets = append(sets, nodes[:rng.IntN(len(nodes)+1)])
		}
		most, any := 0, false
		for _, set := range sets {
			inside := p
			inside.Nodes, inside.KeepPartial = set, true
			one := solve(t, c, inside)
			most, any = max(most, len(one.Node)), any || one.Complete
		}
		after := c.copied()
		r, err := SolveWithin(t.Context(), after, p, sets)
		must.Succeed(t, err)
		if r.Complete != any || !any && p.KeepPartial && len(r.Node) != most {
			t.Fatalf("seed %d: complete %v with %d, want %v with %d; cluster %+v, problem %+v, sets %v", seed, r.Complete, len(r.Node), any, most, *c, p, sets)
		}
		if len(after.log) != len(r.Node) || !r.Complete && !p.KeepPartial && len(r.Node) > 0 {
			t.Fatalf("seed %d: the world has %v, the result %v", seed, after.log, r.Node)
		}
		if any {
			complete++
		}
	}
	if complete < 100 {
		t.Errorf("only %d were complete", complete)
	}
}
