package queueing

import (
	"slices"
	"testing"
)

// TestWholeInItsTurn: a gang that loses a member in its turn leaves the turn to others, also if it is the member that
// speaks for it: for a pod that is gone, or in another gang, it is not known whether its gang is whole. One that is
// whole without that member keeps its turn, and so does one for which places are held.
func TestWholeInItsTurn(t *testing.T) {
	for sentence, c := range map[string]struct {
		pods   []string // the first of them speaks for it
		least  int      // how many of them it needs once it has its turn
		leaves []string // one after the other; empty for none
		moves  bool     // they are put into another gang; otherwise they are gone
		held   bool
		want   []Phase // after each that leaves
	}{
		"a member is gone":                 {[]string{"one", "other"}, 2, []string{"other"}, false, false, []Phase{Outside}},
		"the one that speaks for it is":    {[]string{"one", "other"}, 2, []string{"one"}, false, false, []Phase{Outside}},
		"the one that speaks for it moves": {[]string{"one", "other"}, 2, []string{"one"}, true, false, []Phase{Outside}},
		"others speak for it":              {[]string{"one", "two", "three"}, 2, []string{"one", "two"}, false, false, []Phase{Admitted, Outside}},
		"it needs more":                    {[]string{"one"}, 2, []string{""}, false, false, []Phase{Outside}},
		"it needs more, and holds a place": {[]string{"one"}, 2, []string{""}, false, true, []Phase{Admitted}},
	} {
		left, least := map[string]bool{}, 0
		at := ready
		at.IsWaiting = func(pod string) bool { return c.moves || !left[pod] }
		at.IsComplete = func(pod string) bool { // as Dispatcher.whole says
			return left[pod] || !slices.Contains(c.pods, pod) || len(c.pods)-len(left) >= least
		}
		b := opened(Limits{Window: 10}, 10, Queue{Name: "a", Capability: gpus(10)})
		j := of("a", 1, gpus(6))
		j.Pod, j.Pods, j.Together = c.pods[0], c.pods, true
		u := Usage{Queue: "a", Job: j.Name, Amount: gpus(6 / int64(len(c.pods)))}
		for _, pod := range c.pods {
			b.Count(pod, u)
		}
		b.Come(j, at)
		second := comes(b, "a", 2, 8, at)
		if b.Phase(j.Name) != Admitted || b.Phase(second) != Waiting {
			t.Fatalf("%s: it is %s, the second is %s", sentence, names[b.Phase(j.Name)], names[b.Phase(second)])
		}
		if least, u.Held = c.least, c.held; c.held {
			b.Count(j.Pod, u)
		}
		for i, pod := range c.leaves {
			switch left[pod] = true; {
			case pod == "":
				clear(left)
			case c.moves:
				b.Count(pod, Usage{Queue: "a", Job: "alone", Amount: u.Amount})
			default:
				b.goneNow(pod, at)
			}
			b.tickNow(at)
			if got := b.Phase(j.Name); got != c.want[i] {
				t.Errorf("%s: it is %s, want %s", sentence, names[got], names[c.want[i]])
			}
			if admitted := b.Phase(second) == Admitted; admitted != (c.want[i] == Outside) {
				t.Errorf("%s: it is the turn of the second: %t", sentence, admitted)
			}
		}
	}
}
