package victim

import "testing"

func TestHarm(t *testing.T) {
	low, mid := &Gang{ID: "low", Priority: 10}, &Gang{ID: "mid", Priority: 50}
	pods := []Pod{{UID: "a"}, {UID: "b"}}
	bundle := func(kind Kind, g *Gang, pods []Pod, cost float64) Bundle {
		return Bundle{Kind: kind, Gang: g, Pods: pods, Cost: cost}
	}
	// From the harmless to the harmful.
	ranks := []struct {
		sentence  string
		bundles   []Bundle
		violating int
	}{
		{"nobody goes", nil, 0},
		{"a surplus pod", []Bundle{bundle(Safe, low, pods[:1], 0)}, 0},
		{"two surplus pods", []Bundle{bundle(Safe, low, pods, 0)}, 0},
		{"one that violates a budget", []Bundle{bundle(Safe, low, pods[:1], 0)}, 1},
		{"surplus of a higher priority", []Bundle{bundle(Safe, low, pods, 0), bundle(Safe, mid, pods[:1], 0)}, 0},
		{"a gang", []Bundle{bundle(Safe, mid, pods, 0), bundle(Whole, low, pods[:1], 1)}, 0},
		{"a gang that is worth more", []Bundle{bundle(Whole, low, pods[:1], 2)}, 0},
		{"two gangs", []Bundle{bundle(Whole, low, pods, 2), bundle(Whole, low, pods, 2)}, 0},
		{"a gang that violates a budget", []Bundle{bundle(Whole, low, pods[:1], 1)}, 1},
		{"a gang of a higher priority", []Bundle{bundle(Whole, mid, pods, 1)}, 0},
	}
	harm := func(i int) Harm { return Selection{Bundles: ranks[i].bundles, Violating: ranks[i].violating}.Harm() }
	for i := range len(ranks) - 1 {
		a, b := harm(i), harm(i+1)
		if a.Compare(b) >= 0 || b.Compare(a) <= 0 || a.CompareKind(b) > 0 {
			t.Errorf("%q is no less harm than %q: %+v, %+v", ranks[i].sentence, ranks[i+1].sentence, a, b)
		}
	}
	if one, two := harm(5), harm(8); one.CompareKind(two) != 0 {
		t.Errorf("gangs of one priority are of different kinds: %+v, %+v", one, two)
	}
}
