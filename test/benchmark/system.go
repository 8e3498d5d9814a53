package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// systems are the benchmarks of -system, by the number of nodes.
var systems = []benchmark{
	preemption{nodes: 100, gangs: 100, size: 8, min: 4, ending: time.Second},
	preemption{nodes: 100, gangs: 100, size: 8, min: 8, ending: time.Second},
	system{nodes: 500, gangs: 250, size: 8, goals: systemGoals(1, 0.6, goal{unit: "cpu-ms/pod", ratio: true, atMost: true, bound: 0.5, column: byAnnotation})},
	system{nodes: 2000, gangs: 500, size: 20, goals: systemGoals(1.7, 0.35)},
	system{nodes: 5000, gangs: 400, size: 25, goals: systemGoals(1, 0.4, goal{unit: "s-to-first-bind", atMost: true, bound: 2, column: byAnnotation})},
}

// Columns of system's tables, by number.
const (
	plainPods = iota
	byAnnotation
	byPodGroup
)

// systemGoals returns those of gangs by annotation, and what PodGroups may cost more.
func systemGoals(throughput, cpu float64, more ...goal) []goal {
	return append([]goal{
		{unit: "pods/s", ratio: true, bound: throughput, column: byAnnotation},
		{unit: "s-to-all-run", ratio: true, atMost: true, bound: 0.9, column: byAnnotation},
		{unit: "system-cpu-ms/pod", ratio: true, atMost: true, bound: cpu, column: byAnnotation},
		{unit: "system-cpu-ms/pod", ratio: true, atMost: true, bound: 1.1, column: byPodGroup, over: byAnnotation},
	}, more...)
}

// system compares what users run: kubelets report that pods run, and lockstep-controller keeps the
// status of PodGroups. The controller runs before the pods come, as in a cluster, and all that it has
// used since its start counts.
type system struct {
	nodes, gangs, size int
	goals              []goal
}

func (b system) name() string {
	return fmt.Sprintf("System/nodes=%d/gangs=%dx%d", b.nodes, b.gangs, b.size)
}

func (b system) run(ctx context.Context, f *fixture, r *report) error {
	if err := f.setNodes(ctx, b.nodes); err != nil {
		return err
	}
	t := r.table(b.name(), b.goals, "scheduler=stock", "scheduler=ours/by=annotation", "scheduler=ours/by=podgroup")
	return f.takeTurns(t, func(column int, label string) error {
		k := []kind{plainPods: stock, byAnnotation: ours, byPodGroup: ours}[column]
		f.turn++ // kubelets may still be busy with the pods of the turn before
		w := workload{scheduler: k.schedulerName, prefix: fmt.Sprintf("train-%d-", f.turn), gangs: b.gangs, size: b.size, described: column == byPodGroup}
		if k == ours {
			w.min = b.size
		}
		v, err := b.once(ctx, f, k, w, label, r)
		if err != nil {
			return err
		}
		r.add(t, column, w.pods(), v)
		return f.clear(ctx)
	})
}

func (b system) once(ctx context.Context, f *fixture, k kind, w workload, label string, r *report) (v values, err error) {
	if k == ours {
		defer func() { err = errors.Join(err, f.stopController()) }()
		if err := f.startController(ctx); err != nil {
			return nil, err
		}
	}
	if err := f.create(ctx, w); err != nil {
		return nil, err
	}
	return f.race(ctx, k, label, w.pods(), true, r)
}
