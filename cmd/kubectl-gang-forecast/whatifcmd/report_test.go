package whatifcmd

import "testing"

// TestEvicts: gangs that go whole, those that shrink and pods in no gang are told apart, and budgets that are violated.
func TestEvicts(t *testing.T) {
	r := &Report{Victims: []Victim{
		{Pod: "a-0", Gang: "x/a"}, {Pod: "a-1", Gang: "x/a"}, {Pod: "b-0", Gang: "x/b", Left: 3}, {Pod: "single"},
	}}
	const want = "It would evict 4 pods: gang x/a goes whole, gang x/b shrinks to 3, 1 in no gang"
	if got := r.evicts(); got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	r.Violating = 2
	if got := r.evicts(); got != want+"; 2 of them against a PodDisruptionBudget" {
		t.Errorf("it says %q", got)
	}
}
