package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"time"

	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// benchmark is one of those that -run selects.
type benchmark interface {
	name() string
	run(ctx context.Context, f *fixture, r *report) error
}

// short matches the names of those that -short runs.
var short = regexp.MustCompile(`^(Throughput/nodes=500/gangs=250x8$|System/nodes=500/|Size/nodes=1000$|Upstream/[^/]+/100Nodes)`)

// benchmarks, in the order in which they run: by the number of nodes, so that nodes are mostly added.
var benchmarks = []benchmark{
	contention{nodes: 100, gangs: 20, size: 80},
	preemption{nodes: 100, gangs: 100, size: 8, min: 4},
	preemption{nodes: 100, gangs: 100, size: 8, min: 8},
	churn{nodes: 100, gangs: 400, sizes: []int{4}},
	churn{nodes: 100, gangs: 400, sizes: []int{2, 3, 5}},
	churn{nodes: 100, gangs: 800, sizes: []int{4, 1}},
	throughput{nodes: 500, gangs: 250, size: 8, goals: append(small, goal{unit: "gang-max-ms", atMost: true, bound: 150})},
	throughput{nodes: 500, gangs: 10, size: 200, goals: small},
	idle{nodes: 500, pods: 2000, gangs: 1000, size: 7, min: 8},
	fairness{nodes: 500, gangs: 250, size: 8},
	fairness{nodes: 500, gangs: 250, size: 8, plain: true},
	fairness{nodes: 500, gangs: 500, size: 8, queues: 200},
	claims{nodes: 500, gangs: 250, size: 8},
	reserved{nodes: 1500, reservations: 5000, pods: 4800},
	stuck{nodes: 500, pods: 2000, gangs: 100, size: 16},
	throughput{nodes: 2000, gangs: 500, size: 20, goals: large},
	throughput{nodes: 2000, gangs: 1250, size: 8, goals: append(large,
		goal{unit: "s-to-first-bind", atMost: true, bound: 2},
		goal{unit: "peak-MiB", ratio: true, atMost: true, bound: 1.10})},
	moves{nodes: 2000, pods: 6000},
	placing{nodes: 5000, replicas: 64},
	asked{nodes: 5000, onNode: 10},
	told{nodes: 10, members: 1000},
}

// Goals for throughput on 500 and on 2,000 nodes.
var (
	small = goals(1.25, 0.5)
	large = goals(1.5, 0.35)
)

func goals(throughput, cpu float64) []goal {
	list := []goal{
		{unit: "pods/s", ratio: true, bound: throughput},
		{unit: "cpu-ms/pod", ratio: true, atMost: true, bound: cpu},
		{unit: "writes/pod", ratio: true, atMost: true, bound: 1},
	}
	return list[:len(list):len(list)]
}

// throughput compares gangs on lockstep-scheduler with as many plain pods on the stock scheduler. The
// pods are there before the scheduler starts, so that it is the scheduler that is measured.
type throughput struct {
	nodes, gangs, size int
	goals              []goal
}

func (b throughput) name() string {
	return fmt.Sprintf("Throughput/nodes=%d/gangs=%dx%d", b.nodes, b.gangs, b.size)
}

func (b throughput) run(ctx context.Context, f *fixture, r *report) error {
	if err := f.setNodes(ctx, b.nodes); err != nil {
		return err
	}
	t := r.table(b.name(), b.goals, "scheduler=stock", "scheduler=ours")
	return f.takeTurns(t, func(column int, label string) error {
		k := []kind{stock, ours}[column]
		w := workload{scheduler: k.schedulerName, prefix: "train", gangs: b.gangs, size: b.size}
		if k == ours {
			w.min = b.size
		}
		return f.raceOnce(ctx, r, t, column, k, label, w)
	})
}

// takeTurns has each column of a table measured once in each round.
func (f *fixture) takeTurns(t *table, measure func(column int, label string) error) error {
	for round := range f.rounds {
		for column, name := range t.columns {
			if err := measure(column, fmt.Sprintf("%s/%s/round=%d", t.name, name, round+1)); err != nil {
				return err
			}
		}
	}
	return nil
}

// raceOnce makes a scheduler schedule a workload, adds what was measured to a column, and clears.
func (f *fixture) raceOnce(ctx context.Context, r *report, t *table, column int, k kind, label string, w workload) error {
	if err := f.create(ctx, w); err != nil {
		return err
	}
	v, err := f.race(ctx, k, label, w.pods(), true, r)
	if err != nil {
		return err
	}
	r.add(t, column, w.pods(), v)
	return f.clear(ctx)
}

// raceTimeout bounds the scheduling of the pods of one round.
const raceTimeout = 5 * time.Minute

