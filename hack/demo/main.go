// Command demo shows on the terminal what Lockstep does, with a real control plane, the scheduler and the controller of
// this checkout, and kubectl: make demo. It runs a scenario,
// test/e2e/scenarios/integrations/the-demo-runs-as-told.yaml. What it reports it has seen; a step that does not come
// out as announced ends it with exit code 1.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
	"github.com/lockstep-sh/lockstep/test/harness/scenario"
)

const (
	// clusterName is the cluster of the demo. A demo that runs takes the place of the last one.
	clusterName = "demo"
	// endTimeout bounds taking it down.
	endTimeout = 30 * time.Second
)

var (
	binDir = filepath.Join(".local", "bin")
	story  = filepath.Join("test", "e2e", "scenarios", "integrations", "the-demo-runs-as-told.yaml")
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	p := newPrinter(os.Stdout)
	err := run(ctx, p)
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case err == nil:
		return
	case interrupted:
		p.Say("Interrupted. " + takeDown())
	default:
		p.failure(err)
	}
	os.Exit(1)
}

// run starts a cluster and tells the story in it.
func run(ctx context.Context, p *printer) error {
	root, err := localcluster.Root()
	if err != nil {
		return err
	}
	if err := os.Chdir(root); err != nil { // paths on the terminal are relative to the repository
		return fmt.Errorf("going to the repository: %w", err)
	}
	s, err := scenario.Load(story)
	if err != nil {
		return err
	}
	fleet, err := scenario.NewFleet()
	if err != nil {
		return err
	}
	runner := scenario.Runner{Fleet: fleet, Keep: clusterName, Narrator: p}
	for name, binary := range map[string]*string{"lockstep-scheduler": &runner.Scheduler,
		"lockstep-controller": &runner.Controller} {
		*binary = filepath.Join(root, "bin", name)
		if _, err := os.Stat(*binary); err != nil {
			return fmt.Errorf("finding %s (make build makes it): %w", name, err)
		}
	}
	if err := localcluster.Build(ctx, os.Stderr, ""); err != nil { // not part of the time that the start may take
		return err
	}
	p.Title("Lockstep: gangs of pods start together, or wait without holding anything")
	p.Say(s.Description)
	p.begin = time.Now()
	report := runner.Run(ctx, s)
	if report.Failed() {
		return failed(report)
	}
	p.ending()
	return nil
}

// failed returns an error with what did not come out as announced, and where to look.
func failed(r *scenario.Report) error {
	return fmt.Errorf("%s\n  %s\nWhat happened, and the logs of the scheduler and the controller, is in %s\n"+
		"If the cluster is up it is left as it is: export KUBECONFIG=%s\nTo remove it: make down NAME=%s",
		r.Step, strings.Join(r.Failures, "\n  "), fromHere(r.Dir),
		filepath.Join(".local", "clusters", clusterName, "kubeconfig.yaml"), clusterName)
}

// fromHere returns a path relative to the working directory.
func fromHere(path string) string {
	here, err := os.Getwd()
	if err != nil {
		return path
	}
	if short, err := filepath.Rel(here, path); err == nil {
		return short
	}
	return path
}

// takeDown removes what an interrupted demo started, and returns a report of it.
func takeDown() string {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	if err := localcluster.Down(ctx, clusterName); err != nil {
		return fmt.Sprintf("The cluster could not be taken down: %v", err)
	}
	return "The cluster is down again."
}
