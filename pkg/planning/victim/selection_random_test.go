package victim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
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

// guarded puts pods under PodDisruptionBudgets, and returns what these allow.
func guarded(seed uint64, gangs []Gang) []int {
	r := rand.New(rand.NewPCG(seed, 2))
	if r.IntN(2) == 0 {
		return nil
	}
	allowed := []int{r.IntN(3), r.IntN(3)}
	for i := range gangs {
		for j := range gangs[i].Pods {
			for budget := range allowed {
				if r.IntN(3) == 0 {
					gangs[i].Pods[j].Guards[budget] = true
				}
			}
		}
	}
	return allowed
}

// violations counts the pods that go beyond what budgets allow, one after the other.
func violations(allowed []int, pods []Pod) int {
	left, n := slices.Clone(allowed), 0
	for _, pod := range pods {
		violates := false
		for budget := range pod.Guards {
			left[budget]--
			violates = violates || left[budget] < 0
		}
		if violates {
			n++
		}
	}
	return n
}

// TestSelectionsHold holds selections on small random clusters against what can be said of any
// right one.
func TestSelectionsHold(t *testing.T) {
	some, none := 0, 0
	for seed := range uint64(20000) {
		r := rand.New(rand.NewPCG(seed, 1))
		c, gangs := random(r)
		p := Problem{Need: c.need(), Gangs: gangs, Threshold: threshold, Allowed: guarded(seed, gangs)}
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
			must.Succeed(t, c.Remove(b.Pods))
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
	if n := violations(p.Allowed, got.Pods()); n != got.Violating {
		t.Errorf("seed %d: %d victims violate a budget, %d are told", seed, n, got.Violating)
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
			must.Succeed(t, c.Restore(pods))
			if c.fits() {
				t.Errorf("seed %d: %s could stay", seed, names(pods))
			}
			must.Succeed(t, c.Remove(pods))
		}
	}
	// The first keys: no gang ends where surplus, or gangs of lower priority, do.
	if worst == math.MinInt {
		return
	}
	must.Succeed(t, c.Restore(got.Pods()))
	for _, g := range p.Gangs {
		for _, b := range Split(p.Need, &g) {
			if b.Kind == Safe || int(g.Priority) < worst {
				must.Succeed(t, c.Remove(b.Pods))
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
			allowed := guarded(seed, gangs)
			r := rand.New(rand.NewPCG(seed, uint64(turn)))
			r.Shuffle(len(gangs), func(i, j int) { gangs[i], gangs[j] = gangs[j], gangs[i] })
			for i := range gangs {
				r.Shuffle(len(gangs[i].Pods), func(a, b int) { gangs[i].Pods[a], gangs[i].Pods[b] = gangs[i].Pods[b], gangs[i].Pods[a] })
			}
			got, _, err := Problem{Need: c.need(), Gangs: gangs, Threshold: threshold, Allowed: allowed}.Select(c)
			must.Succeed(t, err)
			switch victims := names(got.Pods()); {
			case turn == 0:
				first = victims
			case victims != first:
				t.Fatalf("seed %d: %q, and in another order %q", seed, first, victims)
			}
		}
	}
}

// TestLeastViolations holds how many victims violate a budget against all there is to choose
// from, where nothing else distinguishes victims: pods of one GPU that their gangs can do
// without, for members of one GPU.
func TestLeastViolations(t *testing.T) {
	some, most := 0, 0
	for seed := range uint64(20000) {
		r := rand.New(rand.NewPCG(seed, 3))
		need, pods := 1+r.IntN(5), 0
		c := newCluster(int64(need), 1, 100)
		allowed := []int{r.IntN(3), r.IntN(3)}
		var gangs []Gang
		var surplus, budgets []int // by gang
		for i := range 1 + r.IntN(4) {
			// A gang is healthy, or broken.
			min, n := 1+r.IntN(4), 1+r.IntN(4)
			budget, word := r.IntN(3)-1, "0"
			if budget >= 0 {
				word = fmt.Sprint("0?", budget)
			}
			g := c.gangOf(string(rune('a'+i)), min, 0, r.IntN(10), strings.Repeat(word+" ", n))
			gangs, budgets, surplus = append(gangs, g), append(budgets, budget), append(surplus, n)
			if n >= min {
				surplus[i] = n - min
			}
			pods += surplus[i]
		}
		c.free[0] = 0
		if pods < need {
			continue // gangs go whole
		}
		least := leastViolations(need, surplus, budgets, allowed)
		got, ok, err := Problem{Need: c.need(), Gangs: gangs, Threshold: threshold, Allowed: allowed}.Select(c)
		if !ok || err != nil || len(got.Pods()) != need {
			t.Fatalf("seed %d: selected %s, %v, %v, want %d pods", seed, names(got.Pods()), ok, err, need)
		}
		if got.Violating != least {
			t.Errorf("seed %d: %d of %s violate a budget, %d would do", seed, got.Violating, names(got.Pods()), least)
		}
		if least > 0 {
			some++
		}
		most = max(most, least)
	}
	if some < 1000 || most < 4 {
		t.Errorf("%d selections in which a budget is violated, at most by %d victims, tell little", some, most)
	}
}

// leastViolations tries all ways to take so many pods of gangs that have so much surplus, each
// guarded by one budget; -1 is none.
func leastViolations(need int, surplus, budgets, allowed []int) int {
	if len(surplus) == 0 {
		if need > 0 {
			return math.MaxInt
		}
		n := 0
		for _, left := range allowed {
			n += max(0, -left)
		}
		return n
	}
	least := math.MaxInt
	for n := range min(need, surplus[0]) + 1 {
		left := slices.Clone(allowed)
		if budgets[0] >= 0 {
			left[budgets[0]] -= n
		}
		least = min(least, leastViolations(need-n, surplus[1:], budgets[1:], left))
	}
	return least
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
