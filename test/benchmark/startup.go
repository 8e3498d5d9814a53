package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// startup measures the cost of a scheduler before it has scheduled anything: its part in the CPU
// time and the memory of the other benchmarks.
type startup struct {
	nodes int
}

func (b startup) name() string { return fmt.Sprintf("Startup/nodes=%d", b.nodes) }

func (b startup) quick() bool { return false }

func (b startup) run(ctx context.Context, f *fixture, r *report) error {
	if err := f.setNodes(ctx, b.nodes); err != nil {
		return err
	}
	t := r.table(b.name(), nil, "scheduler=stock", "scheduler=ours")
	for range f.rounds {
		for column, k := range []kind{stock, ours} {
			v, err := b.once(ctx, f, k)
			if err != nil {
				return err
			}
			r.add(t, column, 1, v)
		}
	}
	return nil
}

// startupWindow is how long a start may take at most.
const startupWindow = 3 * time.Second

func (b startup) once(ctx context.Context, f *fixture, k kind) (v values, err error) {
	s, err := f.start(k, b.name())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	if err := s.ready(ctx, readyPath); err != nil {
		return nil, err
	}
	v = values{"s-to-ready": time.Since(s.started).Seconds()}
	if err := await.Pause(ctx, startupWindow-time.Since(s.started)); err != nil {
		return nil, err
	}
	cpu, err := cpuOf(s.Pid())
	if err != nil {
		return nil, err
	}
	v["cpu-s"] = cpu.Seconds()
	v["peak-MiB"], err = peakOf(s.Pid())
	return v, err
}
