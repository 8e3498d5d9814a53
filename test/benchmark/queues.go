package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// fair is ours with the FairShare plugin.
var fair = kind{name: "fair", schedulerName: ours.schedulerName}

// fairConfig is what lockstep-scheduler runs without a configuration, and FairShare.
const fairConfig = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  kubeconfig: %q
  qps: 2000
  burst: 4000
profiles:
- schedulerName: lockstep-scheduler
  plugins:
    multiPoint: {enabled: [{name: Gang}, {name: GangPreemption}, {name: FairShare}]}
`

// fairness measures what FairShare costs: for gangs and for pods in none, in one queue or in many.
type fairness struct {
	nodes, gangs, size int
	plain              bool
	queues             int
}

func (b fairness) name() string {
	what := "gangs"
	if b.plain {
		what = "pods"
	}
	name := fmt.Sprintf("FairShare/nodes=%d/%s=%dx%d", b.nodes, what, b.gangs, b.size)
	if b.queues > 0 {
		name += fmt.Sprintf("/queues=%d", b.queues)
	}
	return name
}

func queueName(i int) string { return fmt.Sprintf("queue-%04d", i) }

// describe makes the queues: teams of ten, of different weights.
func (b fairness) describe(ctx context.Context, f *fixture) error {
	var text strings.Builder
	one := func(name, spec string) {
		fmt.Fprintf(&text, "---\napiVersion: scheduling.lockstep.dev/v1alpha1\nkind: Queue\nmetadata: {name: %s}\nspec: {%s}\n", name, spec)
	}
	for i := range b.queues {
		team := fmt.Sprintf("team-%04d", i/10)
		if i%10 == 0 {
			one(team, fmt.Sprintf("weight: %d", 1+i/10%3))
		}
		one(queueName(i), fmt.Sprintf("parent: %s, weight: %d", team, 1+i%7))
	}
	dir, err := os.MkdirTemp("", "queues-")
	if err != nil {
		return fmt.Errorf("making a folder for queues: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // nothing depends on it
	file := filepath.Join(dir, "queues.yaml")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		return fmt.Errorf("writing queues: %w", err)
	}
	return f.cluster.Apply(ctx, filepath.Join("manifests", "crds"), file)
}

func (b fairness) run(ctx context.Context, f *fixture, r *report) error {
	if err := f.setNodes(ctx, b.nodes); err != nil {
		return err
	}
	goals := []goal{{unit: "pods/s", ratio: true, bound: 0.98}}
	t := r.table(b.name(), goals, "fairshare=off", "fairshare=on")
	if b.queues > 0 {
		if err := b.describe(ctx, f); err != nil {
			return err
		}
	}
	w := workload{scheduler: ours.schedulerName, prefix: "train", gangs: b.gangs, size: b.size, min: b.size, queues: b.queues}
	if b.plain {
		w.min = 0
	}
	return f.takeTurns(t, func(column int, label string) error {
		return f.raceOnce(ctx, r, t, column, []kind{ours, fair}[column], label, w)
	})
}
