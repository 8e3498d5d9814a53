package ledger

import (
	"testing"

	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
)

// TestPlace: what is held for a pod decides where it is to go.
func TestPlace(t *testing.T) {
	one := func(node string) hold.Hold { return hold.Hold{For: "p", Holder: hold.Holder{Group: "g"}, Node: node} }
	recalled := func(node string) hold.Hold {
		h := one(node)
		h.Recalled = true
		return h
	}
	for sentence, c := range map[string]struct {
		holds     func(*Holds)
		want      Place
		held      bool
		nominated bool
	}{
		"nothing is held": {holds: func(*Holds) {}},
		"a nomination":    {holds: func(h *Holds) { h.Nominate(one("n")) }, want: Place{Node: "n"}, held: true, nominated: true},
		"one of a status": {holds: func(h *Holds) { h.Nominate(recalled("n")) }, want: Place{Node: "n"}, held: true, nominated: true},
		"a plan":          {holds: func(h *Holds) { put(h, one("n")) }, want: Place{Node: "n", Planned: true}, held: true},
		"a plan in place of a nomination": {
			holds: func(h *Holds) { h.Nominate(one("m")); put(h, one("n")); h.Nominate(recalled("m")) }, want: Place{Node: "n", Planned: true}, held: true,
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			h := New()
			c.holds(h)
			if got, held := h.Place("p"); got != c.want || held != c.held || got.Nominated() != c.nominated {
				t.Errorf("place %+v, %t, want %+v, %t", got, held, c.want, c.held)
			}
		})
	}
	if got := PlaceInStatus(st.MakePod().NominatedNodeName("n").Obj()); !got.Nominated() || got.Node != "n" {
		t.Errorf("a status says %+v", got)
	}
}
