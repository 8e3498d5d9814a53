package defrag

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

func TestClear(t *testing.T) {
	each := [][]int{{0}, {1}, {2}}
	for sentence, c := range map[string]struct {
		nodes    []string
		clearing Clearing
		change   func(p *Problem)
		moves    string
		cleared  []int
	}{
		"bigger pods go first, onto the first target that has room": {
			nodes:    []string{"8: 1 2", "8: 7", "8: 4"},
			clearing: Clearing{Units: [][]int{{0}}, Targets: []int{1, 2}},
			moves:    "2:0>2, 1:0>1; gang on []; costs 2", cleared: []int{0},
		},
		"a unit whose pods have no place is left alone, and the next one is tried": {
			nodes:    []string{"8: 5 1", "8: 1", "8: 4"},
			clearing: Clearing{Units: each, Targets: []int{2}},
			moves:    "1:1>2; gang on []; costs 1", cleared: []int{1},
		},
		"a unit that received pods is not cleared": {
			nodes:    []string{"8: 1", "8: 1", "8: 8"},
			clearing: Clearing{Units: each, Targets: []int{0, 1, 2}},
			moves:    "1:0>1; gang on []; costs 1", cleared: []int{0},
		},
		"no more units are cleared than are wanted": {
			nodes:    []string{"8: 1", "8: 1", "8: 4"},
			clearing: Clearing{Units: each, Targets: []int{2}, MaxUnits: 1},
			moves:    "1:0>2; gang on []; costs 1", cleared: []int{0},
		},
		"a domain is cleared as a whole": {
			nodes:    []string{"8: 2", "8: 3", "8: 3"},
			clearing: Clearing{Units: [][]int{{0, 1}}, Targets: []int{0, 1, 2}},
			moves:    "3:1>2, 2:0>2; gang on []; costs 2", cleared: []int{0},
		},
		"a unit with more pods than the budget has is left alone": {
			nodes:    []string{"8: 1 1", "8: 1", "8: 4"},
			clearing: Clearing{Units: each, Targets: []int{2}},
			change:   func(p *Problem) { p.Budget.MaxMoves = 1 },
			moves:    "1:1>2; gang on []; costs 1", cleared: []int{1},
		},
		"a first target that leaves no room for the rest is given up": {
			nodes:    []string{"8: 3 2", "3:", "2:"},
			clearing: Clearing{Units: [][]int{{0}}, Targets: []int{1, 2}},
			change: func(p *Problem) {
				p.Pods[0].Request[0], p.Pods[0].Kind, p.Pods[1].Kind = 2, 7, 8
				p.Fits = func(pod, node int) bool { return pod == 0 || node == 1 }
			},
			moves: "2:0>2, 2:0>1; gang on []; costs 2", cleared: []int{0},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			p := cluster(t, c.nodes...)
			if c.change != nil {
				c.change(&p)
			}
			if c.clearing.MaxUnits == 0 {
				c.clearing.MaxUnits = len(c.clearing.Units)
			}
			plan, err := EmptyUnits(p, c.clearing)
			must.Succeed(t, err)
			if diff := cmp.Diff(c.moves, show(p, plan)); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.cleared, plan.Cleared); diff != "" {
				t.Errorf("cleared units (-want +got):\n%s", diff)
			}
		})
	}
}

// TestClearedUnitsHold checks plans on small random clusters for what holds for any correct one.
func TestClearedUnitsHold(t *testing.T) {
	some := 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 2))
		p := random(r)
		c := Clearing{MaxUnits: []int{len(p.Nodes), 1, 2}[r.IntN(3)], Targets: r.Perm(len(p.Nodes))[:1+r.IntN(len(p.Nodes))]}
		for _, node := range r.Perm(len(p.Nodes)) {
			c.Units = append(c.Units, []int{node})
		}
		if r.IntN(2) == 0 {
			c.Units = p.Want[0].Domains
		}
		plan, err := EmptyUnits(p, c)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if len(plan.Moves) > 0 {
			some++
		}
		p.Want = nil
		runs(t, p, plan, r)
	}
	t.Logf("%d clusters had units to clear", some)
	if some < 300 {
		t.Errorf("%d clusters had units to clear, want hundreds", some)
	}
}
