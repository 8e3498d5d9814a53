package victim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// random makes a small cluster full of gangs.
func random(r *rand.Rand) (*cluster, []Gang) {
	var capacities []int64
	for range 1 + r.IntN(6) {
		n := int64(1 + r.IntN(8))
		if len(capacities) > 0 && r.IntN(4) == 0 {
			n = -n
		}
		capacities = append(capacities, n)
	}
	c := newCluster(int64(1+r.IntN(6)), int64(1+r.IntN(3)), capacities...)
	room := slices.Clone(c.free)
	var gangs []Gang
	for i := range 1 + r.IntN(5) {
		var words []string
		for range 1 + r.IntN(6) {
			node, size := r.IntN(len(capacities)), int64(1+r.IntN(2))
			if room[node] < size {
				continue
			}
			room[node] -= size
			word := fmt.Sprintf("%d:%d", node, size)
			switch r.IntN(12) {
			case 0:
				word = fmt.Sprint(node) + "!"
			case 1, 2:
				word += "@x"
			}
			words = append(words, word)
		}
		if len(words) == 0 {
			continue
		}
		g := c.gangOf(string(rune('a'+i)), 1+r.IntN(6), int32(r.IntN(3)), r.IntN(10), strings.Join(words, " "))
		if r.IntN(3) == 0 {
			g.MinByRole = map[string]int{"x": 1}
		}
		gangs = append(gangs, g)
	}
	return c, gangs
}

// TestSelectionsHold holds selections on small random clusters against what can be
// said of any right one.
func TestSelectionsHold(t *testing.T) {
	some, none := 0, 0
	for seed := range uint64(20000) {
		r := rand.New(rand.NewPCG(seed, 1))
		c, gangs := random(r)
		p := Problem{Need: c.need(), Gangs: gangs, Threshold: threshold}
		before := slices.Clone(c.free)
		got, ok, err := p.Select(c)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if !ok {
			none++
			copy(c.free, before)
			clear(c.gone)
			mustBeHopeless(t, seed, c, p)
			continue
		}
		some++
		mustHold(t, seed, c, p, got)
	}
	if some < 1000 || none < 1000 {
		t.Errorf("%d selections and %d refusals tell little", some, none)
	}
}

func mustBeHopeless(t *testing.T, seed uint64, c *cluster, p Problem) {
	t.Helper()
	for _, g := range p.Gangs {
		for _, b := range Split(p.Need, &g) {
			if err := c.Remove(b.Pods); err != nil {
				t.Fatal(err)
			}
		}
	}
	if c.fits() {
		t.Errorf("seed %d: nobody was chosen, and the preemptor fits when all go", seed)
	}
}

func mustHold(t *testing.T, seed uint64, c *cluster, p Problem, got Selection) {
	t.Helper()
	if !c.fits() {
		t.Errorf("seed %d: the preemptor does not fit without %s", seed, names(got.Pods()))
	}
	if len(c.gone) != len(got.Pods()) {
		t.Errorf("seed %d: %d are gone in the trial, %d were chosen", seed, len(c.gone), len(got.Pods()))
	}
	whole, worst := map[string]bool{}, math.MinInt
	for _, b := range got.Bundles {
		if b.Kind == Whole {
			whole[b.Gang.ID] = true
			worst = max(worst, int(b.Gang.Priority))
		}
	}
	for _, g := range p.Gangs {
		left := slices.DeleteFunc(slices.Clone(g.Pods), func(pod Pod) bool { return c.gone[pod.UID] })
		after := g
		after.Pods = left
		if !g.broken() && len(left) < len(g.Pods) && after.broken() && len(left) > 0 {
			t.Errorf("seed %d: %d of gang %s stay, below its minimum of %d", seed, len(left), g.ID, g.Min)
		}
		if whole[g.ID] && len(left) > 0 {
			t.Errorf("seed %d: gang %s went whole, and %d stay", seed, g.ID, len(left))
		}
	}
	for _, pod := range got.Pods() {
		if pod.Protected {
			t.Errorf("seed %d: %s is protected", seed, pod.UID)
		}
	}
	for _, b := range got.Bundles { // minimality
		parts := [][]Pod{b.Pods}
		if b.Kind == Safe {
			parts = nil
			for i := range b.Pods {
				if !whole[b.Gang.ID] {
					parts = append(parts, b.Pods[i:i+1])
				}
			}
		}
		for _, pods := range parts {
			if err := c.Restore(pods); err != nil {
				t.Fatal(err)
			}
			if c.fits() {
				t.Errorf("seed %d: %s could stay", seed, names(pods))
			}
			if err := c.Remove(pods); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The first keys: no gang ends where surplus, or gangs of lower priority, do.
	if worst == math.MinInt {
		return
	}
	if err := c.Restore(got.Pods()); err != nil {
		t.Fatal(err)
	}
	for _, g := range p.Gangs {
		for _, b := range Split(p.Need, &g) {
			if b.Kind == Safe || int(g.Priority) < worst {
				if err := c.Remove(b.Pods); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if c.fits() {
		t.Errorf("seed %d: a gang of priority %d ends, and less would have done", seed, worst)
	}
}

// TestOrderOfInputDoesNotMatter: the same gangs in another order are the same problem.
func TestOrderOfInputDoesNotMatter(t *testing.T) {
	for seed := range uint64(2000) {
		var first string
		for turn := range 3 {
			c, gangs := random(rand.New(rand.NewPCG(seed, 1)))
			r := rand.New(rand.NewPCG(seed, uint64(turn)))
			r.Shuffle(len(gangs), func(i, j int) { gangs[i], gangs[j] = gangs[j], gangs[i] })
			for i := range gangs {
				r.Shuffle(len(gangs[i].Pods), func(a, b int) { gangs[i].Pods[a], gangs[i].Pods[b] = gangs[i].Pods[b], gangs[i].Pods[a] })
			}
			got, _, err := Problem{Need: c.need(), Gangs: gangs, Threshold: threshold}.Select(c)
			if err != nil {
				t.Fatal(err)
			}
			switch victims := names(got.Pods()); {
			case turn == 0:
				first = victims
			case victims != first:
				t.Fatalf("seed %d: %q, and in another order %q", seed, first, victims)
			}
		}
	}
}

// TestFewTrials: the number of trials grows with the victims, not with the cluster.
func TestFewTrials(t *testing.T) {
	c := newCluster(4, 1, slices.Repeat([]int64{1}, 9)...)
	var gangs []Gang
	for i := range 5000 {
		gangs = append(gangs, c.gangOf(fmt.Sprintf("g%04d-", i), 1, 0, i, fmt.Sprint(i%9)))
	}
	for i := range c.free {
		c.free[i] = 0
	}
	if _, ok, err := (Problem{Need: c.need(), Gangs: gangs}).Select(c); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if c.trials > 20 {
		t.Errorf("%d trials for 4 victims among 5000", c.trials)
	}
}
