package placement

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	block = "block"
	host  = "host"
)

// layouts are levels by which gangs of the tests are laid out.
var layouts = map[string][]Level{
	"few racks":                           {{Key: rack}},
	"few blocks and racks":                {{Key: block}, {Key: rack}},
	"slices of 2 by rack":                 {{Key: rack, Slice: 2}},
	"slices of 3 by rack":                 {{Key: rack, Slice: 3}},
	"slices of 3 by block":                {{Key: block, Slice: 3}},
	"slices of 2 by rack, in few blocks":  {{Key: block}, {Key: rack, Slice: 2}},
	"slices of 4 by block, few racks":     {{Key: block, Slice: 4}, {Key: rack}},
	"slices of 4 by block and 2 by rack":  {{Key: block, Slice: 4}, {Key: rack, Slice: 2}},
	"slices of 6 by block, 3 by rack":     {{Key: block, Slice: 6}, {Key: rack, Slice: 3}},
	"slices of 4 by block, of one a rack": {{Key: block, Slice: 4}, {Key: rack, Slice: 1}},
	"slices of 8 by block, 4 by rack, 2":  {{Key: block, Slice: 8}, {Key: rack, Slice: 4}, {Key: host, Slice: 2}},
}

// nested returns a cluster of racks in blocks, where some nodes lack a label if it is not whole,
// and a gang of equal members.
func nested(rng *rand.Rand, levels []Level, whole bool) (*cluster, Problem) {
	c := uniform()
	for b := range 1 + rng.IntN(3) {
		for r := range 1 + rng.IntN(2) {
			for range 1 + rng.IntN(2) {
				labels := map[string]string{block: fmt.Sprint("b", b), rack: fmt.Sprintf("b%d-r%d", b, r), host: fmt.Sprint("h", len(c.labels))}
				if !whole && rng.IntN(8) == 0 {
					delete(labels, []string{block, rack}[rng.IntN(2)])
				}
				c.labels = append(c.labels, labels)
				c.free = append(c.free, []int{rng.IntN(5)})
			}
		}
	}
	members := 1 + rng.IntN(6)
	g := Gang{Levels: levels, Min: members}
	if rng.IntN(3) == 0 {
		g.Min = 1 + rng.IntN(members)
	}
	if rng.IntN(4) == 0 {
		g.Required = block
	}
	p := one(c, equal(members), g)
	first := 0
	if rng.IntN(3) == 0 {
		first = rng.IntN(5)
		for rank := range first {
			if rng.IntN(2) == 0 {
				p.Gangs[0].On = append(p.Gangs[0].On, PlacedMember{Node: rng.IntN(len(c.free)), Rank: rank})
			}
		}
		if !standsWhole(c, p.Gangs[0]) {
			p.Gangs[0].On = nil
		}
	}
	for m := range p.Members {
		p.Members[m].Rank = first + m
	}
	rng.Shuffle(len(p.Nodes), func(a, b int) { p.Nodes[a], p.Nodes[b] = p.Nodes[b], p.Nodes[a] })
	return c, p
}

// standsWhole reports whether the members that have their place are together as they should be.
func standsWhole(c *cluster, g Gang) bool {
	whole := g.On
	for i, standing := range whole {
		o := &oracle{c: c, p: Problem{Members: []Member{{Rank: standing.Rank}}}}
		g.On, g.Members = whole[:i], nil
		if !o.slicesAllow(g, 0, standing.Node) {
			return false
		}
		first, _ := c.Label(whole[0].Node, g.Required)
		if value, ok := c.Label(standing.Node, g.Required); g.Required != "" && (!ok || value != first) {
			return false
		}
	}
	return true
}

