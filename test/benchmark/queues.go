package main

import (
	"context"
	"fmt"
)

// fair is ours with the FairShare plugin.
var fair = kind{"fair", ours.schedulerName}

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
    queueSort: {enabled: [{name: GangQueueSort}], disabled: [{name: PrioritySort}]}
    preFilter: {enabled: [{name: Gang}]}
    postFilter: {enabled: [{name: Gang}, {name: GangPreemption}], disabled: [{name: DefaultPreemption}]}
    score: {enabled: [{name: Gang, weight: 20}]}
    bind: {enabled: [{name: Gang}, {name: BoundedBinder}], disabled: [{name: DefaultBinder}]}
`

// fairness measures what FairShare costs where everybody is in one queue: gangs, and pods in none.
type fairness struct {
	nodes, gangs, size int
	plain              bool
}

func (b fairness) name() string {
	what := "gangs"
	if b.plain {
		what = "pods"
	}
	return fmt.Sprintf("FairShare/nodes=%d/%s=%dx%d", b.nodes, what, b.gangs, b.size)
}

func (b fairness) quick() bool { return false }

func (b fairness) run(ctx context.Context, f *fixture, r *report) error {
	if err := f.setNodes(ctx, b.nodes); err != nil {
		return err
	}
	goals := []goal{{unit: "pods/s", ratio: true, bound: 0.98}}
	t := r.table(b.name(), goals, "fairshare=off", "fairshare=on")
	w := workload{scheduler: ours.schedulerName, prefix: "train", gangs: b.gangs, size: b.size, min: b.size}
	if b.plain {
		w.min = 0
	}
	for round := range f.rounds {
		for column, k := range []kind{ours, fair} {
			if err := f.create(ctx, w); err != nil {
				return err
			}
			v, err := f.race(ctx, k, fmt.Sprintf("%s/round=%d", b.name(), round+1), w.pods(), true, r)
			if err != nil {
				return err
			}
			r.add(t, column, w.pods(), v)
			if err := f.clear(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}
