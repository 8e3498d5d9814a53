package placement

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestNewcomersFindWhatThereIs: members without numbers find places in slices that lack some, and begin slices where none lacks any, if
// and only if there are such places, whatever the names of domains are.
func TestNewcomersFindWhatThereIs(t *testing.T) {
	for _, sentence := range []string{
		"slices of 2 by rack", "slices of 3 by rack", "slices of 3 by block", "slices of 2 by rack, in few blocks", "slices of 4 by block, few racks",
		"slices of 4 by block and 2 by rack", "slices of 6 by block, 3 by rack", "slices of 4 by block, of one a rack",
	} {
		t.Run(sentence, func(t *testing.T) {
			found := 0
			for seed := range uint64(2000) {
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

// unnumbered returns a cluster whose racks and blocks have names in any order, with a gang whose last slices may be short and of which
// members were lost, and newcomers without numbers.
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
	var on []Standing
	at := solve(t, before, placed).Node
	for m := range size {
		if node, ok := at[m]; ok && rng.IntN(4) > 0 {
			on = append(on, Standing{Node: node})
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

// takesNewcomers tries all numbers that newcomers may have: those in slices that lack some, the finest first as far as these have room
// in the cluster as it was before, and whole slices inside slices that lack some, but for one.
func takesNewcomers(before, c *cluster, p Problem) bool {
	g := p.Gangs[0]
	var sizes []int
	var keys []string
	for _, level := range g.Levels {
		if level.Slice > 1 {
			sizes, keys = append(sizes, level.Slice), append(keys, level.Key)
		}
	}
	coarse, fine, key := sizes[0], sizes[len(sizes)-1], keys[len(keys)-1]
	taken, homes, ends := map[int]bool{}, map[int]string{}, 0
	for _, standing := range g.On {
		taken[standing.Rank] = true
		homes[standing.Rank/fine], _ = c.Label(standing.Node, key)
		ends = max(ends, (standing.Rank/coarse+1)*coarse)
	}
	var gaps [][]int // by slice
	joined, lacking := 0, 0
	for slice := range ends / fine {
		var gap []int
		room := 0
		for rank := slice * fine; rank < (slice+1)*fine; rank++ {
			if !taken[rank] {
				gap = append(gap, rank)
			}
		}
		for node := range before.free {
			if value, _ := before.Label(node, key); value == homes[slice] {
				room += before.free[node][0]
			}
		}
		gaps, lacking = append(gaps, gap), lacking+len(gap)
		if homes[slice] != "" {
			joined += min(len(gap), room)
		}
	}
	n := len(p.Members)
	joined = min(joined, n)
	var try func(slice, join, short int, ranks []int) bool
	try = func(slice, join, short int, ranks []int) bool {
		if join > joined || short > 1 || len(ranks) > n {
			return false
		}
		if slice < len(gaps) {
			for k := 0; k <= len(gaps[slice]); k++ {
				j, s := 0, 0
				if homes[slice] != "" {
					j = k
				} else if 0 < k && k < fine {
					s = 1
				}
				if try(slice+1, join+j, short+s, append(ranks[:len(ranks):len(ranks)], gaps[slice][:k]...)) {
					return true
				}
			}
			return false
		}
		if join < joined || len(ranks) < min(n, lacking) {
			return false
		}
		q := p
		q.Members = equal(n)
		for m := range n {
			q.Members[m].Rank = ends + m - len(ranks)
			if m < len(ranks) {
				q.Members[m].Rank = ranks[m]
			}
		}
		return solvable(c, q)
	}
	return try(0, 0, 0, nil)
}

// TestGapsAreFilled shows which gaps newcomers fill.
func TestGapsAreFilled(t *testing.T) {
	newcomers := func(c *cluster, members []Member, size int, on ...Standing) Problem {
		return one(c, members, Gang{Min: len(members), Levels: []Level{{rack, size}}, On: on, Unnumbered: true})
	}
	fit := func(n int) []Outcome { return []Outcome{{Fit: n, Unplaced: []int{}}} }
	runTable(t, map[string]tableCase{
		"that of the fullest slice first": {
			cluster: uniform(4, 4, 4).in(rack, "a", "b", "c"),
			problem: func(c *cluster) Problem {
				return newcomers(c, equal(1), 3, Standing{0, 0}, Standing{1, 3}, Standing{1, 4}, Standing{2, 6})
			},
			want: Result{Node: placed{0: 1}, Complete: true, Gangs: fit(1)},
		},
		"of one that takes some of the newcomers as many as it takes": {
			cluster: uniform(2, 1).in(rack, "a", "b"),
			problem: func(c *cluster) Problem {
				return newcomers(c, equal(3), 4, Standing{0, 0}, Standing{1, 4}, Standing{1, 5})
			},
			want: Result{Node: placed{0: 1, 1: 0, 2: 0}, Complete: true, Gangs: fit(3)},
		},
		"by a member of another class where the first finds no room": {
			cluster: func() *cluster {
				c := uniform(1, 1).in(rack, "a", "b").classes(1, 1)
				c.refuses = map[[2]int]bool{{0, 0}: true, {1, 1}: true}
				return c
			}(),
			problem: func(c *cluster) Problem { return newcomers(c, ofClass(0, 1), 2, Standing{0, 0}, Standing{1, 2}) },
			want:    Result{Node: placed{0: 1, 1: 0}, Complete: true, Gangs: fit(2)},
		},
		"before any slice begins": {
			cluster: uniform(0, 4).in(rack, "a", "b"),
			problem: func(c *cluster) Problem { return newcomers(c, equal(2), 2, Standing{0, 0}) },
			want:    Result{Gangs: []Outcome{{Fit: 1, Unplaced: []int{1}}}},
		},
		"and those for which there is none begin a slice": {
			cluster: uniform(1, 4).in(rack, "a", "b"),
			problem: func(c *cluster) Problem { return newcomers(c, equal(3), 2, Standing{0, 0}) },
			want:    Result{Node: placed{0: 0, 1: 1, 2: 1}, Complete: true, Gangs: fit(3)},
		},
	})
}
