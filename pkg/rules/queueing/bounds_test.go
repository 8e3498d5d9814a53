package queueing

import (
	"slices"
	"testing"
)

// TestWithin: pods are within a ceiling one after the other. What is held for them is theirs, and what others have is
// not.
func TestWithin(t *testing.T) {
	for sentence, c := range map[string]struct {
		usages map[string]Usage
		want   []string
	}{
		"as many as there is room for": {nil, []string{"p1", "p2", "p3", "p4"}},
		"beside what others use":       {map[string]Usage{"other": {Runs: true}}, []string{"p1", "p2", "p3"}},
		"or hold":                      {map[string]Usage{"other": {Held: true}}, []string{"p1", "p2", "p3"}},
		"some are held already":        {map[string]Usage{"p1": {Held: true}, "p2": {Held: true}}, []string{"p1", "p2", "p3", "p4"}},
	} {
		b := opened(Limits{}, 0, Queue{Name: "q", Weight: 1, Capability: gpus(4)})
		pods := []string{"p1", "p2", "p3", "p4", "p5"}
		for _, pod := range append(pods, "other") {
			u, said := c.usages[pod]
			if u.Queue, u.Amount = "q", gpus(1); said || pod != "other" {
				b.Count(pod, u)
			}
		}
		if got := b.Within(pods); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", sentence, got, c.want)
		}
	}
}
