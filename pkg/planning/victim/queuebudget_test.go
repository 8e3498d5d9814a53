package victim

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// purse is a budget of so many GPUs of each queue.
type purse map[string]int64

func gpusOf(pods []Pod) (sum int64) {
	for _, pod := range pods {
		sum += pod.Request[gpu]
	}
	return sum
}

func (p purse) Take(gang *Gang, pods []Pod) bool {
	if gpusOf(pods) > p[gang.Queue] {
		return false
	}
	p[gang.Queue] -= gpusOf(pods)
	return true
}

func (p purse) Return(gang *Gang, pods []Pod) { p[gang.Queue] += gpusOf(pods) }

func (p purse) clone() purse {
	c := purse{}
	for queue, n := range p {
		c[queue] = n
	}
	return c
}

// TestBudgetIsSpentWhereItHelps: what is of no help to the preemptor uses nothing up.
func TestBudgetIsSpentWhereItHelps(t *testing.T) {
	for sentence, c := range map[string]struct {
		cluster *cluster
		// full is whether node 1 stays full whatever goes.
		full bool
		// gangs are the words of gangs by queue; those of a queue are ever older.
		gangs map[string][]string
		left  purse
		want  string
	}{
		"younger pods on a full node leave the budget to the one that helps": {
			newCluster(1, 2, 2, 2), true, map[string][]string{"a": {"1", "1", "0:2"}}, purse{"a": 2}, "a20",
		},
		"one that does on its own goes, not younger ones in two queues": {
			newCluster(1, 2, 4, 2), true, map[string][]string{"a": {"1", "0", "0:2"}, "b": {"0"}}, purse{"a": 2, "b": 1}, "a20",
		},
		"what one queue cannot give another does": {
			newCluster(2, 2, 2, 2, 2), false, map[string][]string{"a": {"0:2", "1:2"}, "b": {"2:2"}}, purse{"a": 2, "b": 2}, "a00 b00",
		},
		"nothing goes where no queue can give enough": {
			newCluster(1, 2, 2, 2), false, map[string][]string{"a": {"0", "0"}, "b": {"1:2"}}, purse{"a": 1, "b": 1}, "",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			var gangs []Gang
			for _, queue := range []string{"a", "b"} {
				for i, words := range c.gangs[queue] {
					g := c.cluster.gangOf(fmt.Sprint(queue, i), 1, 0, i, words)
					g.Queue = queue
					gangs = append(gangs, g)
				}
			}
			if c.full {
				c.cluster.free[1] = -9
			}
			p := Problem{Need: c.cluster.need(), Gangs: gangs, Budget: func() Budget { return c.left.clone() }}
			got, ok, err := p.Select(c.cluster)
			if err != nil || names(got.Pods()) != c.want || ok != (c.want != "") || ok == got.OverBudget {
				t.Errorf("chose %q, %v, %v, over the budget: %v; want %q", names(got.Pods()), ok, err, got.OverBudget, c.want)
			}
		})
	}
}

// TestBudgetOfAGangThatHoldsNodes: two whole nodes are needed. Pods of lower priority, of which none frees a node,
// leave the budget to the gang that holds two.
func TestBudgetOfAGangThatHoldsNodes(t *testing.T) {
	c := newCluster(2, 8, slices.Repeat([]int64{8}, 10)...)
	var gangs []Gang
	for i := range 32 {
		gangs = append(gangs, c.gangOf(fmt.Sprintf("low%02d-", i), 1, 10, i, fmt.Sprint(2+i%8)))
	}
	gangs = append(gangs, c.gangOf("high", 16, 1000, 0, "0 0 0 0 0 0 0 0 1 1 1 1 1 1 1 1"))
	for node := range 8 {
		c.free[2+node] = 0 // others have the rest
	}
	got, ok, err := Problem{Need: c.need(), Gangs: gangs, Budget: func() Budget { return purse{"": 16} }}.Select(c)
	if err != nil || !ok || len(got.Bundles) != 1 || got.Bundles[0].Gang.ID != "high" {
		t.Errorf("chose %q, %v, %v", names(got.Pods()), ok, err)
	}
	if c.trials > 40 {
		t.Errorf("%d trials", c.trials)
	}
}

// queued puts gangs in queues, and returns what these may lose.
func queued(r *rand.Rand, gangs []Gang) purse {
	left := purse{}
	for i := range gangs {
		gangs[i].Queue = string(rune('a' + r.IntN(3)))
	}
	for _, queue := range []string{"a", "b", "c"} {
		left[queue] = int64(r.IntN(6))
	}
	return left
}

