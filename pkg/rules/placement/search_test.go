package placement

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// solve solves a problem on a copy of the cluster and audits the result.
func solve(t *testing.T, c *cluster, p Problem) Result {
	t.Helper()
	after := c.copied()
	r, err := Solve(t.Context(), after, p)
	if err != nil {
		t.Fatalf("Solve: %v", err)
	}
	if err := audit(c, after, p, r); err != nil {
		t.Fatalf("on the cluster %+v\nthe problem %+v\nhas the wrong result %+v:\n%v", *c, p, r, err)
	}
	return r
}

// alike are the shapes of problems with equal members: there Solve finds a placement whenever there
// is one.
var alike = map[string]shape{
	"one gang":                                 {classes: 1, resources: 1, gangs: 1},
	"one gang in a topology":                   {classes: 1, resources: 1, gangs: 1, topology: true, crossing: true, roles: true},
	"several gangs with roles":                 {classes: 1, resources: 2, gangs: 3, roles: true},
	"several gangs in racks and zones":         {classes: 1, resources: 2, gangs: 4, topology: true, roles: true},
	"several gangs in racks that cross zones":  {classes: 1, resources: 2, gangs: 4, topology: true, crossing: true},
	"as many gangs as members, in a topology":  {classes: 1, resources: 1, gangs: 7, topology: true},
	"several gangs with roles in one resource": {classes: 1, resources: 1, gangs: 3, topology: true, roles: true},
}

func TestSolveFindsWhatThereIsForMembersThatAreAlike(t *testing.T) {
	for sentence, s := range alike {
		t.Run(sentence, func(t *testing.T) {
			for seed := range uint64(2000) {
				c, p := s.random(seed)
				if r := solve(t, c, p); !r.Complete && solvable(c, p) {
					t.Fatalf("seed %d: on the cluster %+v\nthe problem %+v\nhas a solution; got %+v", seed, *c, p, r)
				}
			}
		})
	}
}

// TestSolveMissesLittle bounds how often Solve, which is greedy if shapes compete, finds no
// placement although there is one. The bounds are about twice what it misses today, per thousand
// problems that have a solution.
func TestSolveMissesLittle(t *testing.T) {
	for sentence, c := range map[string]struct {
		shape
		perMille float64
	}{
		"two classes, one resource":             {shape{classes: 2, resources: 1, gangs: 1}, 1},
		"two classes, two resources":            {shape{classes: 2, resources: 2, gangs: 1}, 3},
		"three classes":                         {shape{classes: 3, resources: 2, gangs: 1}, 5},
		"three classes with roles":              {shape{classes: 3, resources: 2, gangs: 1, roles: true}, 7},
		"three classes in a topology":           {shape{classes: 3, resources: 2, gangs: 1, topology: true}, 8},
		"three classes in several gangs":        {shape{classes: 3, resources: 2, gangs: 3}, 8},
		"two classes, and everything":           {shape{classes: 2, resources: 2, gangs: 3, topology: true, roles: true}, 10},
		"three classes, and everything":         {shape{classes: 3, resources: 2, gangs: 3, topology: true, roles: true}, 10},
		"alike, in slices, crossed":             {shape{classes: 1, resources: 1, gangs: 1, topology: true, crossing: true, sliced: true}, 0},
		"alike, several gangs in slices":        {shape{classes: 1, resources: 1, gangs: 3, topology: true, sliced: true}, 10},
		"two classes in slices":                 {shape{classes: 2, resources: 1, gangs: 1, topology: true, sliced: true}, 10},
		"three classes and gangs in slices":     {shape{classes: 3, resources: 2, gangs: 3, topology: true, crossing: true, sliced: true}, 20},
		"three classes, and everything crossed": {shape{classes: 3, resources: 2, gangs: 3, topology: true, crossing: true, roles: true}, 10},
	} {
		t.Run(sentence, func(t *testing.T) {
			var solved, missed float64
			for seed := range uint64(4000) {
				c, p := c.random(seed)
				switch r := solve(t, c, p); {
				case r.Complete:
					solved++
				case solvable(c, p):
					missed++
				}
			}
			rate := 1000 * missed / (solved + missed)
			t.Logf("missed %.0f of %.0f: %.1f per thousand", missed, solved+missed, rate)
			if rate > c.perMille {
				t.Errorf("missed %.1f per thousand, want at most %.1f", rate, c.perMille)
			}
		})
	}
}

