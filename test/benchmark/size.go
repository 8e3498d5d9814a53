package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// sizes are the benchmarks of -size: what things cost in clusters of several sizes.
var sizes = []benchmark{
	size{nodes: 1000}, size{nodes: 5000}, size{nodes: 10000},
	micro{bench: "Plan$/members=1000/nodes=(1000|5000|10000)$", pkg: "./plugins/gang"},
	micro{bench: "Search$/512", pkg: "./plugins/preemption"},
	micro{bench: "Reclaim$", pkg: "./plugins/fairshare"},
	micro{bench: "Round$", pkg: "./plugins/defragmentation"},
}

// size measures, on a cluster whose GPUs are all in use, what things cost that happen there.
type size struct {
	nodes int
}

const (
	runningOnNode = 10 // pods; a GPU each as long as the node has some
	updates       = 3000
	idleFor       = 5 * time.Second
)

func (b size) name() string { return fmt.Sprintf("Size/nodes=%d", b.nodes) }

func (b size) run(ctx context.Context, f *fixture, r *report) (err error) {
	if err := f.setNodes(ctx, b.nodes); err != nil {
		return err
	}
	if err := (fairness{queues: 100}).describe(ctx, f); err != nil {
		return err
	}
	if err := errors.Join(f.setPriorities(ctx, v1.PreemptLowerPriority, lowPriority, highPriority), f.setPriorities(ctx, v1.PreemptNever, churnPriorities...)); err != nil {
		return err
	}
	runs := workload{scheduler: ours.schedulerName, prefix: "runs", gangs: b.nodes, size: runningOnNode, queues: 100, priority: lowPriority}
	progress("%s: %d pods run", b.name(), runs.pods())
	if err := f.fill(ctx, runs, gpusOnNode); err != nil {
		return err
	}
	if err := f.startController(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.stopController(), f.clear(ctx)) }()
	t := r.table(b.name(), nil, "what=reclaim", "what=restart", "what=update", "what=gang", "what=preemption", "command=list", "command=explain", "what=churn")
	if err := b.reclaim(ctx, f, r, t); err != nil {
		return err
	}
	return b.rest(ctx, f, r, t, runs)
}

// reclaim has a gang in a queue of its own claim what 100 other queues use beyond their shares.
func (b size) reclaim(ctx context.Context, f *fixture, r *report, t *table) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen, s, err := f.startWatched(ctx, fair)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	return b.arrives(ctx, f, r, t, 0, seen, s, workload{prefix: "reclaims", size: 64})
}

// rest measures everything else, without FairShare.
func (b size) rest(ctx context.Context, f *fixture, r *report, t *table, runs workload) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	first := workload{scheduler: ours.schedulerName, prefix: "first", gangs: 1, size: 8, min: 8, gpus: -1}
	waiting := workload{scheduler: ours.schedulerName, prefix: "waiting", gangs: 1, size: 64, min: 64, gpus: gpusOnNode}
	if err := errors.Join(f.create(ctx, first), f.create(ctx, waiting)); err != nil {
		return err
	}
	seen, s, err := f.startWatched(ctx, ours)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	if err := seen.until(ctx, first); err != nil {
		return err
	}
	cpu, err := cpuOf(s.Pid())
	if err != nil {
		return err
	}
	v := values{"s-to-first-bind": seen.lastBind().Sub(s.started).Seconds(), "cpu-s": cpu.Seconds()}
	if v["peak-MiB"], err = peakOf(s.Pid()); err != nil {
		return err
	}
	if v["controller-peak-MiB"], err = peakOf(f.statusKeeper.Pid()); err != nil {
		return err
	}
	r.add(t, 1, 1, v)
	if err := f.untilQuiet(ctx); err != nil {
		return err
	}
	if v, err = b.update(ctx, f, s, runs); err != nil {
		return err
	}
	r.add(t, 2, updates, v)
	if err := b.arrives(ctx, f, r, t, 3, seen, s, workload{prefix: "wide", size: 1000, gpus: -1}); err != nil {
		return err
	}
	if err := b.arrives(ctx, f, r, t, 4, seen, s, workload{prefix: "preempts", size: 512, priority: highPriority}); err != nil {
		return err
	}
	for i, command := range [][]string{{"list", "-A"}, {"explain", waiting.gangName(0)}} {
		if v, err = (asked{}).ask(ctx, f, command...); err != nil {
			return err
		}
		r.add(t, 5+i, 1, v)
	}
	c, random := churn{gangs: 1000, sizes: []int{4}}, rand.New(rand.NewPCG(1, 2))
	if _, err := c.line(ctx, f, random); err != nil {
		return err
	}
	if err := f.untilQuiet(ctx); err != nil {
		return err
	}
	v = values{}
	if err := f.whileBusy(ctx, s, v, func() error { return c.end(ctx, f, runs, random) }); err != nil {
		return err
	}
	r.add(t, 7, c.gangs, v)
	return nil
}