// TestLayoutFindsWhatThereIs: equal members find places in whole slices if and only if there are
// some, whatever is placed already; and those that they get are in whole slices.
func TestLayoutFindsWhatThereIs(t *testing.T) {
	for sentence, levels := range layouts {
		t.Run(sentence, func(t *testing.T) {
			found := 0
			for seed := range uint64(3000) {
				c, p := nested(rand.New(rand.NewPCG(seed, 23)), levels, false)
				r := solve(t, c, p)
				if !r.Complete && solvable(c, p) {
					t.Fatalf("seed %d: on the nodes %v with the labels %v\nthe problem %+v\nhas a solution; got %+v", seed, c.free, c.labels, p, r)
				}
				if err := sliced(c, p, r); err != nil {
					t.Fatalf("seed %d: the nodes %v with the labels %v, the problem %+v, the result %+v: %v", seed, c.free, c.labels, p, r, err)
				}
				if r.Complete {
					found++
				}
			}
			if found < 300 {
				t.Errorf("only %d problems had a solution", found)
			}
		})
	}
}

// TestReplacementsFindWhatThereIs: wherever equal members were lost, those that replace them find places in the slices
// of these if and only if there are some.
func TestReplacementsFindWhatThereIs(t *testing.T) {
	for sentence, levels := range layouts {
		t.Run(sentence, func(t *testing.T) {
			solved := 0
			for seed := range uint64(3000) {
				c, p := bereft(t, rand.New(rand.NewPCG(seed, 29)), levels)
				if len(p.Members) == 0 || !solvable(c, p) {
					continue
				}
				solved++
				if r := solve(t, c, p); !r.Complete {
					t.Fatalf("seed %d: on the nodes %v with the labels %v\nthe problem %+v\nhas a solution; got %+v", seed, c.free, c.labels, p, r)
				}
			}
			if solved < 300 {
				t.Errorf("only %d problems had a solution", solved)
			}
		})
	}
}

// bereft returns a cluster in which a gang of 12 has been placed, and some of its members were lost; none if it did not
// fit.
func bereft(t *testing.T, rng *rand.Rand, levels []Level) (*cluster, Problem) {
	c, p := nested(rng, levels, true)
	before := c.copied()
	for node := range before.free {
		before.free[node][0] += rng.IntN(5)
	}
	placed := one(before, equal(12), Gang{Levels: levels, Min: 12})
	for m := range placed.Members {
		placed.Members[m].Rank = m
	}
	var lost []Member
	var on []PlacedMember
	for rank, node := range solve(t, before, placed).Node {
		on = append(on, PlacedMember{Node: node, Rank: rank})
	}
	slices.SortFunc(on, func(a, b PlacedMember) int { return a.Rank - b.Rank })
	on = slices.DeleteFunc(on, func(standing PlacedMember) bool {
		lose := len(lost) < 6 && rng.IntN(2) == 0
		if lose {
			lost = append(lost, Member{Rank: standing.Rank})
		}
		return lose
	})
	again := one(c, lost, Gang{Levels: levels, Min: len(lost), On: on})
	again.Nodes = p.Nodes
	return c, again
}

// sliced checks that placed members are together in their slices.
func sliced(c *cluster, p Problem, r Result) error {
	for i, g := range p.Gangs {
		on := slices.Clone(g.On)
		for _, m := range g.Members {
			node, ok := r.Node[m]
			if !ok {
				continue
			}
			o := &oracle{c: c, p: Problem{Members: p.Members}, at: make([]int, len(p.Members))}
			for at := range o.at {
				o.at[at] = -1
			}
			if g.On = on; !o.slicesAllow(g, m, node) {
				return fmt.Errorf("member %d of gang %d is apart from its slice", m, i)
			}
			on = append(on, PlacedMember{Node: node, Rank: p.Members[m].Rank})
		}
	}
	return nil
}