// TestSolveWithFloors: what gangs ask for beyond their members is there, whatever else competes; and if
// only one domain, or one gang, can have it, it is found whenever there is a way.
func TestSolveWithFloors(t *testing.T) {
	for sentence, c := range map[string]struct {
		shape
		exact bool
	}{
		"one gang":                       {shape{classes: 1, resources: 2, gangs: 1, floors: true}, true},
		"one gang in a topology":         {shape{classes: 1, resources: 2, gangs: 1, topology: true, crossing: true, floors: true}, true},
		"several gangs, joint":           {shape{classes: 1, resources: 1, gangs: 3, roles: true, floors: true}, true},
		"several gangs, racks and zones": {shape{classes: 1, resources: 2, gangs: 3, topology: true, floors: true}, false},
		"shapes, and everything":         {shape{classes: 3, resources: 2, gangs: 3, topology: true, crossing: true, roles: true, floors: true}, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			var solved, missed, short float64
			for seed := range uint64(2000) {
				c, p := c.random(seed)
				r := solve(t, c, p)
				for _, outcome := range r.Gangs {
					if !r.Complete && outcome.LacksExtra {
						short++
						break
					}
				}
				switch {
				case r.Complete:
					solved++
				case solvable(c, p):
					missed++
				}
			}
			t.Logf("missed %.0f of %.0f; %.0f were short of a floor", missed, solved+missed, short)
			if solved < 100 || short < 100 || c.exact && missed > 0 || missed > solved/20 {
				t.Errorf("solved %.0f, short of a floor %.0f, missed %.0f", solved, short, missed)
			}
		})
	}
}

// TestSolveKeepsNoOrderAmongEqualMembers: which of several equal members comes first decides which
// are placed, not whether all are.
func TestSolveKeepsNoOrderAmongEqualMembers(t *testing.T) {
	s := shape{classes: 3, resources: 2, gangs: 3, topology: true, roles: true}
	for seed := range uint64(1000) {
		c, p := s.random(seed)
		want := solve(t, c, p).Complete
		rng := rand.New(rand.NewPCG(seed, 11))
		for range 5 {
			if got := solve(t, c, shuffled(rng, p)).Complete; got != want {
				t.Fatalf("seed %d: on the cluster %+v\nthe problem %+v is complete %v, and %v with its members in another order", seed, *c, p, want, got)
			}
		}
	}
}

// shuffled swaps the places of members of one class and role within their gang.
func shuffled(rng *rand.Rand, p Problem) Problem {
	p.Gangs = slices.Clone(p.Gangs)
	for i := range p.Gangs {
		members := slices.Clone(p.Gangs[i].Members)
		rng.Shuffle(len(members), func(a, b int) {
			if p.Members[members[a]] == p.Members[members[b]] {
				members[a], members[b] = members[b], members[a]
			}
		})
		p.Gangs[i].Members = members
	}
	return p
}

// TestSolveIsTheSameInAnyOrderForMembersThatAreAlike: neither the order of
// members and nodes nor the scores decide whether all are placed.
func TestSolveIsTheSameInAnyOrderForMembersThatAreAlike(t *testing.T) {
	for seed := range uint64(1000) {
		s := shape{classes: 1, resources: 2, gangs: 3, topology: true, roles: true}
		c, p := s.random(seed)
		want := solve(t, c, p).Complete
		rng := rand.New(rand.NewPCG(seed, 13))
		for range 5 {
			other, q := c.copied(), p
			other.score = [][]int{rng.Perm(len(c.free))}
			q.Nodes = rng.Perm(len(c.free))
			q.Gangs = slices.Clone(p.Gangs)
			for i := range q.Gangs {
				q.Gangs[i].Members = slices.Clone(q.Gangs[i].Members)
				rng.Shuffle(len(q.Gangs[i].Members), func(a, b int) {
					m := q.Gangs[i].Members
					m[a], m[b] = m[b], m[a]
				})
			}
			rng.Shuffle(len(q.Gangs), func(a, b int) { q.Gangs[a], q.Gangs[b] = q.Gangs[b], q.Gangs[a] })
			if got := solve(t, other, q).Complete; got != want {
				t.Fatalf("seed %d: on the cluster %+v\nthe problem %+v is complete %v, and %v in another order", seed, *c, p, want, got)
			}
		}
	}
}
