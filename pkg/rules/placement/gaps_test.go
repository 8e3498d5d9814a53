package placement

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestNewcomersFindWhatThereIs: members without numbers find places in slices that lack some, and begin slices where
// none lacks any, if and only if there are such places, whatever the names of domains are.
func TestNewcomersFindWhatThereIs(t *testing.T) {
	for _, sentence := range []string{
		"slices of 2 by rack", "slices of 3 by rack", "slices of 3 by block", "slices of 2 by rack, in few blocks", "slices of 4 by block, few racks",
		"slices of 4 by block and 2 by rack", "slices of 6 by block, 3 by rack", "slices of 4 by block, of one a rack",
	} {
		t.Run(sentence, func(t *testing.T) {
			found := 0
			for seed := range uint64(1500) {
				c, p := unnumbered(t, rand.New(rand.NewPCG(seed, 31)), layouts[sentence])
				if len(p.Members) == 0 {
					continue
				}
				before := c.copied()
				r := solve(t, c, p)
				if want := takesNewcomers(before, before, p); r.Complete != want {
					t.Fatalf("seed %d: on the nodes %v with the labels %v\nthe problem %+v\nit says complete %v, and has a solution: %v", seed, before.free, c.labels, p, r.Complete, want)
				}
				if !r.Complete {
					continue
				}
				found++
				taken := before.copied()
				for node := range taken.free {
					taken.free[node][0] = 0
				}
				for _, node := range r.Node {
					taken.free[node][0]++
				}
				if !takesNewcomers(before, taken, p) {
					t.Fatalf("seed %d: on the nodes %v with the labels %v\nthe problem %+v\nmembers are apart from their slices: %v", seed, before.free, c.labels, p, r.Node)
				}
			}
			if found < 200 {
				t.Errorf("only %d problems had a solution", found)
			}
		})
	}
}

// unnumbered returns a cluster whose racks and blocks have names in any order, with a gang whose last slices may be
// short and of which members were lost, and newcomers without numbers.
func unnumbered(t *testing.T, rng *rand.Rand, levels []Level) (*cluster, Problem) {
	c, p := nested(rng, levels, true)
	blocks, racks := rng.Perm(3), rng.Perm(2)
	for _, labels := range c.labels {
		var b, r int
		if _, err := fmt.Sscanf(labels[rack], "b%d-r%d", &b, &r); err != nil {
			t.Fatal(err)
		}
		labels[block], labels[rack] = fmt.Sprint("b", blocks[b]), fmt.Sprintf("b%d-r%d", blocks[b], racks[r])
	}
	before := c.copied()
	for node := range before.free {
		before.free[node][0] += rng.IntN(5)
	}
	size := 2 + rng.IntN(11)
	placed := one(before, equal(size), Gang{Levels: levels, Min: size})
	for m := range placed.Members {
		placed.Members[m].Rank = m
	}
	var on []PlacedMember
	at := solve(t, before, placed).Node
	for m := range size {
		if node, ok := at[m]; ok && rng.IntN(4) > 0 {
			on = append(on, PlacedMember{Node: node})
		}
	}
	if len(on) == 0 {
		return c, Problem{}
	}
	Number(on, levels, c.Label)
	newcomers := 1 + rng.IntN(4)
	again := one(c, equal(newcomers), Gang{Levels: levels, Min: newcomers, On: on, Unnumbered: true})
	again.Nodes = p.Nodes
	return c, again
}

// takesNewcomers tries all numbers that newcomers may have: those in slices that lack some, the finest first as far as
// these have room in the cluster as it was before, and whole slices inside slices that lack some, but for one.
func takesNewcomers(before, c *cluster, p Problem) bool {
	n := &numbers{c: c, p: p}
	n.look(before)
	return n.try(0, 0, 0, nil)
}

// numbers are those that newcomers may have.
type numbers struct {
	c *cluster
	p Problem
	// fine is the size of the finest slices; homes are the domains of those that have members, gaps the free numbers of
	// these, and of others inside slices that have members; ends is the first number after these.
	fine  int
	homes map[int]string
	gaps  [][]int
	ends  int
	// joined is how many newcomers find room in the finest slices that have members, lacking how many gaps there are.
	joined, lacking int
}

func (n *numbers) look(before *cluster) {
	g, coarse, key := n.p.Gangs[0], 0, ""
	for _, level := range g.Levels {
		if level.Slice > 1 {
			coarse, n.fine, key = max(coarse, level.Slice), level.Slice, level.Key
		}
	}
	taken := map[int]bool{}
	n.homes = map[int]string{}
	for _, standing := range g.On {
		taken[standing.Rank] = true
		n.homes[standing.Rank/n.fine], _ = before.Label(standing.Node, key)
		n.ends = max(n.ends, (standing.Rank/coarse+1)*coarse)
	}
	for slice := range n.ends / n.fine {
		var gap []int
		for rank := slice * n.fine; rank < (slice+1)*n.fine; rank++ {
			if !taken[rank] {
				gap = append(gap, rank)
			}
		}
		n.gaps = append(n.gaps, gap)
		n.lacking += len(gap)
		room := 0
		for node, free := range before.free {
			if value, _ := before.Label(node, key); value == n.homes[slice] {
				room += free[0]
			}
		}
		n.joined += min(len(gap), room)
	}
	n.joined = min(n.joined, len(n.p.Members))
}

