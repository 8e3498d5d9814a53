package placement

import (
	"fmt"
	"testing"
)

func TestSolveRequiredTopology(t *testing.T) {
	runTable(t, map[string]tableCase{
		"a gang that no domain takes says how many each takes": {
			cluster: uniform(2, 2, 2, 2).in(rack, "a", "b", "c", "d"),
			problem: func(c *cluster) Problem { return one(c, equal(4), Gang{Min: 4, Required: rack}) },
			want: Result{Gangs: []Outcome{{
				Fit: 2, Domains: []DomainFit{{"a", 2}, {"b", 2}, {"c", 2}, {"d", 2}}, Unplaced: []int{2, 3},
			}}},
		},
		"the tightest domain takes the gang": {
			cluster: uniform(2, 3).in(rack, "a", "b"),
			problem: func(c *cluster) Problem { return one(c, equal(2), Gang{Min: 2, Required: rack}) },
			want: Result{Node: placed{0: 0, 1: 0}, Complete: true, Gangs: []Outcome{{
				Fit: 2, Domains: []DomainFit{{"a", 2}}, Untried: 1, Unplaced: []int{},
			}}},
		},
		"the tightest is judged by what the gang finds least of": {
			// Workers ask for 1 of the first resource, the leader for 1 of the second,
			// of which rack b, the tighter one for workers, has plenty.
			cluster: &cluster{
				free: [][]int{{6, 2}, {2, 9}}, ask: [][]int{{1, 0}, {0, 1}},
				labels: []map[string]string{{rack: "a"}, {rack: "b"}},
			},
			problem: func(c *cluster) Problem { return one(c, ofClass(0, 0, 1), Gang{Min: 3, Required: rack}) },
			want: Result{Node: placed{0: 1, 1: 1, 2: 1}, Complete: true, Gangs: []Outcome{{
				Fit: 3, Domains: []DomainFit{{"b", 3}}, Untried: 1, Unplaced: []int{},
			}}},
		},
		"shapes that ask for different things share a node that arithmetic by one of them would rule out": {
			cluster: &cluster{free: [][]int{{3, 3}}, ask: [][]int{{2, 1}, {1, 2}}, labels: []map[string]string{{rack: "a"}}},
			problem: func(c *cluster) Problem {
				return one(c, ofClass(0, 1), Gang{Min: 2, Required: rack, Levels: []Level{{Key: rack}}})
			},
			want: Result{Node: placed{0: 0, 1: 0}, Complete: true, Gangs: []Outcome{{
				Fit: 2, Domains: []DomainFit{{"a", 2}}, Unplaced: []int{},
			}}},
		},
		"nodes without the label are in no domain": {
			cluster: uniform(9, 2).in(rack, "", "a"),
			problem: func(c *cluster) Problem { return one(c, equal(3), Gang{Min: 3, Required: rack}) },
			want:    Result{Gangs: []Outcome{{Fit: 2, Domains: []DomainFit{{"a", 2}}, Unplaced: []int{2}}}},
		},
		"no node has the label": {
			cluster: uniform(9),
			problem: func(c *cluster) Problem { return one(c, equal(2), Gang{Min: 2, Required: rack}) },
			want:    Result{Gangs: []Outcome{{Unplaced: []int{0, 1}}}},
		},
		"members that stand somewhere decide the domain": {
			cluster: uniform(2, 3).in(rack, "a", "b"),
			problem: func(c *cluster) Problem {
				return one(c, equal(2), Gang{Min: 2, Required: rack, On: []PlacedMember{{Node: 1}}})
			},
			want: Result{Node: placed{0: 1, 1: 1}, Complete: true, Gangs: []Outcome{{
				Fit: 2, Domains: []DomainFit{{"b", 2}}, Unplaced: []int{},
			}}},
		},
		"also where it is full": {
			cluster: uniform(2, 1).in(rack, "a", "b"),
			problem: func(c *cluster) Problem {
				return one(c, equal(2), Gang{Min: 2, Required: rack, On: []PlacedMember{{Node: 1}}})
			},
			want: Result{Gangs: []Outcome{{Fit: 1, Domains: []DomainFit{{"b", 1}}, Unplaced: []int{1}}}},
		},
		"members that stand apart pin to the first; those without a domain pin to none": {
			cluster: uniform(0, 0, 2, 2).in(rack, "", "b", "b", "a"),
			problem: func(c *cluster) Problem {
				return one(c, equal(2), Gang{Min: 2, Required: rack, On: []PlacedMember{{Node: 0}, {Node: 1}, {Node: 3}}})
			},
			want: Result{Node: placed{0: 2, 1: 2}, Complete: true, Gangs: []Outcome{{
				Fit: 2, Domains: []DomainFit{{"b", 2}}, Unplaced: []int{},
			}}},
		},
		"what fits is kept in the domain that takes most": {
			cluster: uniform(2, 3, 1).in(rack, "a", "b", "c"),
			problem: func(c *cluster) Problem { return partial(one(c, equal(4), Gang{Min: 4, Required: rack})) },
			want: Result{Node: placed{0: 1, 1: 1, 2: 1}, Gangs: []Outcome{{
				Fit: 3, Domains: []DomainFit{{"b", 3}, {"a", 2}, {"c", 1}}, Unplaced: []int{3},
			}}},
		},
	})
}

