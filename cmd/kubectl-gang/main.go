// Command kubectl-gang shows the gangs of a cluster, its queues, Reservations, topology and DefragmentationPlans: as
// kubectl gang, where it is in the PATH. What the scheduler would do is told by kubectl-gang-forecast.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/component-base/version"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/command"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/defragplans"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/explain"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/list"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/listreservations"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/output"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/queues"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/showtopology"
)

func main() {
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	os.Exit(command.Run(streams, func(ctx context.Context, a *access.Access) error {
		return execute(ctx, newCommand(a), streams)
	}))
}

func newCommand(a *access.Access) *cobra.Command {
	cmd := command.New(a)
	cmd.AddCommand(
		list.New(a), explain.New(a, noForecast), queues.New(a), listreservations.New(a), showtopology.New(a),
		defragplans.New(a),
		newVersion(a.IOStreams),
	)
	cmd.AddCommand(forecastOnly()...)
	return cmd
}

func newVersion(streams genericiooptions.IOStreams) *cobra.Command {
	return output.Command(&cobra.Command{
		Use:   "version",
		Short: "Print the version of kubectl gang",
		Example: `  kubectl gang version

  # From which commit, and by which compiler
  kubectl gang version -o yaml`,
		Args: cobra.NoArgs,
	}, streams.Out, func(_ context.Context, printer *output.Printer, _ []string) error {
		is := version.Get()
		if printer.IsTable() && !printer.IsWide() {
			_, err := fmt.Fprintln(streams.Out, is.GitVersion) // for scripts
			return err
		}
		return output.Print(printer, "Version", output.Columns[apimachineryversion.Info]{
			{Name: "Version", Of: func(v apimachineryversion.Info) any { return v.GitVersion }},
			{Name: "Commit", Of: func(v apimachineryversion.Info) any { return v.GitCommit }},
			{Name: "Go", Of: func(v apimachineryversion.Info) any { return v.GoVersion }},
			{Name: "Platform", Of: func(v apimachineryversion.Info) any { return v.Platform }},
		}, []apimachineryversion.Info{is})
	})
}
