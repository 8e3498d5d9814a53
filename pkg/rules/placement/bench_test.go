package placement

import (
	"fmt"
	"testing"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// The benchmarks measure the search alone: the world answers at once.

func BenchmarkSolve(b *testing.B) {
	for _, size := range []struct{ members, nodes int }{{8, 500}, {100, 5000}, {1000, 5000}} {
		for name, g := range map[string]Gang{"anywhere": {}, "required": {Required: rack}, "preferred": {Levels: []Level{{Key: rack}}}} {
			b.Run(fmt.Sprintf("%dx%d/%s", size.members, size.nodes, name), func(b *testing.B) {
				c := racks(size.nodes, 250)
				g.Min = size.members
				p := one(c, equal(size.members), g)
				run(b, c, p, true)
			})
		}
	}
}

// BenchmarkSolveManyDomains places a gang that fills 125 of 500 racks.
func BenchmarkSolveManyDomains(b *testing.B) {
	for name, level := range map[string]Level{"few": {Key: rack}, "slices": {Key: rack, Slice: 8}} {
		b.Run(name, func(b *testing.B) {
			c := racks(5000, 10)
			for i := range c.free {
				if c.free[i][0] = 0; i%10 == 0 {
					c.free[i][0] = 8
				}
			}
			members := equal(1000)
			for rank := range members {
				members[rank].Rank = rank
			}
			run(b, c, one(c, members, Gang{Min: 1000, Levels: []Level{level}}), true)
		})
	}
}

// BenchmarkSolveMixed places members of four shapes, which do not all fit.
func BenchmarkSolveMixed(b *testing.B) {
	c := racks(5000, 250).classes(4, 3, 2, 1)
	members := equal(1000)
	for i := range members {
		members[i].Class = i % 4
	}
	for name, g := range map[string]Gang{"anywhere": {Min: 1000}, "required": {Min: 1000, Required: rack}} {
		b.Run(name, func(b *testing.B) { run(b, c, one(c, members, g), name == "anywhere") })
	}
}

// BenchmarkSolveImpossible tries gangs that do not fit into any of 100 domains.
func BenchmarkSolveImpossible(b *testing.B) {
	for _, gangs := range []int{1, 2, 8} {
		b.Run(fmt.Sprint(gangs, "gangs"), func(b *testing.B) {
			c, p := impossible(100, gangs)
			run(b, c, p, false)
		})
	}
}

// racks returns a cluster of nodes that take 8 members each.
func racks(nodes, perRack int) *cluster {
	free, names := make([]int, nodes), make([]string, nodes)
	for i := range free {
		free[i], names[i] = 8, fmt.Sprintf("r%03d", i/perRack)
	}
	return uniform(free...).in(rack, names...)
}

func run(b *testing.B, c *cluster, p Problem, want bool) {
	b.Helper()
	b.ReportAllocs()
	for b.Loop() {
		r, err := Solve(b.Context(), c, p)
		if err != nil || r.Complete != want {
			b.Fatalf("Solve: complete %v, want %v; %v", r.Complete, want, err)
		}
		must.Succeed(b, c.Undo(b.Context(), 0))
	}
	b.ReportMetric(float64(c.takes)/float64(b.N), "takes/op")
}
