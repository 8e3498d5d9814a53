package victim

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// scattered makes so many single pods of which those numbered by a step are on node 0, which the
// preemptor needs empty, and the others on a node that stays full.
func scattered(pods, useful int) (*cluster, []Gang) {
	c := newCluster(1, int64(useful), int64(useful), 1)
	var gangs []Gang
	for i := range pods {
		node := "1"
		if i%(pods/useful) == 0 {
			node = "0"
		}
		gangs = append(gangs, c.gangOf(fmt.Sprintf("g%05d-", i), 1, 0, i, node))
	}
	c.free[1] = -int64(pods)
	return c, gangs
}

// TestTrialsGrowWithTheVictims: those who stay cost few trials.
func TestTrialsGrowWithTheVictims(t *testing.T) {
	for _, useful := range []int{1, 8, 64, 512, 4096} {
		c, gangs := scattered(4096, useful)
		got, ok, err := (Problem{Need: c.need(), Gangs: gangs}).Select(c)
		if err != nil || !ok || len(got.Pods()) != useful {
			t.Fatalf("chose %d victims, %v, %v, want %d", len(got.Pods()), ok, err, useful)
		}
		if most := 30 + useful*(1+2*bits.Len(uint(4096/useful-1))); c.trials > most {
			t.Errorf("%d trials for %d victims among 4096, want %d at most", c.trials, useful, most)
		}
	}
}

// TestTrialsWhereSumsSuffice: where sums tell what is needed, neither the victims nor those who stay cost trials, and
// time that is up costs no victims.
func TestTrialsWhereSumsSuffice(t *testing.T) {
	for _, useful := range []int{1, 8, 64, 512, 4096} {
		c, gangs := scattered(4096, useful)
		p := Problem{Need: c.need(), Gangs: gangs, Expired: func() bool { return c.trials > 0 }}
		got, ok, err := p.Select(c)
		if err != nil || !ok || len(got.Pods()) != useful || c.trials > 3 {
			t.Errorf("chose %d victims in %d trials, %v, %v, want %d in 3", len(got.Pods()), c.trials, ok, err, useful)
		}
	}
}

// TestNoOtherChoiceOnceTimeIsUp: victims that violate a PodDisruptionBudget are found in time that is up, and not
// compared to others.
func TestNoOtherChoiceOnceTimeIsUp(t *testing.T) {
	c := newCluster(1, 1, 1, 1)
	gangs := []Gang{c.gangOf("a", 1, 0, 0, "0?0"), c.gangOf("b", 1, 0, 1, "1")}
	p := Problem{Need: c.need(), Gangs: gangs, Allowed: []int{0}, Expired: func() bool { return c.trials > 0 }}
	got, ok, err := p.Select(c)
	if err != nil || !ok || names(got.Pods()) != "a0" || got.Violating != 1 || !got.CutShort || c.trials > 2 {
		t.Errorf("chose %+v in %d trials, %v, %v", got, c.trials, ok, err)
	}
}

// TestCutShort ends searches after every number of trials: what is found fits all the same.
func TestCutShort(t *testing.T) {
	none, more, whole := 0, 0, 0
	for seed := range uint64(400) {
		for most := range 30 {
			c, gangs := random(rand.New(rand.NewPCG(seed, 1)))
			p := Problem{Need: c.need(), Gangs: gangs, Threshold: threshold, Allowed: guarded(seed, gangs)}
			full, fits, err := p.Select(c)
			must.Succeed(t, err)
			must.Succeed(t, c.Restore(full.Pods()))
			c.trials, p.Expired = 0, func() bool { return c.trials >= most }
			got, ok, err := p.Select(c)
			switch {
			case err != nil:
				t.Fatal(err)
			case len(c.gone) != len(got.Pods()):
				t.Fatalf("seed %d, %d trials: %d are gone in the trial, %d were chosen", seed, most, len(c.gone), len(got.Pods()))
			case ok && (!c.fits() || !fits):
				t.Fatalf("seed %d, %d trials: the preemptor does not fit without %s", seed, most, names(got.Pods()))
			case !got.CutShort && (ok != fits || names(got.Pods()) != names(full.Pods())):
				t.Fatalf("seed %d, %d trials: %s, %v, but with all the time %s, %v", seed, most, names(got.Pods()), ok, names(full.Pods()), fits)
			case fits && !ok:
				none++
			case len(got.Pods()) > len(full.Pods()):
				more++
			}
			if got.CutShort && ok {
				mustKeepGangsWhole(t, seed, c, p)
				whole++
			}
		}
	}
	if none < 100 || more < 100 || whole < 100 {
		t.Errorf("%d searches that found nothing, %d that found more than needed and %d that fitted tell little", none, more, whole)
	}
}

// TestNoTrialOnceTimeIsUp: the first choice is tried without what the sums do not miss even if time is up; one that
// follows what a budget refused is not.
func TestNoTrialOnceTimeIsUp(t *testing.T) {
	for choices, want := range map[int]int{1: 1, 2: 0} {
		c, gangs := scattered(64, 8)
		p := Problem{Need: c.need(), Gangs: gangs, Expired: func() bool { return true }}
		s := newSearch(p, c, p.candidates(nil, nil))
		s.choices = maxChoices - choices
		must.Succeed(t, s.remove(s.units))
		_, err := s.restoreUnneeded(s.units)
		if err != nil || c.trials != want {
			t.Errorf("choice %d: %d trials, %v, want %d", choices, c.trials, err, want)
		}
	}
}

// mustKeepGangsWhole checks that no gang is left below its minimum.
func mustKeepGangsWhole(t *testing.T, seed uint64, c *cluster, p Problem) {
	t.Helper()
	for _, g := range p.Gangs {
		after := g
		after.Pods = slices.DeleteFunc(slices.Clone(g.Pods), func(pod Pod) bool { return c.gone[pod.UID] })
		if n := len(after.Pods); !g.broken() && n < len(g.Pods) && after.broken() && n > 0 {
			t.Errorf("seed %d: %d of gang %s stay, below its minimum of %d", seed, n, g.ID, g.Min)
		}
	}
}
