// Command kubectl-gang shows the gangs of a cluster, its queues, Reservations, topology and DefragmentationPlans: as
// kubectl gang, where it is in the PATH.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang-forecast/dump"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang-forecast/forecast"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang-forecast/whatif"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/defrag"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/explain"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/list"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/listreservations"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/output"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/queues"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/showtopology"
)

// A command ends within seconds, and most of its memory is what it has read: so garbage is collected rarely, as long as
// there is not too much of it.
const (
	collectAt   = 400     // percent of what is in use
	collectFrom = 2 << 30 // bytes
)

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(collectFrom)
	}
	// Also when the terminal is closed, or the process that reads the output, so that nothing is left in the directory for
	// temporary files.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	a := access.New(output.Clean(genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}))
	err := newCommand(a).ExecuteContext(ctx)
	stop()
	if err != nil && !errors.Is(err, syscall.EPIPE) {
		fmt.Fprintln(a.ErrOut, "error:", err)
		if advice := a.Advice(); advice != "" {
			a.Note("%s", advice)
		}
	}
	if err != nil {
		os.Exit(1)
	}
}

func newCommand(a *access.Access) *cobra.Command {
	ctrl.SetLogger(klog.Background()) // reports what goes wrong with a watch
	cmd := &cobra.Command{
		Use:   "kubectl-gang",
		Short: "Show gangs, and why they wait",
		Long: `kubectl gang shows the gangs of a cluster, and what they wait for: queues, Reservations, topology and
DefragmentationPlans. It reads with the rights of its user, and writes nothing unless you approve a plan.`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl gang"},
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
	}
	cmd.SetIn(a.In)
	cmd.SetOut(a.Out)
	cmd.SetErr(a.ErrOut)
	a.AddFlags(cmd)
	cmd.AddCommand(
		list.New(a), explain.New(a, forecast.Gang), whatif.New(a), queues.New(a), listreservations.New(a), showtopology.New(a),
		defrag.New(a), dump.New(a), newVersion(a.IOStreams),
	)
	return cmd
}

func newVersion(streams genericiooptions.IOStreams) *cobra.Command {
	print := output.NewFlags()
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of kubectl gang",
		Example: `  kubectl gang version

  # From which commit, and by which compiler
  kubectl gang version -o yaml`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			printer, err := print.Printer(streams.Out)
			if err != nil {
				return err
			}
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
		},
	}
	print.AddFlags(cmd)
	return cmd
}
