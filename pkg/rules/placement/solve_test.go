package placement

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// ofClass returns members of the given classes.
func ofClass(classes ...int) []Member {
	members := make([]Member, len(classes))
	for i, class := range classes {
		members[i].Class = class
	}
	return members
}

func equal(n int) []Member { return make([]Member, n) }

func ints(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// one returns a problem of one gang that has all members and nodes.
func one(c *cluster, members []Member, g Gang) Problem {
	g.Members = ints(len(members))
	return Problem{Members: members, Gangs: []Gang{g}, Nodes: c.nodes()}
}

func partial(p Problem) Problem {
	p.KeepPartial = true
	return p
}

type placed = map[int]int

type tableCase struct {
	cluster *cluster
	problem func(c *cluster) Problem
	want    Result
}

func runTable(t *testing.T, cases map[string]tableCase) {
	t.Helper()
	for sentence, c := range cases {
		t.Run(sentence, func(t *testing.T) {
			got := solve(t, c.cluster, c.problem(c.cluster))
			if diff := cmp.Diff(c.want, got, cmpopts.IgnoreFields(Result{}, "As")); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSolveOneGang(t *testing.T) {
	runTable(t, map[string]tableCase{
		"a gang that fits is placed by score": {
			cluster: func() *cluster { c := uniform(2, 2, 2); c.score = [][]int{{1, 3, 2}}; return c }(),
			problem: func(c *cluster) Problem { return one(c, equal(3), Gang{Min: 3}) },
			want:    Result{Node: placed{0: 1, 1: 1, 2: 2}, Complete: true, Gangs: []Outcome{{Fit: 3, Unplaced: []int{}}}},
		},
		"a gang that does not fit leaves nothing placed, and says how far it came": {
			cluster: uniform(1, 1),
			problem: func(c *cluster) Problem { return one(c, equal(4), Gang{Min: 4}) },
			want:    Result{Gangs: []Outcome{{Fit: 2, Unplaced: []int{2, 3}}}},
		},
		"what fits is kept placed where that is asked for": {
			cluster: uniform(1, 1),
			problem: func(c *cluster) Problem { return partial(one(c, equal(4), Gang{Min: 4})) },
			want:    Result{Node: placed{0: 0, 1: 1}, Gangs: []Outcome{{Fit: 2, Unplaced: []int{2, 3}}}},
		},
		"only the minimum is placed, and the first members are entitled to it": {
			cluster: uniform(8),
			problem: func(c *cluster) Problem { return one(c, equal(5), Gang{Min: 2}) },
			want:    Result{Node: placed{0: 0, 1: 0}, Complete: true, Gangs: []Outcome{{Fit: 2, Unplaced: []int{}}}},
		},
		"a member that does not fit is replaced by one that does": {
			cluster: uniform(2).classes(3, 1),
			problem: func(c *cluster) Problem { return one(c, ofClass(0, 1, 1), Gang{Min: 2}) },
			want:    Result{Node: placed{1: 0, 2: 0}, Complete: true, Gangs: []Outcome{{Fit: 2, Unplaced: []int{}}}},
		},
		"large members make way where the small ones alone reach the minimum": {
			cluster: uniform(4).classes(4, 1),
			problem: func(c *cluster) Problem { return one(c, ofClass(0, 1, 1, 1), Gang{Min: 3}) },
			want:    Result{Node: placed{1: 0, 2: 0, 3: 0}, Complete: true, Gangs: []Outcome{{Fit: 3, Unplaced: []int{}}}},
		},
		"where scores would waste the large node, nodes are packed": {
			cluster: func() *cluster {
				c := uniform(4, 2).classes(3, 2)
				c.score = [][]int{{1, 0}, {1, 0}}
				c.free = [][]int{{3}, {2}}
				return c
			}(),
			problem: func(c *cluster) Problem { return one(c, ofClass(0, 1), Gang{Min: 2}) },
			want:    Result{Node: placed{0: 0, 1: 1}, Complete: true, Gangs: []Outcome{{Fit: 2, Unplaced: []int{}}}},
		},
		"a gang that needs nothing is complete": {
			cluster: uniform(0),
			problem: func(c *cluster) Problem { return one(c, nil, Gang{Required: rack}) },
			want:    Result{Node: placed{}, Complete: true, Gangs: []Outcome{{Unplaced: []int{}}}},
		},
		"no nodes take nobody": {
			cluster: uniform(),
			problem: func(c *cluster) Problem { return one(c, equal(2), Gang{Min: 2}) },
			want:    Result{Gangs: []Outcome{{Unplaced: []int{0, 1}}}},
		},
	})
}

func TestSolveRoles(t *testing.T) {
	roles := func(roles ...string) []Member {
		members := make([]Member, len(roles))
		for i, role := range roles {
			members[i].Role = role
		}
		return members
	}
	runTable(t, map[string]tableCase{
		"the minimum has what its roles need, before those who came first": {
			cluster: uniform(3),
			problem: func(c *cluster) Problem {
				return one(c, roles("worker", "worker", "worker", "leader"), Gang{Min: 3, MinByRole: map[string]int{"leader": 1, "worker": 1}})
			},
			want: Result{Node: placed{0: 0, 1: 0, 3: 0}, Complete: true, Gangs: []Outcome{{Fit: 3, Unplaced: []int{}}}},
		},
		"others do not fill the place of a role": {
			cluster: func() *cluster {
				c := uniform(3).classes(1, 1)
				c.refuses = map[[2]int]bool{{0, 0}: true}
				return c
			}(),
			problem: func(c *cluster) Problem {
				return one(c, []Member{{Class: 0, Role: "leader"}, {Class: 1}, {Class: 1}, {Class: 1}}, Gang{Min: 3, MinByRole: map[string]int{"leader": 1}})
			},
			want: Result{Gangs: []Outcome{{Fit: 2, Unplaced: []int{0}}}},
		},
		"one of the same role does": {
			cluster: func() *cluster {
				c := uniform(3).classes(1, 1)
				c.refuses = map[[2]int]bool{{0, 0}: true}
				return c
			}(),
			problem: func(c *cluster) Problem {
				return one(c, []Member{{Class: 0, Role: "leader"}, {Class: 1}, {Class: 1, Role: "leader"}}, Gang{Min: 2, MinByRole: map[string]int{"leader": 1}})
			},
			want: Result{Node: placed{1: 0, 2: 0}, Complete: true, Gangs: []Outcome{{Fit: 2, Unplaced: []int{}}}},
		},
	})
}

func TestSolveSeveralGangs(t *testing.T) {
	two := func(c *cluster, a, b Gang) Problem {
		a.Members, b.Members = []int{0, 1}, []int{2, 3}
		return Problem{Members: equal(4), Gangs: []Gang{a, b}, Nodes: c.nodes()}
	}
	runTable(t, map[string]tableCase{
		"all are placed or none": {
			cluster: uniform(3),
			problem: func(c *cluster) Problem { return two(c, Gang{Min: 2}, Gang{Min: 2}) },
			want:    Result{Gangs: []Outcome{{Fit: 2, Unplaced: []int{}}, {Fit: 1, Unplaced: []int{3}}}},
		},
		"an earlier gang moves on where a later one finds no domain": {
			// rack a is the tighter fit for the first; the second fits only there.
			cluster: func() *cluster {
				c := uniform(2, 3).classes(1, 1).in(rack, "a", "b")
				c.refuses = map[[2]int]bool{{1, 1}: true}
				return c
			}(),
			problem: func(c *cluster) Problem {
				p := two(c, Gang{Min: 2, Required: rack}, Gang{Min: 2, Required: rack})
				p.Members = ofClass(0, 0, 1, 1)
				return p
			},
			want: Result{Node: placed{0: 1, 1: 1, 2: 0, 3: 0}, Complete: true, Gangs: []Outcome{
				{Fit: 2, Domains: []DomainFit{{"a", 2}, {"b", 2}}, Unplaced: []int{}},
				{Fit: 2, Domains: []DomainFit{{"a", 2}, {"b", 0}}, Unplaced: []int{}},
			}},
		},
		"a preference does not stand in the way of a requirement": {
			cluster: uniform(2, 1, 1).in(rack, "a", "b", "c"),
			problem: func(c *cluster) Problem {
				return two(c, Gang{Min: 2, Levels: []Level{{Key: rack}}}, Gang{Min: 2, Required: rack})
			},
			want: Result{Node: placed{0: 1, 1: 2, 2: 0, 3: 0}, Complete: true, Gangs: []Outcome{
				{Fit: 2, Unplaced: []int{}}, {Fit: 2, Domains: []DomainFit{{"a", 2}}, Untried: 2, Unplaced: []int{}},
			}},
		},
		"a gang that finds no place does not leave the others untold": {
			cluster: uniform(1, 1, 1).in(rack, "a", "a", "b"),
			problem: func(c *cluster) Problem { return two(c, Gang{Min: 2, Required: zone}, Gang{Min: 2, Required: rack}) },
			want: Result{Gangs: []Outcome{
				{Unplaced: []int{0, 1}}, {Fit: 2, Domains: []DomainFit{{"a", 2}, {"b", 1}}, Unplaced: []int{}},
			}},
		},
		"gangs that fit, but not together, say so": {
			cluster: uniform(2, 1).in(rack, "a", "b"),
			problem: func(c *cluster) Problem { return two(c, Gang{Min: 2, Required: rack}, Gang{Min: 2, Required: rack}) },
			want: Result{Gangs: []Outcome{
				{Fit: 2, Domains: []DomainFit{{"a", 2}, {"b", 1}}, Unplaced: []int{}},
				{Fit: 2, Domains: []DomainFit{{"a", 2}, {"b", 1}}, Unplaced: []int{}},
			}},
		},
		"a gang of which enough runs takes part without a place": {
			cluster: uniform(1, 1),
			problem: func(c *cluster) Problem {
				return Problem{Members: equal(2), Gangs: []Gang{{Required: zone}, {Members: []int{0, 1}, Min: 2}}, Nodes: c.nodes()}
			},
			want: Result{Node: placed{0: 0, 1: 1}, Complete: true, Gangs: []Outcome{{Unplaced: []int{}}, {Fit: 2, Unplaced: []int{}}}},
		},
		"a partial placement moves on to a domain that still takes some": {
			cluster: uniform(3, 2).in(rack, "a", "b"),
			problem: func(c *cluster) Problem {
				g := Gang{Min: 4, Required: rack}
				p := Problem{Members: equal(8), Gangs: []Gang{g, g}, Nodes: c.nodes(), KeepPartial: true}
				p.Gangs[0].Members, p.Gangs[1].Members = []int{0, 1, 2, 3}, []int{4, 5, 6, 7}
				return p
			},
			want: Result{Node: placed{0: 0, 1: 0, 2: 0, 4: 1, 5: 1}, Gangs: []Outcome{
				{Fit: 3, Domains: []DomainFit{{"a", 3}, {"b", 2}}, Unplaced: []int{3}},
				{Fit: 3, Domains: []DomainFit{{"a", 3}, {"b", 2}}, Unplaced: []int{7}},
			}},
		},
	})
}

// TestSolveUndoesEverythingOnError breaks the world at every Take.
func TestSolveUndoesEverythingOnError(t *testing.T) {
	s := shape{classes: 2, resources: 2, gangs: 3, topology: true, roles: true}
	for seed := range uint64(100) {
		c, p := s.random(seed)
		for after := 1; ; after++ {
			broken := c.copied()
			broken.failAfter = after
			r, err := Solve(t.Context(), broken, p)
			if err == nil {
				break // it takes no more than that
			}
			if !errors.Is(err, errBroken) {
				t.Fatalf("seed %d: Solve: %v, want %v in it", seed, err, errBroken)
			}
			if diff := cmp.Diff(Result{}, r); diff != "" {
				t.Fatalf("seed %d: result beside an error (-want +got):\n%s", seed, diff)
			}
			if diff := cmp.Diff(c.free, broken.free); diff != "" || len(broken.log) > 0 {
				t.Fatalf("seed %d: it left %v placed (-before +after):\n%s", seed, broken.log, diff)
			}
		}
	}
}
