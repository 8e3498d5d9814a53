package gang

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/podstatus"
)

// TestAllProblemsAreTold: however many there are, and however late a process leads.
func TestAllProblemsAreTold(t *testing.T) {
	s := newStage(t, makeNodes(1, 1))
	tell := newTeller(s.Gang, nil, 10, podstatus.New(nil), nil)
	const bad = 2500
	var e gang.Effects
	for i := range bad {
		pod := plainPod(fmt.Sprintf("p%04d", i), "1")
		e.Problems = append(e.Problems, gang.Report{Gang: gang.Key{Namespace: "default", Name: "train"}, Pod: pod, Problem: gang.Problem{Key: "mode", Value: "no"}})
	}
	tell.note(e)
	tell.note(e) // the same
	tell.problems.forget("p0007")
	told := map[types.UID]int{}
	for range bad {
		list := tell.problems.take()
		if len(list) == 0 {
			break
		}
		if len(list) > problemsAtOnce {
			t.Fatalf("%d problems at once", len(list))
		}
		for _, r := range list {
			told[r.Pod.UID]++
		}
	}
	if len(told) != bad-1 || told["p0007"] != 0 || told["p0000"] != 1 {
		t.Errorf("%d pods are told of, the first %d times, one that is gone %d times; want %d, 1, 0", len(told), told["p0000"], told["p0007"], bad-1)
	}
}
