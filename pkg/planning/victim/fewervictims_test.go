package victim

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// TestFewest holds selections against all sets of up to three gangs or pods: none of fewer victims, of which none
// counts more, would do. The order of the input makes no difference.
func TestFewest(t *testing.T) {
	some, replaced := 0, 0
	for seed := range uint64(20000) {
		c, gangs := random(rand.New(rand.NewPCG(seed, 5)))
		p := Problem{Need: c.need(), Gangs: gangs, Threshold: threshold}
		s := newSearch(p, c, p.candidates(nil, nil))
		if len(s.units) > 9 {
			continue
		}
		greedy, found, err := s.find()
		must.Succeed(t, err)
		if err := s.restore(greedy); err != nil || !found {
			continue
		}
		got, ok, err := p.Select(c)
		if err != nil || !ok {
			t.Fatalf("seed %d: %v, %v", seed, ok, err)
		}
		must.Succeed(t, c.Restore(got.Pods()))
		chosen := slices.DeleteFunc(slices.Clone(s.units), func(u unit) bool {
			return !slices.ContainsFunc(got.Pods(), func(pod Pod) bool { return pod.UID == u.pods[0].UID })
		})
		for n := 1; n <= 3; n++ {
			combine(s.soloSets(), n, func(set []unit) bool {
				if fits, err := s.fitsWithout(set); err != nil || fits && p.Order.improves(set, chosen) {
					t.Errorf("seed %d: %s go, and %s would do (%v)", seed, text(chosen), text(set), err)
				}
				return true
			})
		}
		must.Succeed(t, c.Remove(got.Pods()))
		mustHold(t, seed, c, p, got)
		some++
		if countPods(chosen) < countPods(greedy) {
			replaced++
		}
	}
	if some < 1000 || replaced < 50 {
		t.Errorf("%d selections, %d of them by fewer than the first choice, tell little", some, replaced)
	}
}

// TestFewInTime: no set of few victims is looked at once the time is up, however many there are.
func TestFewInTime(t *testing.T) {
	c, gangs := scattered(200, 100)
	looks, most := 0, 10
	p := Problem{Need: c.need(), Gangs: gangs, Expired: func() bool { return looks >= most }}
	s := newSearch(p, c, p.candidates(nil, nil))
	list, err := s.findFew(func([]unit) bool {
		looks++
		return false
	})
	if list != nil || err != nil || looks != most || !s.cutShort {
		t.Errorf("%v, %v, after a look at %d sets (cut short: %v), want none after %d", list, err, looks, s.cutShort, most)
	}
}

// TestSpares holds the comparison of victims against one that compares pod by pod.
func TestSpares(t *testing.T) {
	order, seen := Preempt(), map[bool]int{}
	for seed := range uint64(2000) {
		c, gangs := random(rand.New(rand.NewPCG(seed, 6)))
		p := Problem{Need: c.need(), Gangs: gangs, Order: order, Threshold: threshold}
		s, at := newSearch(p, c, p.candidates(nil, nil)), rand.New(rand.NewPCG(seed, 7))
		some := func() []unit {
			return slices.DeleteFunc(slices.Clone(s.units), func(unit) bool { return at.IntN(2) == 0 })
		}
		few, many := some(), some()
		byPod := func(list []unit) (all []*Bundle) {
			for _, u := range list {
				all = append(all, slices.Repeat([]*Bundle{u.bundle}, len(u.pods))...)
			}
			slices.SortFunc(all, func(a, b *Bundle) int { return order.compareWeight(*b, *a) })
			return all
		}
		a, b := byPod(few), byPod(many)
		want := len(a) < len(b) && countBundles(few) <= countBundles(many)
		for i := 0; want && i < len(a); i++ {
			want = order.compareWeight(*a[i], *b[i]) <= 0
		}
		if got := order.improves(few, many); got != want {
			t.Errorf("seed %d: %s instead of %s: %v, want %v", seed, text(few), text(many), got, want)
		}
		seen[want]++
	}
	if seen[true] < 100 || seen[false] < 100 {
		t.Errorf("%v tell little", seen)
	}
}

func text(list []unit) string {
	var all []Pod
	for _, u := range list {
		all = append(all, u.pods...)
	}
	return names(all)
}

// TestFewInAnyOrder: the same gangs in every order lose the same pods.
func TestFewInAnyOrder(t *testing.T) {
	for seed := range uint64(100) {
		c, gangs := random(rand.New(rand.NewPCG(seed, 5)))
		first := ""
		permute(gangs, func(gangs []Gang) {
			got, _, err := Problem{Need: c.need(), Gangs: gangs, Threshold: threshold}.Select(c)
			must.Succeed(t, err)
			must.Succeed(t, c.Restore(got.Pods()))
			if victims := names(got.Pods()); first == "" {
				first = victims
			} else if victims != first {
				t.Fatalf("seed %d: %q, and in another order %q", seed, first, victims)
			}
		})
	}
}

// permute calls a function with every order of gangs.
func permute(gangs []Gang, do func([]Gang)) {
	var rest func(n int)
	rest = func(n int) {
		if n == len(gangs) {
			do(slices.Clone(gangs))
			return
		}
		for i := n; i < len(gangs); i++ {
			gangs[n], gangs[i] = gangs[i], gangs[n]
			rest(n + 1)
			gangs[n], gangs[i] = gangs[i], gangs[n]
		}
	}
	rest(0)
}
