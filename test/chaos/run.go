package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/dynamic"

	"github.com/lockstep-sh/lockstep/test/chaos/invariant"
	"github.com/lockstep-sh/lockstep/test/chaos/workload"
	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// Options say what to run.
type Options struct {
	// Options are those of the plan, without the nodes. With Queues FairShare is on, with Moves there is a descheduler,
	// and with Steady nothing may grow.
	workload.Options
	// Faults: without, nothing is broken.
	Faults bool
	// Kubelets, if set, is how many nodes there are, which kubelets run in place of KWOK. None of them is deleted.
	Kubelets int
	// Scheduler is a binary, or "stock".
	Scheduler string
	// Progress gets a line now and then.
	Progress io.Writer
}

// holds reports whether there may be Reservations: a move makes some.
func (o Options) holds() bool { return o.Reservations || o.Moves }

// downTimeout bounds the end of the control plane.
const downTimeout = time.Minute

// Run runs the plan of a seed and returns what came of it. An error is one of the harness: it says nothing about
// the scheduler. If ctx ends, what was found by then is reported.
func Run(ctx context.Context, o Options) (*Report, error) {
	root, err := localcluster.Root()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(root, ".local", "chaos", fmt.Sprintf("%s-seed-%d", time.Now().Format("20060102-150405"), o.Seed))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the folder of the run: %w", err)
	}
	o.Nodes, o.NodesStay, o.NodesPerRack, o.GPUs = cmp.Or(o.Kubelets, fakeNodes), o.Kubelets > 0, nodesPerRack, gpusOnNode
	plan := workload.Make(o.Options)
	if err := writeJSON(filepath.Join(dir, "plan.json"), plan); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "observed.log"))
	if err != nil {
		return nil, fmt.Errorf("making the log of the run: %w", err)
	}
	defer func() { _ = log.Close() }()
	cluster, err := clusterUp(ctx, o, root, dir)
	if err != nil {
		return nil, err
	}
	s := &stage{cluster: cluster, root: root, dir: dir, options: o, seen: newObserver(o.config(), log), samples: samples{}}
	report, err := s.run(ctx, plan)
	down, cancel := context.WithTimeout(context.WithoutCancel(ctx), downTimeout)
	defer cancel()
	err = errors.Join(err, s.keepLogs(), cluster.Down(down))
	if report != nil {
		err = errors.Join(err, report.save())
	}
	return report, err
}

func writeJSON(path string, value any) error {
	data, err := json.MarshalIndent(value, "", " ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", filepath.Base(path), err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		return fmt.Errorf("writing %s: %w", filepath.Base(path), err)
	}
	return nil
}

// config returns what the checker is told of the run.
func (o Options) config() invariant.Config {
	config := invariant.Config{Reservations: o.holds(), Moves: o.Moves, AllQueues: o.Queues}
	if !o.Queues {
		return config
	}
	for _, q := range workload.Queues {
		config.Queues = append(config.Queues, invariant.Queue{Name: q.Name, Parent: q.Spec.Parent, Capability: q.Spec.Capability})
	}
	return config
}

// keepLogs copies the logs of the control plane, which go with it.
func (s *stage) keepLogs() error {
	files, err := filepath.Glob(filepath.Join(s.cluster.LogDir(), "*.log"))
	if err != nil {
		return fmt.Errorf("keeping logs: %w", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("keeping logs: %w", err)
		}
		if err := os.WriteFile(filepath.Join(s.dir, filepath.Base(file)), data, 0o644); err != nil {
			return fmt.Errorf("keeping logs: %w", err)
		}
	}
	return nil
}

// run plays a plan on the stage.
func (s *stage) run(ctx context.Context, plan workload.Plan) (*Report, error) {
	var err error
	if s.dynamic, err = dynamic.NewForConfig(s.cluster.RESTConfig()); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	if err := s.furnish(ctx); err != nil {
		return nil, err
	}
	s.health = newHealth(&s.options, s.cluster.Clientset(), s.seen)
	// Watching goes on to the very end, also when the run is cut short.
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	if err := s.seen.watchAll(ctx, watching, s.cluster.Clientset(), s.dynamic, s.options); err != nil {
		return nil, err
	}
	defer func() {
		for _, r := range s.replicas {
			_ = r.end() // the control plane's end takes what is left
		}
	}()
	if err := s.startReplicas(ctx); err != nil {
		return nil, err
	}
	go s.health.probe(watching)
	go s.seen.tick(watching)

	users := newDriver(s.dynamic, s.seen)
	faults := newInjector(s, users)
	s.progress("%s", plan.String())
	begin := time.Now()
	s.play(ctx, plan, users, faults)
	report := &Report{options: s.options, dir: s.dir, plan: plan.String(), played: time.Since(begin)}
	err = s.end(ctx, users, report)
	s.judgeGrowth()
	s.fill(report, users, faults)
	return report, errors.Join(append(append([]error{err}, faults.errs...), users.refusals()...)...)
}

// play runs users and faults for the length of the plan.
func (s *stage) play(ctx context.Context, plan workload.Plan, users *driver, faults *injector) {
	ctx, cancel := context.WithTimeout(ctx, s.options.Length)
	defer cancel()
	users.begin = time.Now()
	var all sync.WaitGroup
	all.Go(func() { users.run(ctx, plan.Works) })
	all.Go(func() { users.runBadInputs(ctx, plan.BadInputs) })
	if s.options.Faults {
		all.Go(func() { faults.run(ctx, plan.Faults) })
		all.Go(func() { faults.run(ctx, plan.NodeFaults) })
	}
	if s.options.Steady {
		all.Go(func() { s.sample(ctx) })
	}
	all.Go(func() { s.tellProgress(ctx) })
	all.Wait()
}

const progressEvery = 15 * time.Second

func (s *stage) tellProgress(ctx context.Context) {
	for begin := time.Now(); await.Pause(ctx, progressEvery) == nil; {
		s.seen.with(func(c *invariant.Checker) {
			n := c.Counts()
			asked, there, waiting := c.Demand(localcluster.ResourceGPU)
			s.progress("%3.0f s: %d gangs, %d pods, %d binds, %d evictions; %d pods wait, %d%% of GPUs asked for; %d violations",
				time.Since(begin).Seconds(), n.Gangs, n.Pods, n.Binds, n.Evictions, waiting, 100*asked/max(1, there), len(c.Violations()))
		})
	}
}

func (s *stage) progress(format string, args ...any) {
	_, _ = fmt.Fprintf(s.options.Progress, format+"\n", args...) // progress that cannot be written is no finding
}