// TestLayoutKeepsRanksTogether: the edges of the ring of ranks that lead from one domain into
// another are, on average, within 5 percent of the fewest that any placement has.
func TestLayoutKeepsRanksTogether(t *testing.T) {
	for sentence, levels := range layouts {
		t.Run(sentence, func(t *testing.T) {
			var edges, least int
			for seed := range uint64(1500) {
				c, p := nested(rand.New(rand.NewPCG(seed, 29)), levels, true)
				p.Gangs[0].On, p.Gangs[0].Min = nil, len(p.Members)
				best := &ring{oracle: oracle{c: c.copied(), p: p, gang: make([]int, len(p.Members)), at: make([]int, len(p.Members))}, least: 1 << 20}
				for i := range best.at {
					best.at[i] = -1
				}
				best.try(0)
				r := solve(t, c, p)
				if !r.Complete {
					continue
				}
				at := make([]int, len(p.Members))
				for m, node := range r.Node {
					at[m] = node
				}
				edges, least = edges+best.edges(at), least+best.least
			}
			t.Logf("%d edges, %d at best: %.3f", edges, least, float64(edges)/float64(least))
			if float64(edges) > 1.05*float64(least) {
				t.Errorf("%d edges lead from one domain to another, and %d would do", edges, least)
			}
		})
	}
}

// ring finds the placement of all members with the fewest edges, by trying all.
type ring struct {
	oracle
	least int
}

func (r *ring) try(member int) {
	if member == len(r.p.Members) {
		r.least = min(r.least, r.edges(r.at))
		return
	}
	for _, node := range r.p.Nodes {
		if r.c.fits(0, node) && r.domainAllows(member, node) {
			r.at[member] = node
			r.c.change(taking{member, 0, node}, -1)
			if r.edges(r.at[:member+1])-len(r.p.Gangs[0].Levels) < r.least {
				r.try(member + 1)
			}
			r.c.change(taking{member, 0, node}, 1)
			r.at[member] = -1
		}
	}
}

// edges counts, level by level, the neighbours that are in different domains.
func (r *ring) edges(at []int) int {
	n := 0
	for i, node := range at {
		next := at[(i+1)%len(at)]
		for _, level := range r.p.Gangs[0].Levels {
			a, _ := r.c.Label(node, level.Key)
			b, _ := r.c.Label(next, level.Key)
			if a != b {
				n++
			}
		}
	}
	return n
}

// TestHomes: the domain of a slice is that of its first member in any, also if others are apart from it.
func TestHomes(t *testing.T) {
	c := uniform(4, 4, 4).in(rack, "a", "b", "")
	on := []PlacedMember{{Node: 1, Rank: 0}, {Node: 0, Rank: 1}, {Node: 2, Rank: 4}, {Node: 0, Rank: 5}, {Node: 2, Rank: 8}}
	got := Level{rack, 4}.homes(on, c.Label)
	if diff := cmp.Diff(map[int]int{0: 1, 1: 0}, got); diff != "" {
		t.Errorf("homes (-want +got):\n%s", diff)
	}
	p := one(c, []Member{{Rank: 2}}, Gang{Min: 1, Levels: []Level{{Key: rack, Slice: 4}}, On: on})
	if r, err := Solve(t.Context(), c, p); err != nil || r.Node[0] != 1 {
		t.Errorf("a member of the first slice goes to %v, %v; want node 1", r.Node, err)
	}
}

