package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// contention submits twice as many gangs as fit, their members interleaved, while lockstep-scheduler
// runs: half of the gangs have to be bound, whole, and the others have to wait, without evictions or
// writes, until gangs go.
type contention struct {
	nodes, gangs, size int
}

func (b contention) name() string {
	return fmt.Sprintf("Contention/nodes=%d/gangs=%dx%d", b.nodes, b.gangs, b.size)
}

// fit returns how many gangs fit.
func (b contention) fit() int { return b.nodes * gpusOnNode / b.size }

const (
	// fullWindow is how long writes are counted once no more fits, and observed for how long the cluster is watched then.
	fullWindow, observed = 40 * time.Second, 45 * time.Second
	// replaced is how many gangs are deleted then, one after the other.
	replaced = 3
)

func (b contention) run(ctx context.Context, f *fixture, r *report) error {
	if err := f.setNodes(ctx, b.nodes); err != nil {
		return err
	}
	t := r.table(b.name(), []goal{
		{unit: "gangs-bound", bound: float64(b.fit())},
		{unit: "gangs-partial", atMost: true},
		{unit: "writes-in-40s", atMost: true, bound: 500},
	}, "scheduler=ours")
	v, err := b.once(ctx, f, r)
	if err != nil {
		return err
	}
	r.add(t, 0, b.fit()*b.size, v)
	return f.clear(ctx)
}

func (b contention) once(ctx context.Context, f *fixture, r *report) (v values, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen, s, err := f.startWatched(ctx, ours)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	started := time.Now()
	if err := f.create(ctx, workload{scheduler: ours.schedulerName, prefix: "train", gangs: b.gangs, size: b.size, min: b.size, mixed: true}); err != nil {
		return nil, err
	}
	created := time.Now()
	if err := b.wait(ctx, seen, s, r, "at first"); err != nil {
		return nil, err
	}
	full := seen.lastBind()
	progress("%s: created in %.1f s, full after %.1f s", b.name(), created.Sub(started).Seconds(), full.Sub(started).Seconds())
	v = values{"s-to-full": full.Sub(started).Seconds()}
	if err := b.watchFull(ctx, f, s, v); err != nil {
		return nil, err
	}
	seen.Lock()
	whole, partial := seen.whole(b.size)
	b.check(r, "when full", seen)
	seen.Unlock()
	v["gangs-bound"], v["gangs-partial"] = float64(whole), float64(partial)
	if v["peak-MiB"], err = peakOf(s.Pid()); err != nil {
		return nil, err
	}
	return v, b.replace(ctx, f, seen, s, r, v)
}

// check reports what must not be. The caller holds the lock.
func (b contention) check(r *report, when string, seen *bindings) {
	if whole, partial := seen.whole(b.size); whole != b.fit() || partial != 0 {
		r.wrong("%s, %s: %d gangs are bound whole and %d in part; want %d and none", b.name(), when, whole, partial, b.fit())
	}
	if over := seen.overfull(); over > 0 {
		r.wrong("%s, %s: %d nodes have more pods than GPUs", b.name(), when, over)
	}
}

// fullTimeout bounds the wait for as many gangs as fit.
const fullTimeout = time.Minute

// wait waits until as many gangs are bound as fit.
func (b contention) wait(ctx context.Context, seen *bindings, s *process, r *report, when string) error {
	waitCtx, cancel := context.WithTimeout(ctx, fullTimeout)
	defer cancel()
	err := seen.Wait(waitCtx, func() bool {
		whole, _ := seen.whole(b.size)
		return whole >= b.fit()
	})
	switch {
	case s.ended():
		return s.died()
	case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		seen.Lock()
		defer seen.Unlock()
		b.check(r, when, seen)
		return nil
	}
	return err
}

// watchFull measures what the gangs that wait cost.
func (b contention) watchFull(ctx context.Context, f *fixture, s *process, v values) error {
	before, err := f.writesNow(ctx)
	if err != nil {
		return err
	}
	wrote := f.wrote.Load()
	start := time.Now()
	if err := await.Pause(ctx, fullWindow); err != nil {
		return err
	}
	after, err := f.writesNow(ctx)
	if err != nil {
		return err
	}
	written := after.since(before)
	v["writes-in-40s"] = float64(written.total()) - float64(f.wrote.Load()-wrote)
	progress("%s: written while full: %s", b.name(), written.per(1))
	if err := await.Pause(ctx, observed-time.Since(start)); err != nil {
		return err
	}
	cpu, err := cpuOf(s.Pid())
	v["cpu-s"] = cpu.Seconds()
	return err
}

// replace deletes gangs, one after the other, and measures how soon another one takes the place.
func (b contention) replace(ctx context.Context, f *fixture, seen *bindings, s *process, r *report, v values) error {
	var took []time.Duration
	for range min(replaced, b.gangs-b.fit()) {
		gang := seen.oldest()
		names := make([]string, b.size)
		for i := range names {
			names[i] = podName(gang, i)
		}
		before := seen.lastBind()
		if err := f.deletePods(ctx, names); err != nil {
			return err
		}
		deleted := time.Now()
		if err := seen.Wait(ctx, func() bool { return seen.gangs[gang] == 0 }); err != nil {
			return err
		}
		if err := b.wait(ctx, seen, s, r, "after a gang went"); err != nil {
			return err
		}
		if last := seen.lastBind(); last.After(before) {
			took = append(took, last.Sub(deleted))
		}
		// The gang that went may have come back in part, the new one may lose members.
		if err := await.Pause(ctx, settlePause); err != nil {
			return err
		}
		seen.Lock()
		b.check(r, "after a gang went", seen)
		seen.Unlock()
	}
	if len(took) > 0 {
		progress("%s: the next gang was bound after %v", b.name(), took)
		v["ms-to-next-gang"] = ms(percentile(slices.Clone(took), 50))
	}
	return nil
}
