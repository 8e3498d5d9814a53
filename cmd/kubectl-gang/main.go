// Command kubectl-gang shows the gangs of a cluster, its queues, Reservations, topology and DefragmentationPlans: as
// kubectl gang, where it is in the PATH.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/defrag"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/dump"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/explain"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/list"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/queues"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/reservations"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/topology"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/whatif"
)

// A command ends within seconds, and most of its memory is what it has read: so that is collected rarely, as long as there is not
// too much of it.
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand(genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}).ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func newCommand(streams genericiooptions.IOStreams) *cobra.Command {
	ctrl.SetLogger(klog.Background()) // what goes wrong with a watch
	a := access.New(streams)
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
	cmd.SetIn(streams.In)
	cmd.SetOut(streams.Out)
	cmd.SetErr(streams.ErrOut)
	a.AddFlags(cmd)
	cmd.AddCommand(
		list.New(a), explain.New(a), whatif.New(a), queues.New(a), reservations.New(a), topology.New(a), defrag.New(a), dump.New(a), newVersion(streams),
	)
	return cmd
}

func newVersion(streams genericiooptions.IOStreams) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of kubectl gang",
		Example: "  kubectl gang version",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(streams.Out, version.Get().GitVersion)
			return err
		},
	}
}
