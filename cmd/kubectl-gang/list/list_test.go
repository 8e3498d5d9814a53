package list

import (
	"testing"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
)

func TestReason(t *testing.T) {
	for want, g := range map[string]view.Gang{
		"AwaitingPlacement by default-scheduler": {Reason: "AwaitingPlacement", Schedulers: []string{"default-scheduler"}},
		"AwaitingPlacement":                      {Reason: "AwaitingPlacement", Schedulers: []string{"lockstep-scheduler"}},
		"Unschedulable":                          {Reason: "Unschedulable", Schedulers: []string{"default-scheduler"}},
		unknown:                                  {},
	} {
		if got := reason(&g); got != want {
			t.Errorf("%+v reads %s, want %s", g, got, want)
		}
	}
}