// try goes through the slices from one on; join newcomers have joined others in the finest ones before it, and short
// slices have begun.
func (n *numbers) try(slice, join, short int, ranks []int) bool {
	newcomers := len(n.p.Members)
	if join > n.joined || short > 1 || len(ranks) > newcomers {
		return false
	}
	if slice == len(n.gaps) {
		if join < n.joined || len(ranks) < min(newcomers, n.lacking) {
			return false
		}
		p := n.p
		p.Members = equal(newcomers)
		for m := range p.Members {
			p.Members[m].Rank = n.ends + m - len(ranks)
			if m < len(ranks) {
				p.Members[m].Rank = ranks[m]
			}
		}
		return solvable(n.c, p)
	}
	for k := 0; k <= len(n.gaps[slice]); k++ {
		join, short := join, short
		if n.homes[slice] != "" {
			join += k
		} else {
			short += btoi(0 < k && k < n.fine)
		}
		if n.try(slice+1, join, short, slices.Concat(ranks, n.gaps[slice][:k])) {
			return true
		}
	}
	return false
}

// TestGapsAreFilled shows which gaps newcomers fill.
func TestGapsAreFilled(t *testing.T) {
	newcomers := func(c *cluster, members []Member, size int, on ...PlacedMember) Problem {
		return one(c, members, Gang{Min: len(members), Levels: []Level{{rack, size}}, On: on, Unnumbered: true})
	}
	fit := func(n int) []Outcome { return []Outcome{{Fit: n, Unplaced: []int{}}} }
	runTable(t, map[string]tableCase{
		"that of the fullest slice first": {
			cluster: uniform(4, 4, 4).in(rack, "a", "b", "c"),
			problem: func(c *cluster) Problem {
				return newcomers(c, equal(1), 3, PlacedMember{0, 0}, PlacedMember{1, 3}, PlacedMember{1, 4}, PlacedMember{2, 6})
			},
			want: Result{Node: placed{0: 1}, Complete: true, Gangs: fit(1)},
		},
		"of one that takes some of the newcomers as many as it takes": {
			cluster: uniform(2, 1).in(rack, "a", "b"),
			problem: func(c *cluster) Problem {
				return newcomers(c, equal(3), 4, PlacedMember{0, 0}, PlacedMember{1, 4}, PlacedMember{1, 5})
			},
			want: Result{Node: placed{0: 1, 1: 0, 2: 0}, Complete: true, Gangs: fit(3)},
		},
		"by a member of another class where the first finds no room": {
			cluster: func() *cluster {
				c := uniform(1, 1).in(rack, "a", "b").classes(1, 1)
				c.refuses = map[[2]int]bool{{0, 0}: true, {1, 1}: true}
				return c
			}(),
			problem: func(c *cluster) Problem {
				return newcomers(c, ofClass(0, 1), 2, PlacedMember{0, 0}, PlacedMember{1, 2})
			},
			want: Result{Node: placed{0: 1, 1: 0}, Complete: true, Gangs: fit(2)},
		},
		"before any slice begins": {
			cluster: uniform(0, 4).in(rack, "a", "b"),
			problem: func(c *cluster) Problem { return newcomers(c, equal(2), 2, PlacedMember{0, 0}) },
			want:    Result{Gangs: []Outcome{{Fit: 1, Unplaced: []int{1}}}},
		},
		"and those for which there is none begin a slice": {
			cluster: uniform(1, 4).in(rack, "a", "b"),
			problem: func(c *cluster) Problem { return newcomers(c, equal(3), 2, PlacedMember{0, 0}) },
			want:    Result{Node: placed{0: 0, 1: 1, 2: 1}, Complete: true, Gangs: fit(3)},
		},
	})
}

// TestNumbersOfNewcomers: they fill slices that lack some, the finest first and of these the fullest, and begin others
// then.
func TestNumbersOfNewcomers(t *testing.T) {
	one, two := []Level{{Key: "rack", Slice: 4}}, []Level{{Key: "block", Slice: 8}, {Key: "rack", Slice: 4}}
	for sentence, c := range map[string]struct {
		levels []Level
		taken  []int
		n      int
		gaps   []int // of the first of them
		want   []int
	}{
		"no slices":                      {nil, []int{0, 2}, 3, []int{1}, []int{1, 3, 4}},
		"all are whole":                  {one, []int{0, 1, 2, 3}, 2, []int{4}, []int{4, 5}},
		"the fullest slice first":        {one, []int{0, 4, 5, 6}, 3, []int{7, 1}, []int{7, 1, 2}},
		"one that is short, then others": {one, []int{0, 1, 2}, 3, []int{3}, []int{3, 4, 5}},
		"a slice before its block":       {two, []int{0, 1, 2, 3, 8, 9}, 4, []int{10, 4, 12}, []int{10, 11, 4, 5}},
		"a block that lacks a slice":     {two, []int{0, 1, 2, 3}, 5, []int{4}, []int{4, 5, 6, 7, 8}},
		"a block that lacks no slice":    {two, []int{0, 4, 5, 6, 7}, 1, []int{1}, []int{1}},
	} {
		t.Run(sentence, func(t *testing.T) {
			var on []PlacedMember
			for _, rank := range c.taken {
				on = append(on, PlacedMember{Rank: rank})
			}
			if got := Gaps(on, c.levels); !slices.Equal(got, c.gaps) {
				t.Errorf("gaps %v, want %v", got, c.gaps)
			}
			if got := Numbers(on, c.levels, c.n); !slices.Equal(got, c.want) {
				t.Errorf("numbers %v, want %v", got, c.want)
			}
		})
	}
}
