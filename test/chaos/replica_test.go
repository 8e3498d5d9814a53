package main

import "testing"

// TestLeaseLost: a process that ends because it leads no more has not ended by itself, whichever
// service it is.
func TestLeaseLost(t *testing.T) {
	for text, want := range map[string]bool{
		`E1122 05:09:44.688716 5503 server.go:337] "Leaderelection lost"`:                                                           true,
		`E1122 05:09:44.688716 5503 main.go:1] "Problem running manager" err="leader election lost"`:                                true,
		`E1122 05:25:08.909842 27636 command.go:83] "The lease is lost: ending" err="lease kube-system/lockstep-scheduler ran out"`: true,
		`E1122 05:25:08.909842 27636 command.go:83] "Failed" err="connection refused"`:                                              false,
		`I1122 05:25:08.909842 27636 leaderelection.go:258] "Attempting to acquire leader lease..."`:                                false,
	} {
		if leaseLost.MatchString(text) != want {
			t.Errorf("%s: want %t", text, want)
		}
	}
}
