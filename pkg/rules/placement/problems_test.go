package placement

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// shape bounds the random problems of a test.
type shape struct {
	classes   int
	resources int
	gangs     int // at most
	// topology: gangs may require or prefer one.
	topology bool
	// crossing: racks and zones overlap, instead of a rack being in one zone.
	crossing bool
	roles    bool
	// floors: gangs may ask for room beyond their members.
	floors bool
	// sliced: gangs may ask for slices, and to share a domain.
	sliced bool
}

const (
	rack = "rack"
	zone = "zone"
)

func (s shape) random(seed uint64) (*cluster, Problem) {
	return s.from(rand.New(rand.NewPCG(seed, 7)))
}

// from returns a small problem that is neither trivial nor hopeless.
func (s shape) from(rng *rand.Rand) (*cluster, Problem) {
	c := s.cluster(rng)
	p := Problem{Nodes: rng.Perm(len(c.free)), KeepPartial: rng.IntN(2) == 0}
	members := 1 + rng.IntN(7)
	for range members {
		p.Members = append(p.Members, Member{Class: rng.IntN(s.classes)})
	}
	gangs := 1 + rng.IntN(min(s.gangs, members))
	p.Gangs = make([]Gang, gangs)
	for m := range p.Members {
		i := m
		if m >= gangs {
			i = rng.IntN(gangs)
		}
		p.Gangs[i].Members = append(p.Gangs[i].Members, m)
	}
	for i := range p.Gangs {
		s.gang(rng, &p, &p.Gangs[i], len(c.free))
	}
	for _, m := range p.Members {
		c.classOf = append(c.classOf, m.Class)
	}
	if s.floors {
		s.floorsFor(rng, c, &p)
	}
	return c, p
}

func (s shape) cluster(rng *rand.Rand) *cluster {
	c := &cluster{}
	for range s.classes {
		ask := make([]int, s.resources)
		for r := range ask {
			ask[r] = 1 + rng.IntN(4)
		}
		c.ask = append(c.ask, ask)
	}
	// As the contract of World says: from the largest to the smallest.
	slices.SortFunc(c.ask, func(a, b []int) int { return slices.Max(b) - slices.Max(a) })
	nodes := 1 + rng.IntN(5)
	for node := range nodes {
		free := make([]int, s.resources)
		for r := range free {
			free[r] = rng.IntN(9)
		}
		c.free = append(c.free, free)
		labels := map[string]string{}
		if at := rng.IntN(4); at > 0 { // one in four has no rack
			labels[rack] = fmt.Sprint("r", at)
			labels[zone] = fmt.Sprint("z", at/2)
		} else {
			labels[zone] = fmt.Sprint("z", node%2)
		}
		if s.crossing {
			labels[zone] = fmt.Sprint("z", rng.IntN(2))
		}
		c.labels = append(c.labels, labels)
	}
	for class := range s.classes {
		scores := make([]int, nodes)
		for node := range scores {
			scores[node] = rng.IntN(4)
		}
		c.score = append(c.score, scores)
		if rng.IntN(4) == 0 {
			c.refuses = map[[2]int]bool{{class, rng.IntN(nodes)}: true}
		}
	}
	return c
}

func (s shape) gang(rng *rand.Rand, p *Problem, g *Gang, nodes int) {
	g.Min = 1 + rng.IntN(len(g.Members))
	if s.roles && rng.IntN(2) == 0 {
		sum := 0
		for _, m := range g.Members {
			p.Members[m].Role = []string{"leader", "worker", ""}[rng.IntN(3)]
		}
		for _, role := range []string{"leader", "worker"} {
			have := 0
			for _, m := range g.Members {
				if p.Members[m].Role == role {
					have++
				}
			}
			if n := rng.IntN(have + 1); n > 0 && sum+n <= g.Min {
				if g.MinByRole == nil {
					g.MinByRole = map[string]int{}
				}
				g.MinByRole[role] = n
				sum += n
			}
		}
	}
	if !s.topology {
		return
	}
	keys := []string{"", "", rack, rack, zone}
	g.Required = keys[rng.IntN(len(keys))]
	if key := keys[rng.IntN(len(keys))]; key != "" {
		g.Levels = []Level{{Key: key}}
		g.Custom = rng.IntN(3) == 0
	}
	if rng.IntN(4) == 0 {
		g.On = []PlacedMember{{Node: rng.IntN(nodes)}}
	}
	if s.sliced {
		s.slices(rng, p, g)
	}
}

// slices makes a gang ask for slices by rack, and for one domain with other gangs that do.
func (s shape) slices(rng *rand.Rand, p *Problem, g *Gang) {
	for rank, m := range g.Members {
		p.Members[m].Rank = rank
	}
	g.Shared = g.Required == zone
	if g.Shared && &p.Gangs[0] != g {
		g.On = nil // the first decides for all
	}
	g.MinByRole, g.Custom = nil, false
	if len(g.On) > 0 {
		g.On[0].Rank = rng.IntN(7)
	}
	if rng.IntN(2) == 0 {
		g.Levels = []Level{{Key: rack, Slice: 2 + rng.IntN(2)}}
		g.Unordered = rng.IntN(2) == 0
	}
}

// floorsFor makes some gangs ask for room beyond their members, of which some are placed already, and
// some gangs have no member left to place.
func (s shape) floorsFor(rng *rand.Rand, c *cluster, p *Problem) {
	c.floors, c.standing = map[int][]int{}, map[int][]int{}
	for i := range p.Gangs {
		if rng.IntN(3) == 0 {
			continue
		}
		p.Gangs[i].HasExtra = true
		for range s.resources {
			c.floors[i] = append(c.floors[i], rng.IntN(16))
			c.standing[i] = append(c.standing[i], rng.IntN(3))
		}
		if i > 0 && rng.IntN(5) == 0 {
			p.Gangs[i].Min, p.Gangs[i].MinByRole = 0, nil
		}
	}
}
