package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/command"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/explain"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/source"
)

// forecasts is the program that has the scheduler in it, and that commands run in which ask the scheduler. Without it
// this one is half as large.
const forecasts = "kubectl-gang-forecast"

var errNoForecasts = errors.New("the scheduler is in a program of its own: " +
	"put " + forecasts + ", of the same release, beside kubectl-gang or in the PATH")

// noForecast is the [explain.Forecaster] of this program.
func noForecast(context.Context, *access.Access, *source.Question, string) (*explain.Forecast, error) {
	return nil, errNoForecasts
}

// forecastOnly are the commands that only the other program has.
func forecastOnly() (list []*cobra.Command) {
	for _, cmd := range []*cobra.Command{
		{Use: "whatif", Short: command.WhatIf},
		{Use: "dump", Short: command.Dump},
	} {
		cmd.DisableFlagParsing = true
		cmd.RunE = func(*cobra.Command, []string) error { return errNoForecasts }
		list = append(list, cmd)
	}
	return list
}

// execute runs the command line, in the other program if it asks the scheduler and that program is installed.
func execute(ctx context.Context, root *cobra.Command, streams genericiooptions.IOStreams) error {
	path, args := "", os.Args[1:]
	if asksScheduler(root, args) {
		path = installed()
	}
	if path == "" {
		return root.ExecuteContext(ctx)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = streams.In, streams.Out, streams.ErrOut
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second // then it is killed
	return cmd.Run()
}

// asksScheduler reports whether a command line is of a command that asks the scheduler, or wants its help or
// completions.
func asksScheduler(root *cobra.Command, args []string) bool {
	about := []string{"help", cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd}
	if len(args) > 0 && slices.Contains(about, args[0]) {
		args = args[1:]
	}
	cmd, _, err := root.Find(args)
	return err == nil && slices.Contains([]string{"explain", "whatif", "dump"}, cmd.Name())
}

// installed returns the path of the other program, which is beside this one or in the PATH; empty where it is not.
func installed() string {
	var places []string
	if self, err := os.Executable(); err == nil {
		places = append(places, filepath.Join(filepath.Dir(self), forecasts))
		if real, err := filepath.EvalSymlinks(self); err == nil {
			places = append(places, filepath.Join(filepath.Dir(real), forecasts))
		}
	}
	for _, place := range append(places, forecasts) {
		if path, err := exec.LookPath(place); err == nil {
			return path
		}
	}
	return ""
}
