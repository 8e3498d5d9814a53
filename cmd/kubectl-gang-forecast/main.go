// Command kubectl-gang-forecast is the part of kubectl gang that has the scheduler in it: explain, whatif and dump.
// kubectl-gang runs it for these.
package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang-forecast/dump"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang-forecast/forecast"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang-forecast/whatifcmd"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/command"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/explain"
)

func main() {
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	os.Exit(command.Run(streams, func(ctx context.Context, a *access.Access) error {
		return newCommand(a).ExecuteContext(ctx)
	}))
}

func newCommand(a *access.Access) *cobra.Command {
	// cobra gives commands these flags, too: the scheduler has put its --version there.
	pflag.CommandLine = pflag.NewFlagSet("", pflag.ContinueOnError)
	cmd := command.New(a)
	cmd.AddCommand(explain.New(a, forecast.Gang), whatifcmd.New(a), dump.New(a))
	return cmd
}
