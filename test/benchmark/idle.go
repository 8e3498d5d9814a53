package main

import (
	"context"
	"fmt"
)

// idle measures the cost of gangs that wait for members: plain pods on lockstep-scheduler beside them,
// and beside as many pods of another scheduler. Any scheduler lists and keeps those too.
type idle struct {
	nodes, pods      int
	gangs, size, min int // incomplete ones
}

func (b idle) name() string { return fmt.Sprintf("Idle/nodes=%d/pods=%d", b.nodes, b.pods) }

func (b idle) run(ctx context.Context, f *fixture, r *report) error {
	if err := f.setNodes(ctx, b.nodes); err != nil {
		return err
	}
	t := r.table(b.name(), nil, "incomplete=0", fmt.Sprintf("incomplete=%d", b.gangs))
	others := workload{scheduler: "nobody", prefix: "others", gangs: b.gangs, size: b.size, min: b.min}
	plain := workload{scheduler: ours.schedulerName, prefix: "plain", gangs: b.pods / 8, size: 8}
	waiting := workload{scheduler: ours.schedulerName, prefix: "waiting", gangs: b.gangs, size: b.size, min: b.min}
	return f.beside(ctx, r, t, plain, others, waiting)
}

// beside races plain pods on lockstep-scheduler with one more workload there in each column of a table.
func (f *fixture) beside(ctx context.Context, r *report, t *table, plain workload, more ...workload) error {
	return f.takeTurns(t, func(column int, label string) error {
		if err := f.create(ctx, more[column]); err != nil {
			return err
		}
		if err := f.create(ctx, plain); err != nil {
			return err
		}
		// It does not wait for quiet: for a while the scheduler writes why gangs wait, a little at a time.
		v, err := f.race(ctx, ours, label, plain.pods(), false, r)
		if err != nil {
			return err
		}
		for _, unit := range []string{"gang-p50-ms", "gang-p99-ms", "gang-max-ms"} {
			delete(v, unit) // plain pods are in no gang
		}
		r.add(t, column, plain.pods(), v)
		return f.clear(ctx)
	})
}
