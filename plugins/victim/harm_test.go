package victim

import "testing"

func TestHarm(t *testing.T) {
	low, mid := &Gang{ID: "low", Priority: 10}, &Gang{ID: "mid", Priority: 50}
	pods, guarded := []Pod{{UID: "a"}, {UID: "b"}}, []Pod{{UID: "c", Guarded: true}}
	bundle := func(kind Kind, g *Gang, pods []Pod, cost float64) Bundle {
		return Bundle{Kind: kind, Gang: g, Pods: pods, Cost: cost}
	}
	// From the harmless to the harmful.
	ranks := []struct {
		sentence string
		bundles  []Bundle
	}{
		{"nobody goes", nil},
		{"a surplus pod", []Bundle{bundle(Safe, low, pods[:1], 0)}},
		{"two surplus pods", []Bundle{bundle(Safe, low, pods, 0)}},
		{"one that is guarded", []Bundle{bundle(Safe, low, guarded, 0)}},
		{"surplus of a higher priority", []Bundle{bundle(Safe, low, pods, 0), bundle(Safe, mid, pods[:1], 0)}},
		{"a gang", []Bundle{bundle(Safe, mid, pods, 0), bundle(Whole, low, pods[:1], 1)}},
		{"a gang that is worth more", []Bundle{bundle(Whole, low, pods[:1], 2)}},
		{"two gangs", []Bundle{bundle(Whole, low, pods, 2), bundle(Whole, low, pods, 2)}},
		{"a gang that is guarded", []Bundle{bundle(Whole, low, guarded, 1)}},
		{"a gang of a higher priority", []Bundle{bundle(Whole, mid, pods, 1)}},
	}
	for i := range len(ranks) - 1 {
		a, b := Selection{Bundles: ranks[i].bundles}.Harm(), Selection{Bundles: ranks[i+1].bundles}.Harm()
		if a.Compare(b) >= 0 || b.Compare(a) <= 0 || a.CompareKind(b) > 0 {
			t.Errorf("%q is no less harm than %q: %+v, %+v", ranks[i].sentence, ranks[i+1].sentence, a, b)
		}
	}
	if one, two := (Selection{Bundles: ranks[5].bundles}).Harm(), (Selection{Bundles: ranks[8].bundles}).Harm(); one.CompareKind(two) != 0 {
		t.Errorf("gangs of one priority are of different kinds: %+v, %+v", one, two)
	}
}