// TestBudgetOracle: if some choice within the budget lets the preemptor fit, one is found.
func TestBudgetOracle(t *testing.T) {
	some, over, refused := 0, 0, 0
	for seed := range uint64(10000) {
		r := rand.New(rand.NewPCG(seed, 4))
		c, gangs := random(r)
		left := queued(r, gangs)
		p := Problem{Need: c.need(), Gangs: gangs, Threshold: threshold}
		units := newSearch(p, c, p.candidates(nil, nil)).units
		if len(units) > 9 {
			continue
		}
		free := slices.Clone(c.free)
		p.Budget = func() Budget { return left.clone() }
		got, ok, err := p.Select(c)
		must.Succeed(t, err)
		if ok {
			some++
			mustKeepGangsWhole(t, seed, c, p)
			spent := left.clone()
			for _, b := range got.Bundles {
				if spent[b.Gang.Queue] -= gpusOf(b.Pods); spent[b.Gang.Queue] < 0 {
					t.Errorf("seed %d: queue %s loses %d more than it may", seed, b.Gang.Queue, -spent[b.Gang.Queue])
				}
			}
			mustHold(t, seed, c, Problem{}, got)
			continue
		}
		if !slices.Equal(free, c.free) {
			t.Errorf("seed %d: nothing was chosen, and the trial is not as it was", seed)
		}
		best, any := brute(c, units, left)
		if best != nil {
			t.Errorf("seed %d: none was found, and %s would do", seed, names(best))
		}
		if any != got.OverBudget {
			t.Errorf("seed %d: over the budget: %v, want %v", seed, got.OverBudget, any)
		}
		refused++
		if got.OverBudget {
			over++
		}
	}
	t.Logf("%d found, %d refused, %d of them over the budget", some, refused, over)
	if some < 500 || over < 300 {
		t.Errorf("%d selections and %d that go over the budget tell little", some, over)
	}
}

// brute tries all sets of units within a budget, and returns the pods of the first that lets the preemptor fit.
// over: some set would, of units that the budget grants one by one.
func brute(c *cluster, units []unit, left purse) (fits []Pod, over bool) {
	for set := range 1 << len(units) {
		spent, alone := left.clone(), true
		var pods []Pod
		valid := true
		for _, u := range units {
			if set>>u.at&1 == 0 {
				continue
			}
			for _, other := range units { // surplus goes with its gang
				valid = valid && (u.bundle.Kind == Safe || other.bundle.Gang.ID != u.bundle.Gang.ID || set>>other.at&1 == 1)
			}
			all := u.pods
			if u.bundle.Kind == Whole {
				all = u.bundle.Gang.Pods
			}
			alone = alone && gpusOf(all) <= left[u.bundle.Gang.Queue]
			spent[u.bundle.Gang.Queue] -= gpusOf(u.pods)
			pods = append(pods, u.pods...)
		}
		if !valid || !alone {
			continue
		}
		within := true
		for _, n := range spent {
			within = within && n >= 0
		}
		_ = c.Remove(pods)
		ok := c.fits()
		_ = c.Restore(pods)
		if ok && within {
			return pods, false
		}
		over = over || ok
	}
	return nil, over
}

// TestWorkOfRefusedVictims: what the budget refuses costs work in the order of the number of candidates, not of its
// square.
func TestWorkOfRefusedVictims(t *testing.T) {
	work := func(pods int) uint64 {
		c := newCluster(int64(pods*4/5), 1, int64(pods))
		var gangs []Gang
		for i := range pods {
			gangs = append(gangs, c.gangOf(fmt.Sprintf("g%05d-", i), 1, 0, i, "0"))
		}
		b := &allowance{pods*4/5 - 1}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, ok, err := Problem{Need: c.need(), Gangs: gangs, Budget: func() Budget { return b }}.Select(c)
		runtime.ReadMemStats(&after)
		if ok || err != nil || !got.OverBudget || len(c.gone) > 0 || b.left != pods*4/5-1 {
			t.Fatalf("%v, %v, over budget: %v; %d are gone, %d are left", ok, err, got.OverBudget, len(c.gone), b.left)
		}
		return after.TotalAlloc - before.TotalAlloc
	}
	if few, many := work(500), work(4000); many > 16*few {
		t.Errorf("%d bytes for 500 candidates, %d for 4000: want 16 times as many at most", few, many)
	}
}
