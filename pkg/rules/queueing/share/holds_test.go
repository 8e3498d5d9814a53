package share

import "testing"

// TestTakesHolds: places that are held count as what a queue and its ancestors have.
func TestTakesHolds(t *testing.T) {
	for sentence, c := range map[string]struct {
		runs, holds, parentRuns, parentHolds int64
		kept, want                           bool
	}{
		"more runs than it deserves":                  {runs: 5, holds: 1, parentRuns: 9, parentHolds: 1, want: true},
		"it has more with what it holds":              {runs: 3, holds: 2, parentRuns: 8, parentHolds: 2, want: true},
		"it has no more than it deserves":             {runs: 2, holds: 2, parentRuns: 9, parentHolds: 2},
		"its parent has no more than it deserves":     {runs: 3, holds: 2, parentRuns: 6, parentHolds: 2},
		"only another queue of its parent holds much": {runs: 4, holds: 0, parentRuns: 8, parentHolds: 4},
		"others may not reclaim what it has":          {runs: 5, holds: 1, parentRuns: 9, parentHolds: 1, kept: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			r := NewReclaim(map[string]Vector{"b": gpus(1)}, map[string]Balance{
				"b":    {Path: []string{"b"}, Running: gpus(0), Deserved: gpus(4)},
				"a":    {Path: []string{"a", "team"}, Running: gpus(c.runs), Deserved: gpus(4), NotReclaimable: c.kept},
				"team": {Path: []string{"team"}, Running: gpus(c.parentRuns), Deserved: gpus(8)},
			}, map[string]Vector{"a": gpus(c.holds), "team": gpus(c.parentHolds)})
			if got := r.TakesHolds("a"); got != c.want {
				t.Errorf("it gives back what it holds: %t, want %t", got, c.want)
			}
		})
	}
}