// arrives makes a gang, and measures what it costs until all of it is bound, how much of that the scheduling thread was
// busy, and when the last of its victims had gone, which is what the API server took.
func (b size) arrives(ctx context.Context, f *fixture, r *report, t *table, column int, seen *bindings, s *process, w workload) error {
	if err := f.untilQuiet(ctx); err != nil {
		return err
	}
	w.scheduler, w.gangs, w.min = ours.schedulerName, 1, w.size
	before, err := s.metrics(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	cpu, _, err := f.used(s, func() error { return errors.Join(f.create(ctx, w), seen.until(ctx, w)) })
	if err != nil {
		return err
	}
	after, err := s.metrics(ctx)
	if err != nil {
		return err
	}
	const cutShort = "lockstep_preemption_searches_cut_short_total"
	v := values{"cpu-s": cpu.Seconds(), "s-to-all-bound": seen.lastBind().Sub(began).Seconds(),
		"thread-s":           sum(after, threadSeconds) - sum(before, threadSeconds),
		"searches-cut-short": sum(after, cutShort) - sum(before, cutShort)}
	if gone := seen.lastLoss(); gone.After(began) {
		v["s-to-all-gone"] = gone.Sub(began).Seconds()
	}
	r.add(t, column, w.size, v)
	return nil
}

// until waits until all pods of a workload are bound.
func (b *bindings) until(ctx context.Context, w workload) error {
	ctx, cancel := context.WithTimeout(ctx, raceTimeout)
	defer cancel()
	if err := b.Wait(ctx, func() bool { return b.of(w.prefix) == w.pods() }); err != nil {
		b.Lock()
		defer b.Unlock()
		return fmt.Errorf("waiting for %d pods %s, %d are bound: %w", w.pods(), w.prefix, b.of(w.prefix), err)
	}
	return nil
}

// update changes pods that run, and measures what each change costs, beyond what an idle cluster does.
func (b size) update(ctx context.Context, f *fixture, s *process, runs workload) (values, error) {
	idle, idleController, err := f.used(s, func() error { return await.Pause(ctx, idleFor) })
	if err != nil {
		return nil, err
	}
	began := time.Now()
	busy, busyController, err := f.used(s, func() error {
		err := each(ctx, updates, func(ctx context.Context, i int) error {
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"benchmark.lockstep.dev/update":"%d"}}}`, i)
			_, err := f.client.CoreV1().Pods(namespace).Patch(ctx, runs.at(i).Name, types.MergePatchType, patch, metav1.PatchOptions{})
			if apierrors.IsNotFound(err) {
				return nil // it was reclaimed
			}
			return err
		})
		return errors.Join(err, await.Pause(ctx, settlePause))
	})
	if err != nil {
		return nil, err
	}
	took := float64(time.Since(began)) / float64(idleFor)
	per := func(busy, idle time.Duration) float64 {
		return (float64(busy) - took*float64(idle)) / float64(time.Microsecond) / updates
	}
	return values{"cpu-us/event": per(busy, idle), "controller-us/event": per(busyController, idleController)}, nil
}

// used returns the CPU time that the scheduler and the controller use while work is done.
func (f *fixture) used(s *process, work func() error) (scheduler, controller time.Duration, err error) {
	read := func() (time.Duration, time.Duration, error) {
		scheduler, err := cpuOf(s.Pid())
		controller, errController := cpuOf(f.statusKeeper.Pid())
		return scheduler, controller, errors.Join(err, errController)
	}
	scheduler, controller, err = read()
	if err != nil {
		return 0, 0, err
	}
	if err := work(); err != nil {
		return 0, 0, err
	}
	schedulerAfter, controllerAfter, err := read()
	return schedulerAfter - scheduler, controllerAfter - controller, err
}

// micro is a micro-benchmark that reports CPU time.
type micro struct {
	bench, pkg string
}

func (b micro) name() string { return "Micro/" + b.bench }

// microLine matches the result of a micro-benchmark: its name without the number of cores, and its CPU time.
var microLine = regexp.MustCompile(`(?m)^Benchmark(\S+?)(?:-\d+)?\s.*?([0-9.e+]+) cpu-ns/op`)

func (b micro) run(ctx context.Context, _ *fixture, r *report) error {
	root, err := localcluster.Root()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", b.bench, "-benchtime", "3x", b.pkg)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("running %s: %w\n%s", b.name(), err, out)
	}
	for _, found := range microLine.FindAllStringSubmatch(string(out), -1) {
		ns, err := strconv.ParseFloat(found[2], 64)
		if err != nil {
			return fmt.Errorf("reading %s: %w", found[0], err)
		}
		t := r.table(found[1], nil, "what="+strings.TrimPrefix(b.pkg, "./"))
		r.add(t, 0, 3, values{"cpu-ms/op": ns / 1e6})
	}
	return nil
}
