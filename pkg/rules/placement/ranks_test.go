package placement

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestNumber: members without numbers are numbered in their order so that they are in whole slices, and newcomers get
// the lowest numbers left.
func TestNumber(t *testing.T) {
	c := uniform(0, 0, 0, 0, 0).in(block, "x", "x", "x", "y", "").in(rack, "a", "a", "b", "c", "d")
	for sentence, tc := range map[string]struct {
		on     []int // nodes
		levels []Level
		want   []int
		free   []int // for three newcomers
	}{
		"nobody stands":                       {levels: []Level{{rack, 2}}, free: []int{0, 1, 2}},
		"levels without slices part nobody":   {on: []int{3, 0, 2}, levels: []Level{{block, 0}, {rack, 0}}, want: []int{0, 1, 2}, free: []int{3, 4, 5}},
		"a slice with a gap is filled first":  {on: []int{3, 0, 1, 0}, levels: []Level{{rack, 2}}, want: []int{0, 2, 3, 4}, free: []int{1, 5, 6}},
		"slices in slices":                    {on: []int{3, 2, 0}, levels: []Level{{block, 4}, {rack, 2}}, want: []int{0, 4, 6}, free: []int{1, 2, 3}},
		"a slice of a block before another":   {on: []int{0, 3, 2, 0}, levels: []Level{{block, 4}, {rack, 2}}, want: []int{0, 4, 2, 1}, free: []int{3, 5, 6}},
		"outside all blocks is a domain, too": {on: []int{4, 0, 4}, levels: []Level{{block, 4}, {rack, 2}}, want: []int{0, 4, 1}, free: []int{2, 3, 5}},
	} {
		t.Run(sentence, func(t *testing.T) {
			on, want := make([]PlacedMember, len(tc.on)), make([]PlacedMember, len(tc.on))
			for i, node := range tc.on {
				on[i].Node, want[i] = node, PlacedMember{node, tc.want[i]}
			}
			Number(on, tc.levels, c.Label)
			if diff := cmp.Diff(want, on, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("standing (-want +got):\n%s", diff)
			}
			if got := Free(on, 3); !slices.Equal(got, tc.free) {
				t.Errorf("free are %v, want %v", got, tc.free)
			}
		})
	}
}

// TestNumbersAreTheLowest: each member has the lowest number that it can have, by trying all.
func TestNumbersAreTheLowest(t *testing.T) {
	for sentence, levels := range layouts {
		t.Run(sentence, func(t *testing.T) {
			for seed := range uint64(300) {
				rng := rand.New(rand.NewPCG(seed, 37))
				c, _ := nested(rng, levels, false)
				on := make([]PlacedMember, rng.IntN(20))
				for i := range on {
					on[i].Node = rng.IntN(len(c.labels))
				}
				want := slices.Clone(on)
				for i := range want {
					for want[i].Rank = 0; !isFree(c, levels, want[:i], want[i]); want[i].Rank++ {
					}
				}
				Number(on, levels, c.Label)
				if diff := cmp.Diff(want, on, cmpopts.EquateEmpty()); diff != "" {
					t.Fatalf("seed %d, labels %v (-want +got):\n%s", seed, c.labels, diff)
				}
			}
		})
	}
}

// isFree reports whether a member may have its number: no other member has it, and all members of each of its slices
// are in the same domain.
func isFree(c *cluster, levels []Level, others []PlacedMember, one PlacedMember) bool {
	apart := false
	for _, other := range others {
		path, with := "", ""
		for _, level := range Sliced(levels) {
			a, _ := c.Label(one.Node, level.Key)
			b, _ := c.Label(other.Node, level.Key)
			path, with = path+"/"+a, with+"/"+b
			apart = apart || path != with && one.Rank/level.Slice == other.Rank/level.Slice
		}
		apart = apart || one.Rank == other.Rank
	}
	return !apart
}

// TestNewcomersReplaceWhoWasLost: a gang without numbers was placed in whole slices, and lost a member here and there,
// at most one in each domain. The newcomers have to go where these were, whatever the names of domains are.
func TestNewcomersReplaceWhoWasLost(t *testing.T) {
	for sentence, levels := range layouts {
		last := len(Sliced(levels)) - 1
		if last < 0 || Sliced(levels)[last].Slice < 2 {
			continue
		}
		finest := Sliced(levels)[last]
		t.Run(sentence, func(t *testing.T) {
			found := 0
			for seed := range uint64(1000) {
				rng := rand.New(rand.NewPCG(seed, 31))
				c, placed := named(t, rng, levels, 4+rng.IntN(9))
				r := solve(t, c, placed)
				if !r.Complete {
					continue
				}
				home := func(node int) string { value, _ := c.Label(node, finest.Key); return value }
				var on []PlacedMember
				lost, stay := map[string]bool{}, map[string]int{} // by domain
				for m := range placed.Members {
					node := r.Node[m]
					if in := home(node); !lost[in] && rng.IntN(4) == 0 {
						lost[in] = true
						continue
					}
					stay[home(node)]++
					on = append(on, PlacedMember{Node: node})
				}
				if len(lost) == 0 || len(on) == 0 {
					continue
				}
				found++
				Number(on, levels, c.Label)
				bonds := (&Gang{Levels: levels, On: on}).Bonds(c.Label)
				for _, rank := range Free(on, len(lost)) {
					switch bond := bonds(rank)[last]; {
					case bond.Home >= 0 && lost[bond.Value]:
						delete(lost, bond.Value)
					case bond.Home >= 0:
						t.Fatalf("seed %d: a newcomer has to go to %s, which lost no other member; placed are %v", seed, bond.Value, on)
					}
				}
				for in := range lost {
					if stay[in]%finest.Slice != 0 {
						t.Fatalf("seed %d: nobody comes to %s, which lost one; placed are %v", seed, in, on)
					}
				}
			}
			if found < 200 {
				t.Errorf("only %d gangs were placed", found)
			}
		})
	}
}

// named returns a cluster whose racks and blocks have names in any order, and a gang to place there.
func named(t *testing.T, rng *rand.Rand, levels []Level, size int) (*cluster, Problem) {
	c, p := nested(rng, levels, true)
	blocks, racks := rng.Perm(3), rng.Perm(2)
	for node, labels := range c.labels {
		var b, r int
		if _, err := fmt.Sscanf(labels[rack], "b%d-r%d", &b, &r); err != nil {
			t.Fatal(err)
		}
		labels[block], labels[rack] = fmt.Sprint("b", blocks[b]), fmt.Sprintf("b%d-r%d", blocks[b], racks[r])
		c.free[node][0] += 2
	}
	placed := one(c, equal(size), Gang{Levels: levels, Min: size})
	for m := range placed.Members {
		placed.Members[m].Rank = m
	}
	placed.Nodes = p.Nodes
	return c, placed
}
