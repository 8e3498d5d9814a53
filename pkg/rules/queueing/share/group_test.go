package share

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestReclaimForSeveralQueues: a job asks for 2 in each of the queues c1 and c2. Each of them, and each queue above
// them, answers for its own part.
func TestReclaimForSeveralQueues(t *testing.T) {
	contested := map[v1.ResourceName]bool{gpu: true}
	at := func(deserved, running int64, path ...string) Balance {
		return Balance{Path: path, Deserved: gpus(deserved), Running: gpus(running), Contested: contested}
	}
	type take struct {
		queue string
		ok    bool
	}
	for sentence, c := range map[string]struct {
		standings map[string]Balance
		nothing   bool
		takes     []take
	}{
		"both are below their shares": {
			standings: map[string]Balance{"c1": at(3, 0, "c1"), "c2": at(3, 0, "c2"), "d": at(3, 6, "d")},
			takes:     []take{{"d", true}, {"d", true}, {"d", true}, {"d", false}, {"c1", false}},
		},
		"one has its share": {
			standings: map[string]Balance{"c1": at(3, 0, "c1"), "c2": at(3, 2, "c2"), "d": at(3, 6, "d")},
			nothing:   true,
		},
		"a parent that has its share gets its part from below, and the other its own from outside": {
			standings: map[string]Balance{
				"p1": at(4, 0, "p1"), "c1": at(4, 0, "c1", "p1"),
				"p2": at(4, 4, "p2"), "c2": at(2, 0, "c2", "p2"), "s2": at(2, 4, "s2", "p2"), "d": at(4, 8, "d"),
			},
			takes: []take{{"d", true}, {"d", true}, {"d", false}, {"s2", true}, {"s2", true}, {"s2", false}},
		},
		"the share of a parent of both is divided between them": {
			standings: map[string]Balance{
				"p": at(4, 2, "p"), "c1": at(2, 0, "c1", "p"), "c2": at(2, 0, "c2", "p"), "s": at(0, 2, "s", "p"), "d": at(4, 8, "d"),
			},
			takes: []take{{"d", true}, {"d", true}, {"d", false}, {"s", true}, {"s", true}},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			r := NewReclaim(map[string]Vector{"c1": gpus(2), "c2": gpus(2)}, c.standings, nil)
			if r == nil || c.nothing {
				if (r == nil) != c.nothing {
					t.Errorf("reclaims nothing: %t, want %t", r == nil, c.nothing)
				}
				return
			}
			budget := r.Budget(c.standings, false)
			for i, take := range c.takes {
				if got := r.Permits(take.queue) && budget.Take(take.queue, gpus(1), false); got != take.ok {
					t.Errorf("victim %d, of %s: granted %t, want %t", i, take.queue, got, take.ok)
				}
			}
		})
	}
}
