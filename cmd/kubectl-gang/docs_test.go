package main

import (
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/explain"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/source"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
	"github.com/lockstep-sh/lockstep/pkg/status/decisions"
	"github.com/lockstep-sh/lockstep/test/helpers/gangdocs"
)

func program() *cobra.Command {
	return newCommand(access.New(genericiooptions.NewTestIOStreamsDiscard()))
}

// TestCommandsOfAgents: the commands for assistants exist, with their flags and as many arguments as they take.
func TestCommandsOfAgents(t *testing.T) {
	if n := gangdocs.Commands(t, program, func(*cobra.Command) bool { return true }); n < 8 {
		t.Errorf("%d commands were found", n)
	}
}

// TestFields: docs list the fields of what is printed as data, with their types.
func TestFields(t *testing.T) {
	gangdocs.Fields(t, map[string]any{
		"**`explain`, `GangExplanation`**": explain.Report{}, "`queue`": explain.Queue{}, "`line`": explain.Line{},
		"`configuration`": source.Origin{}, "`said`": view.Wait{}, "`reservations`": explain.Reserved{}, "`cases`": explain.Case{},
		"`placement`, `search`": decisions.Decision{}, "`fits`": decisions.Fit{}, "`domains`": decisions.Domain{},
		"`bundles`": decisions.Bundle{}, "`pods`": explain.Member{}, "**`list`, `GangList`**": view.Gang{}, "`domain`": view.DomainName{},
		"**`queues`, `QueueList`**": view.Queue{}, "`resources`": view.QueueResource{},
		"**`reservations`, `ReservationList`**": view.Reservation{}, "**`topology`, `Topology`**": view.Topology{},
		"**`defrag`, `DefragmentationPlanList`**": view.Plan{}, "**`defrag NAME`, `PlannedMoveList`**": view.Move{},
	})
}