func TestSolvePreferredTopology(t *testing.T) {
	runTable(t, map[string]tableCase{
		"one domain takes the gang if one can, the tightest first": {
			cluster: uniform(4, 3, 2).in(rack, "a", "b", "c"),
			problem: func(c *cluster) Problem { return one(c, equal(3), Gang{Min: 3, Levels: []Level{{Key: rack}}}) },
			want:    Result{Node: placed{0: 1, 1: 1, 2: 1}, Complete: true, Gangs: []Outcome{{Fit: 3, Unplaced: []int{}}}},
		},
		"a domain that only arithmetic calls tightest is passed over": {
			cluster: func() *cluster {
				c := uniform(4, 3, 2).in(rack, "a", "b", "c")
				c.refuses = map[[2]int]bool{{0, 1}: true}
				return c
			}(),
			problem: func(c *cluster) Problem { return one(c, equal(3), Gang{Min: 3, Levels: []Level{{Key: rack}}}) },
			want:    Result{Node: placed{0: 0, 1: 0, 2: 0}, Complete: true, Gangs: []Outcome{{Fit: 3, Unplaced: []int{}}}},
		},
		"a gang that no domain takes spreads over the fewest, whatever the scores": {
			cluster: func() *cluster {
				c := uniform(1, 2, 3, 1).in(rack, "a", "b", "c", "d")
				c.score = [][]int{{9, 5, 1, 9}}
				return c
			}(),
			problem: func(c *cluster) Problem { return one(c, equal(5), Gang{Min: 5, Levels: []Level{{Key: rack}}}) },
			want:    Result{Node: placed{0: 2, 1: 2, 2: 2, 3: 1, 4: 1}, Complete: true, Gangs: []Outcome{{Fit: 5, Unplaced: []int{}}}},
		},
		"nodes in no domain come last": {
			cluster: uniform(9, 1, 2).in(rack, "", "b", "c"),
			problem: func(c *cluster) Problem { return one(c, equal(4), Gang{Min: 4, Levels: []Level{{Key: rack}}}) },
			want:    Result{Node: placed{0: 2, 1: 2, 2: 1, 3: 0}, Complete: true, Gangs: []Outcome{{Fit: 4, Unplaced: []int{}}}},
		},
		"the domain in which members stand leads": {
			cluster: uniform(4, 2, 3).in(rack, "a", "b", "c"),
			problem: func(c *cluster) Problem {
				return one(c, equal(2), Gang{Min: 2, Levels: []Level{{Key: rack}}, On: []PlacedMember{{Node: 2}}})
			},
			want: Result{Node: placed{0: 2, 1: 2}, Complete: true, Gangs: []Outcome{{Fit: 2, Unplaced: []int{}}}},
		},
		"also where the rest has to go elsewhere": {
			cluster: uniform(3, 2, 1).in(rack, "a", "b", "c"),
			problem: func(c *cluster) Problem {
				return one(c, equal(4), Gang{Min: 4, Levels: []Level{{Key: rack}}, On: []PlacedMember{{Node: 2}}})
			},
			want: Result{Node: placed{0: 2, 1: 0, 2: 0, 3: 0}, Complete: true, Gangs: []Outcome{{Fit: 4, Unplaced: []int{}}}},
		},
		"a preference inside a requirement": {
			cluster: uniform(1, 1, 2, 9).in(zone, "x", "x", "x", "y").in(rack, "a", "b", "c", "d"),
			problem: func(c *cluster) Problem {
				return one(c, equal(2), Gang{Min: 2, Required: zone, Levels: []Level{{Key: rack}}})
			},
			want: Result{Node: placed{0: 2, 1: 2}, Complete: true, Gangs: []Outcome{{
				Fit: 2, Domains: []DomainFit{{"x", 2}}, Untried: 1, Unplaced: []int{},
			}}},
		},
	})
}