// race starts a scheduler and measures it until n pods are bound and, with quiet, until nothing is
// written any more: schedulers write events late.
func (f *fixture) race(ctx context.Context, k kind, label string, n int, quiet bool, r *report) (v values, err error) {
	if err := await.Pause(ctx, settlePause); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b, err := watchBindings(ctx, f.client)
	if err != nil {
		return nil, err
	}
	before, err := f.writesNow(ctx)
	if err != nil {
		return nil, err
	}
	load, err := f.load(0)
	if err != nil {
		return nil, err
	}
	s, err := f.start(k)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	if err := f.all(ctx, b, s, func() bool { return len(b.pods) >= n }); err != nil {
		return nil, err
	}
	loadAfter, err := f.load(s.Pid())
	if err != nil {
		return nil, err
	}
	if f.system {
		if err := f.all(ctx, b, s, func() bool { return len(b.running) >= n }); err != nil {
			return nil, err
		}
	}
	if quiet {
		if err := f.untilQuiet(ctx); err != nil {
			return nil, err
		}
	}
	after, err := f.writesNow(ctx)
	if err != nil {
		return nil, err
	}
	cpu, err := cpuOf(s.Pid())
	if err != nil {
		return nil, err
	}
	peak, err := peakOf(s.Pid())
	if err != nil {
		return nil, err
	}
	b.Lock()
	defer b.Unlock()
	b.check(r, label, n)
	gangs := max(1, len(b.gangs))
	written := after.since(before)
	spreads := b.spreads()
	v = values{
		"pods/s":             float64(len(b.pods)) / b.last.Sub(b.first).Seconds(),
		"pods/s-from-start":  float64(len(b.pods)) / b.last.Sub(s.started).Seconds(),
		"s-to-first-bind":    b.first.Sub(s.started).Seconds(),
		"cpu-ms/pod":         ms(cpu) / float64(n),
		"peak-MiB":           peak,
		"writes/pod":         float64(written.total()) / float64(n),
		"others-cpu-%":       load.others(loadAfter),
		"control-cpu-ms/pod": ms(loadAfter.control-load.control) / float64(n),
	}
	if k != stock {
		v["gang-p50-ms"], v["gang-p99-ms"], v["gang-max-ms"] = ms(percentile(spreads, 50)), ms(percentile(spreads, 99)), ms(percentile(spreads, 100))
	}
	if f.system {
		v["system-cpu-ms/pod"] = v["cpu-ms/pod"]
		v["s-to-all-run"] = b.lastRun.Sub(s.started).Seconds()
	}
	if f.statusKeeper != nil {
		if err := f.measureController(ctx, v, n, gangs); err != nil {
			return nil, err
		}
	}
	progress("%s: %d bound in %.1f s; per pod: %s", label, len(b.pods), b.last.Sub(s.started).Seconds(), written.per(n))
	if b.lists > 1 {
		progress("%s: the watch of the harness broke %d times; bind times are late", label, b.lists-1)
	}
	return v, nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// all waits until all pods are where done says, or too much time has passed.
func (f *fixture) all(ctx context.Context, b *bindings, s *process, done func() bool) error {
	raceCtx, cancel := context.WithTimeout(ctx, raceTimeout)
	defer cancel()
	go func() {
		select {
		case <-s.Done():
			cancel()
		case <-raceCtx.Done():
		}
	}()
	err := b.Wait(raceCtx, done)
	switch {
	case s.ended():
		return s.died()
	case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		return nil // the check reports it
	}
	return err
}

// check reports what must not be. The caller holds the lock.
func (b *bindings) check(r *report, label string, n int) {
	if len(b.pods) != n {
		r.wrong("%s: %d of %d pods are bound", label, len(b.pods), n)
	}
	if over := b.overfull(); over > 0 {
		r.wrong("%s: %d nodes have more pods than GPUs", label, over)
	}
}

// load is CPU time used so far: by the whole machine, by API server, etcd and harness, and by what is
// measured and runs beside it: the scheduler, kubelets, lockstep-controller.
type load struct {
	at                      time.Time
	busy, control, measured time.Duration
}

// load returns it; scheduler is 0 where none runs yet.
func (f *fixture) load(scheduler int) (load, error) {
	l := load{at: time.Now()}
	var err error
	if l.busy, err = busyCPU(); err != nil {
		return l, err
	}
	components := map[string]*time.Duration{"kube-apiserver": &l.control, "etcd": &l.control}
	if f.system {
		components["kwok-controller"] = &l.measured
	}
	pids := map[int]*time.Duration{os.Getpid(): &l.control}
	for component, sum := range components {
		pid, err := f.cluster.ComponentPID(component)
		if err != nil {
			return l, err
		}
		pids[pid] = sum
	}
	if scheduler != 0 {
		pids[scheduler] = &l.measured
	}
	if f.statusKeeper != nil {
		pids[f.statusKeeper.Pid()] = &l.measured
	}
	for pid, sum := range pids {
		cpu, err := cpuOf(pid)
		if err != nil {
			return l, err
		}
		*sum += cpu
	}
	return l, nil
}

// others returns the share of the machine that other processes used meanwhile, in percent.
func (l load) others(after load) float64 {
	others := (after.busy - l.busy) - (after.control - l.control) - (after.measured - l.measured)
	return max(0, 100*others.Seconds()/(after.at.Sub(l.at).Seconds()*float64(runtime.NumCPU())))
}
