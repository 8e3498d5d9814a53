package main

import (
	"strings"
	"testing"
)

// TestAsksScheduler: a command line goes to the program with the scheduler if its command needs that, wherever flags
// are, and so do questions for help and completion.
func TestAsksScheduler(t *testing.T) {
	for line, want := range map[string]bool{
		"whatif -f job.yaml --preempt": true, "explain": true, "-n team-a explain job/train -v": true, "--kubeconfig=x dump -f y": true,
		"whatif --help": true, "help explain": true, "__complete explain ": true, "__completeNoDesc whatif --n": true,
		"": false, "--help": false, "help": false, "list -n explain": false, "-n whatif queues": false, "help list": false,
		"version": false, "__complete expl": false, "nothing": false, "__complete": false,
	} {
		if got := asksScheduler(program(), strings.Split(line, " ")); got != want {
			t.Errorf("kubectl gang %s: %t, want %t", line, got, want)
		}
	}
}
