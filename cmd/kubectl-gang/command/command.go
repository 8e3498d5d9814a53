// Package command is how the programs of kubectl gang begin and end.
package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/output"
)

// A command ends within seconds, and most of its memory is what it has read: so garbage is collected rarely, as long as
// there is not too much of it.
const (
	collectAt   = 400     // percent of what is in use
	collectFrom = 2 << 30 // bytes
)

// What the commands do that only kubectl-gang-forecast has, and that both programs list.
const (
	WhatIf = "Tell what the scheduler would do with pods that are not created"
	Dump   = "Save what the scheduler reads of the cluster, for explain and whatif elsewhere"
)

// Run runs a program, and returns its exit code: that of another program which has run in its place and failed.
func Run(streams genericiooptions.IOStreams, run func(ctx context.Context, a *access.Access) error) int {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(collectFrom)
	}
	// Also when the terminal is closed, so that nothing is left in the directory for temporary files. A write to a
	// broken pipe or connection fails, and does not end the program.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	signal.Ignore(syscall.SIGPIPE)
	a := access.New(output.Clean(streams))
	err := run(ctx, a)
	stop()
	if other := (*exec.ExitError)(nil); errors.As(err, &other) && other.Exited() {
		return other.ExitCode() // it has said why
	}
	if err != nil && !errors.Is(err, syscall.EPIPE) {
		fmt.Fprintln(a.ErrOut, "error:", err)
		if advice := a.Advice(); advice != "" {
			a.Note("%s", advice)
		}
	}
	if err != nil {
		return 1
	}
	return 0
}

// New returns kubectl gang with the flags of the cluster, without commands.
func New(a *access.Access) *cobra.Command {
	ctrllog.SetLogger(klog.Background()) // reports what goes wrong with a watch
	cmd := &cobra.Command{
		Use:   "kubectl-gang",
		Short: "Show gangs, and why they wait",
		Long: `kubectl gang shows the gangs of a cluster, and what they wait for: queues, Reservations, topology and
DefragmentationPlans. It reads with the rights of its user, and writes nothing unless you approve a plan.`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl gang"},
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.SetIn(a.In)
	cmd.SetOut(a.Out)
	cmd.SetErr(a.ErrOut)
	a.AddFlags(cmd)
	return cmd
}