// TestLayout shows what users see of a layout.
func TestLayout(t *testing.T) {
	ranked := func(n int) []Member {
		members := equal(n)
		for i := range members {
			members[i].Rank = i
		}
		return members
	}
	fit := func(n int) []Outcome { return []Outcome{{Fit: n, Unplaced: []int{}}} }
	runTable(t, map[string]tableCase{
		"neighbours in rank share a node, whatever the order in which nodes were taken": {
			cluster: func() *cluster { c := uniform(1, 2, 1); c.score = [][]int{{1, 2, 3}}; return c }(),
			problem: func(c *cluster) Problem { return one(c, ranked(4), Gang{Min: 4}) },
			want:    Result{Node: placed{0: 0, 1: 1, 2: 1, 3: 2}, Complete: true, Gangs: fit(4)},
		},
		"a small gang goes where it leaves the least": {
			cluster: uniform(8, 3, 8).in(rack, "a", "b", "c"),
			problem: func(c *cluster) Problem {
				return one(c, ranked(2), Gang{Min: 2, Levels: []Level{{Key: rack}}, Custom: true})
			},
			want: Result{Node: placed{0: 1, 1: 1}, Complete: true, Gangs: fit(2)},
		},
		"one rack before one block, if it takes all": {
			cluster: uniform(2, 2, 5).in(block, "x", "x", "y").in(rack, "a", "b", "c"),
			problem: func(c *cluster) Problem {
				return one(c, ranked(4), Gang{Min: 4, Levels: []Level{{Key: block}, {Key: rack}}})
			},
			want: Result{Node: placed{0: 2, 1: 2, 2: 2, 3: 2}, Complete: true, Gangs: fit(4)},
		},
		"12 over 10 and 10": {
			cluster: uniform(10, 10).in(rack, "a", "b"),
			problem: func(c *cluster) Problem { return one(c, ranked(12), Gang{Min: 12, Levels: []Level{{Key: rack}}}) },
			want:    Result{Node: placed{0: 0, 1: 0, 2: 0, 3: 0, 4: 0, 5: 0, 6: 0, 7: 0, 8: 0, 9: 0, 10: 1, 11: 1}, Complete: true, Gangs: fit(12)},
		},
		"12 over 10 and 10, evenly": {
			cluster: uniform(10, 10).in(rack, "a", "b"),
			problem: func(c *cluster) Problem {
				return one(c, ranked(12), Gang{Min: 12, Levels: []Level{{Key: rack}}, Even: true})
			},
			want: Result{Node: placed{0: 1, 1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 0, 7: 0, 8: 0, 9: 0, 10: 0, 11: 0}, Complete: true, Gangs: fit(12)},
		},
		"evenly, but for what one lacks": {
			cluster: uniform(10, 10, 2).in(rack, "a", "b", "c"),
			problem: func(c *cluster) Problem {
				return one(c, ranked(21), Gang{Min: 21, Levels: []Level{{Key: rack}}, Even: true})
			},
			want: Result{Node: func() placed {
				p := placed{}
				for m := range 21 {
					p[m] = []int{2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}[m]
				}
				return p
			}(), Complete: true, Gangs: fit(21)},
		},
		"evenly in one domain that takes all": {
			cluster: uniform(10, 10).in(rack, "a", "b"),
			problem: func(c *cluster) Problem {
				return one(c, ranked(3), Gang{Min: 3, Levels: []Level{{Key: rack}}, Even: true})
			},
			want: Result{Node: placed{0: 0, 1: 0, 2: 0}, Complete: true, Gangs: fit(3)},
		},
		"who comes back for a member goes to its slice, and beside its neighbour": {
			cluster: uniform(1, 1, 1, 4).in(rack, "a", "a", "b", "c"),
			problem: func(c *cluster) Problem {
				p := one(c, []Member{{Rank: 2}}, Gang{Min: 1, Levels: []Level{{Key: rack, Slice: 4}}, On: []PlacedMember{{0, 0}, {0, 1}, {1, 3}, {2, 4}}})
				c.score = [][]int{{0, 0, 0, 9}}
				return p
			},
			want: Result{Node: placed{0: 0}, Complete: true, Gangs: fit(1)},
		},
		"of several that come back each is beside its neighbours": {
			cluster: uniform(1, 1, 0, 0).in(rack, "a", "a", "a", "a"),
			problem: func(c *cluster) Problem {
				return one(c, []Member{{Rank: 2}, {Rank: 5}}, Gang{Min: 2, Levels: []Level{{Key: rack}}, On: []PlacedMember{{1, 0}, {1, 1}, {2, 3}, {2, 4}, {0, 6}, {0, 7}}})
			},
			want: Result{Node: placed{0: 1, 1: 0}, Complete: true, Gangs: fit(2)},
		},
		"and nowhere else": {
			cluster: uniform(0, 0, 1, 4).in(rack, "a", "a", "b", "c"),
			problem: func(c *cluster) Problem {
				return one(c, []Member{{Rank: 2}}, Gang{Min: 1, Levels: []Level{{Key: rack, Slice: 4}}, On: []PlacedMember{{0, 0}, {0, 1}, {1, 3}}})
			},
			want: Result{Gangs: []Outcome{{Unplaced: []int{0}}}},
		},
		"a slice that was lost whole leaves their room to lost mates of others": {
			cluster: uniform(0, 5, 0, 8).in(block, "x", "x", "x", "x").in(rack, "a", "b", "c", "d"),
			problem: func(c *cluster) Problem {
				g := Gang{Min: 6, Levels: []Level{{Key: block, Slice: 8}, {Key: rack, Slice: 4}}, On: []PlacedMember{{0, 4}, {0, 5}, {0, 6}, {0, 7}, {1, 8}, {1, 9}, {2, 12}, {2, 13}, {2, 14}, {2, 15}}}
				return one(c, []Member{{Rank: 0}, {Rank: 1}, {Rank: 2}, {Rank: 3}, {Rank: 10}, {Rank: 11}}, g)
			},
			want: Result{Node: placed{0: 3, 1: 3, 2: 3, 3: 3, 4: 1, 5: 1}, Complete: true, Gangs: fit(6)},
		},
		"the launcher, which its workers' racks do not take, goes beside them": {
			cluster: func() *cluster {
				c := uniform(4, 4, 1, 1).in(block, "x", "x", "y", "x").in(rack, "a", "b", "c", "d").classes(1, 1)
				c.refuses = map[[2]int]bool{{1, 0}: true, {1, 1}: true}
				for _, node := range []int{2, 3} {
					c.refuses[[2]int{0, node}] = true
				}
				return c
			}(),
			problem: func(c *cluster) Problem {
				members := append(ranked(6), Member{Class: 1, Rank: 6})
				return one(c, members, Gang{Min: 7, Levels: []Level{{Key: block}, {Key: rack}}})
			},
			want: Result{Node: placed{0: 0, 1: 0, 2: 0, 3: 0, 4: 1, 5: 1, 6: 3}, Complete: true, Gangs: fit(7)},
		},
		"gangs that share a domain": {
			cluster: uniform(3, 4, 2).in(rack, "a", "b", "c"),
			problem: func(c *cluster) Problem {
				return Problem{
					Members: equal(4), Nodes: c.nodes(),
					Gangs: []Gang{{Members: []int{0, 1}, Min: 2, Required: rack, Shared: true}, {Members: []int{2, 3}, Min: 2, Required: rack, Shared: true}},
				}
			},
			want: Result{Node: placed{0: 1, 1: 1, 2: 1, 3: 1}, Complete: true, Gangs: []Outcome{
				{Fit: 2, Domains: []DomainFit{{"b", 2}}, Untried: 2, Unplaced: []int{}}, {Fit: 2, Domains: []DomainFit{{"b", 2}}, Untried: 2, Unplaced: []int{}},
			}},
		},
		"and that of one which runs already": {
			cluster: uniform(2, 4).in(rack, "a", "b"),
			problem: func(c *cluster) Problem {
				return Problem{
					Members: equal(2), Nodes: c.nodes(),
					Gangs: []Gang{{Members: []int{0, 1}, Min: 2, Required: rack, Shared: true}, {Required: rack, Shared: true, On: []PlacedMember{{Node: 1}}}},
				}
			},
			want: Result{Node: placed{0: 1, 1: 1}, Complete: true, Gangs: []Outcome{{Fit: 2, Domains: []DomainFit{{"b", 2}}, Unplaced: []int{}}, {Unplaced: []int{}}}},
		},
	})
}
