package main

import (
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang-forecast/whatifcmd"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
	"github.com/lockstep-sh/lockstep/test/helpers/gangdocs"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// TestDocs: of the commands for assistants, and the fields of what is printed as data, those that kubectl-gang does not
// know.
func TestDocs(t *testing.T) {
	program := func() *cobra.Command { return newCommand(access.New(genericiooptions.NewTestIOStreamsDiscard())) }
	if n := gangdocs.Commands(t, program, func(cmd *cobra.Command) bool { return cmd.Name() == "whatif" }); n == 0 {
		t.Error("no command was found")
	}
	gangdocs.Fields(t, map[string]any{"**`whatif`, `WhatIf`**": whatifcmd.Report{}, "`members`": whatifcmd.Member{},
		"`victims`, `evictedForOthers`": whatifcmd.Victim{}})
}

// TestNoFlagsOfTheScheduler: commands have none of the flags that the scheduler registers for its own command line.
func TestNoFlagsOfTheScheduler(t *testing.T) {
	explain, _, err := newCommand(access.New(genericiooptions.NewTestIOStreamsDiscard())).Find([]string{"explain"})
	must.Succeed(t, err)
	if explain.InheritedFlags().Lookup("version") != nil {
		t.Error("explain has a flag --version, which it does not know")
	}
}