// TestSolveTriesFewDomainsInVain: if arithmetic rules out that any domain takes the gang, enough of
// them are tried to explain it, and no more.
func TestSolveTriesFewDomainsInVain(t *testing.T) {
	c, p := impossible(100, 1)
	r := solve(t, c, p)
	if len(r.Gangs[0].Domains) != reportedDomains || r.Gangs[0].Untried != 100-reportedDomains {
		t.Errorf("%d domains tried and %d not, want %d and %d", len(r.Gangs[0].Domains), r.Gangs[0].Untried, reportedDomains, 100-reportedDomains)
	}
}

// TestSolveBoundsItsEffort: gangs that each fit anywhere, but not together, could be moved around
// for ever.
func TestSolveBoundsItsEffort(t *testing.T) {
	const room = 4
	for racks := 1; racks <= 12; racks++ {
		t.Run(fmt.Sprint(racks, " racks"), func(t *testing.T) {
			c := &cluster{ask: [][]int{{1}}}
			p := Problem{}
			for i := range racks {
				c.free = append(c.free, []int{room})
				c.labels = append(c.labels, map[string]string{rack: fmt.Sprint(i)})
			}
			p.Nodes = c.nodes()
			for i := range racks + 1 { // one more than there are racks
				g := Gang{Min: room - 1, Required: rack}
				for m := range room {
					g.Members = append(g.Members, i*room+m)
					p.Members = append(p.Members, Member{})
				}
				p.Gangs = append(p.Gangs, g)
			}
			for _, effort := range []int{leastEffort, 500} {
				if p.Effort = 0; effort != leastEffort {
					p.Effort = effort
				}
				after := c.copied()
				r, err := Solve(t.Context(), after, p)
				if err != nil || r.Complete {
					t.Fatalf("Solve: complete %v, %v", r.Complete, err)
				}
				if most := effort + len(p.Members)*len(p.Nodes); after.takes > most {
					t.Errorf("it took %d Takes, want at most %d", after.takes, most)
				}
			}
		})
	}
}

// impossible returns a cluster of racks with 32 nodes each, and gangs of which all but the last fit
// in any rack. The last fits in none, by one member.
func impossible(racks, gangs int) (*cluster, Problem) {
	const nodes, room = 32, 8
	free := make([]int, racks*nodes)
	names := make([]string, len(free))
	for i := range free {
		free[i], names[i] = room, fmt.Sprintf("r%03d", i/nodes)
	}
	c := uniform(free...).in(rack, names...)
	p := Problem{Nodes: c.nodes()}
	for i := range gangs {
		size := nodes * room
		if i == gangs-1 {
			size++
		}
		g := Gang{Min: size, Required: rack}
		for range size {
			g.Members = append(g.Members, len(p.Members))
			p.Members = append(p.Members, Member{})
		}
		p.Gangs = append(p.Gangs, g)
	}
	return c, p
}
