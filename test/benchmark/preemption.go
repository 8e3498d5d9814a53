package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// preemption fills the nodes with gangs of low priority and then submits ten gangs of 16 of high
// priority. The stock scheduler gets the same pods, and knows no gangs: it shows what becomes of them. So
// does its own gang scheduling, beta and off by default.
type preemption struct {
	nodes, gangs, size, min int
	// ending is how long kubelets take to end a pod; 0: there are none, and the native gangs are
	// measured too.
	ending time.Duration
}

const (
	lowPriority, highPriority = 10, 100
	preemptors, preemptorSize = 10, 16
)

func (b preemption) name() string {
	name := fmt.Sprintf("Preemption/nodes=%d/gangs=%dx%d/min=%d", b.nodes, b.gangs, b.size, b.min)
	if b.ending > 0 {
		name += fmt.Sprintf("/ending=%s", b.ending)
	}
	return name
}

func (b preemption) run(ctx context.Context, f *fixture, r *report) error {
	if err := f.setNodes(ctx, b.nodes); err != nil {
		return err
	}
	if err := f.setPriorities(ctx, v1.PreemptLowerPriority, lowPriority, highPriority); err != nil {
		return err
	}
	kinds := []kind{stock, native, ours}
	if b.ending > 0 {
		kinds = []kind{stock, ours}
	}
	columns := make([]string, len(kinds))
	for i, k := range kinds {
		columns[i] = "scheduler=" + k.name
	}
	t := r.table(b.name(), []goal{
		{unit: "s-to-all-bound", atMost: true, bound: 2.5},
		{unit: "victims", atMost: true, bound: preemptors * preemptorSize},
		{unit: "gangs-touched", atMost: true, bound: float64(b.touched())},
		{unit: "gangs-left-broken", atMost: true},
	}, columns...)
	return f.takeTurns(t, func(column int, _ string) error {
		v, err := b.once(ctx, f, kinds[column], r)
		if err != nil {
			return err
		}
		r.add(t, column, preemptors*preemptorSize, v)
		return f.clear(ctx)
	})
}

// touched returns how few gangs can be touched: if they have surplus, they lose that, else they end
// whole.
func (b preemption) touched() int {
	each := b.size - b.min
	if each == 0 {
		each = b.size
	}
	return preemptors * preemptorSize / each
}

func (b preemption) once(ctx context.Context, f *fixture, k kind, r *report) (v values, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen, err := watchBindings(ctx, f.client)
	if err != nil {
		return nil, err
	}
	f.turn++ // native PodGroups are slow to go
	low := workload{scheduler: k.schedulerName, prefix: fmt.Sprintf("low-%d-", f.turn), gangs: b.gangs, size: b.size, min: b.min, priority: lowPriority, native: k == native, ending: b.ending}
	high := workload{scheduler: k.schedulerName, prefix: fmt.Sprintf("high-%d-", f.turn), gangs: preemptors, size: preemptorSize, min: preemptorSize, priority: highPriority, native: k == native}
	if f.system && k == ours {
		defer func() { err = errors.Join(err, f.stopController()) }()
		if err := f.startController(ctx); err != nil {
			return nil, err
		}
	}
	if err := f.create(ctx, low); err != nil {
		return nil, err
	}
	s, err := f.start(k)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	if err := f.all(ctx, seen, s, func() bool { return len(seen.pods) >= low.pods() }); err != nil {
		return nil, err
	}
	settle := func(ctx context.Context) error { return await.Pause(ctx, settlePause) }
	if b.ending > 0 {
		settle = f.untilQuiet // only a pod that runs takes its time to end
	}
	if err := settle(ctx); err != nil {
		return nil, err
	}
	started := time.Now()
	if err := f.create(ctx, high); err != nil {
		return nil, err
	}
	if err := seen.until(ctx, high); err != nil {
		return nil, err
	}
	took := seen.lastBind().Sub(started)
	if err := await.Pause(ctx, settlePause); err != nil {
		return nil, err
	}
	seen.Lock()
	defer seen.Unlock()
	v = values{"victims": float64(low.pods() - seen.of(low.prefix)), "gangs-touched": 0, "gangs-left-broken": 0}
	v["s-to-all-bound"], v["s-to-all-gone"] = took.Seconds(), seen.lastGone.Sub(started).Seconds()
	if b.ending > 0 { // without kubelets a victim is gone at once
		v["s-to-all-evicted"] = seen.lastEnding.Sub(started).Seconds()
	}
	for gang := range b.gangs {
		left := seen.gangs[low.gangName(gang)]
		if left < b.size {
			v["gangs-touched"]++
		}
		if left > 0 && left < b.min {
			v["gangs-left-broken"]++
		}
	}
	if k == ours && v["gangs-left-broken"] > 0 {
		r.wrong("%s: %.0f gangs are left below their minimum", b.name(), v["gangs-left-broken"])
	}
	return v, nil
}

// of counts the bound pods of a workload. The caller holds the lock.
func (b *bindings) of(prefix string) int {
	n := 0
	for gang, members := range b.gangs {
		if strings.HasPrefix(gang, prefix) {
			n += members
		}
	}
	return n
}

// stuck measures the cost of gangs of high priority for which no room can be made: plain pods on
// lockstep-scheduler beside them, and beside as many pods of another scheduler.
type stuck struct {
	nodes, pods, gangs, size int
}

func (b stuck) name() string { return fmt.Sprintf("Stuck/nodes=%d/pods=%d", b.nodes, b.pods) }

func (b stuck) run(ctx context.Context, f *fixture, r *report) error {
	if err := f.setNodes(ctx, b.nodes); err != nil {
		return err
	}
	if err := f.setPriorities(ctx, v1.PreemptLowerPriority, highPriority); err != nil {
		return err
	}
	t := r.table(b.name(), nil, "stuck=0", fmt.Sprintf("stuck=%d", b.gangs))
	plain := workload{scheduler: ours.schedulerName, prefix: "plain", gangs: b.pods / 8, size: 8}
	// A node has 8 GPUs.
	big := workload{scheduler: ours.schedulerName, prefix: "stuck", gangs: b.gangs, size: b.size, min: b.size, priority: highPriority, gpus: gpusOnNode + 1}
	others := big
	others.scheduler, others.prefix = "nobody", "others"
	return f.beside(ctx, r, t, plain, others, big)
}
