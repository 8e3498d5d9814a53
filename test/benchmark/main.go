package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
)

const (
	clusterName = "benchmark"
	// upTimeout and downTimeout bound the start and the end of the cluster, without builds.
	upTimeout, downTimeout = 2 * time.Minute, time.Minute
)

// options are the flags.
type options struct {
	quick  bool
	rounds int
	run    *regexp.Regexp
	// system: the schedulers are measured with what users run beside them.
	system bool
	// upstream: the workloads are those of Kubernetes' own benchmark.
	upstream bool
	// size: what things cost in clusters of several sizes.
	size       bool
	scheduler  string
	controller string
	// descheduler is always that of this checkout.
	descheduler string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("benchmark", flag.ContinueOnError)
	flags.BoolVar(&o.quick, "short", false, "one round of the smallest size: less than a minute")
	flags.IntVar(&o.rounds, "rounds", 2, "how often each scheduler has its turn")
	pattern := flags.String("run", ".", "regular expression: run only the benchmarks whose name matches")
	flags.BoolVar(&o.system, "system", false, "measure what users run: kubelets (KWOK) beside both schedulers, and lockstep-controller beside ours")
	flags.BoolVar(&o.upstream, "upstream", false, "run the workloads of gangs of scheduler_perf, Kubernetes' own benchmark, with native gangs and ours in turn")
	flags.BoolVar(&o.size, "size", false, "measure what things cost on 1,000, 5,000 and 10,000 nodes, with 10 pods on each, and how that grows")
	flags.StringVar(&o.scheduler, "scheduler", "", "the lockstep-scheduler to measure (default: build this checkout's)")
	flags.StringVar(&o.controller, "controller", "", "the lockstep-controller to measure with -system (default: build this checkout's)")
	if err := flags.Parse(args); err != nil {
		return o, flag.ErrHelp
	}
	var err error
	if o.run, err = regexp.Compile(*pattern); err != nil {
		return o, fmt.Errorf("reading -run: %w", err)
	}
	if o.rounds < 1 || flags.NArg() > 0 {
		return o, errors.New("reading flags: want at least one round, and no arguments")
	}
	if o.quick {
		o.rounds = 1
	}
	return o, nil
}

func run(ctx context.Context, args []string) (err error) {
	o, err := parse(args)
	if err != nil {
		return err
	}
	chosen, err := choose(o)
	if err != nil {
		return err
	}
	if err := o.binaries(ctx); err != nil {
		return err
	}
	if err := localcluster.Build(ctx, os.Stderr, "", "kube-scheduler"); err != nil {
		return err
	}
	upCtx, cancel := context.WithTimeout(ctx, upTimeout)
	defer cancel()
	what, err := o.cluster()
	if err != nil {
		return err
	}
	cluster, err := localcluster.Up(upCtx, what)
	if err != nil {
		return err
	}
	defer func() {
		downCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), downTimeout)
		defer cancel()
		err = errors.Join(err, cluster.Down(downCtx))
	}()
	f, err := newFixture(cluster, o)
	if err != nil {
		return err
	}
	report := newReport(os.Stdout)
	for _, b := range chosen {
		if err := b.run(ctx, f, report); err != nil {
			report.summarize()
			return fmt.Errorf("running %s: %w", b.name(), err)
		}
	}
	report.summarize()
	return report.err()
}

// choose lists the benchmarks to run.
func choose(o options) ([]benchmark, error) {
	list := benchmarks
	if o.system {
		list = systems
	}
	if o.size {
		list = sizes
	}
	if o.upstream {
		var err error
		if list, err = upstreams(); err != nil {
			return nil, err
		}
	}
	var chosen []benchmark
	for _, b := range list {
		if o.run.MatchString(b.name()) && (!o.quick || short.MatchString(b.name())) {
			chosen = append(chosen, b)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("choosing benchmarks: none matches %s", o.run)
	}
	return chosen, nil
}

// cluster returns the cluster that they run on.
func (o options) cluster() (localcluster.Options, error) {
	what := localcluster.Options{
		Name: clusterName, WithoutKwok: !o.system, WithoutControllerManager: true,
		// Served for the comparison with native pod groups; only that scheduler uses it.
		FeatureGates: "GenericWorkload=true", RuntimeConfig: "scheduling.k8s.io/v1beta1=true",
	}
	if o.upstream {
		cases, err := upstreamCases()
		if err != nil {
			return what, err
		}
		what.FeatureGates = gates(cases...)
	}
	if o.system || o.size {
		root, err := localcluster.Root()
		if err != nil {
			return what, err
		}
		what.Manifests = []string{filepath.Join(root, "manifests", "crds")}
	}
	return what, nil
}

// binaries builds those that no flag names, with the version stamp that make gives them.
func (o *options) binaries(ctx context.Context) error {
	root, err := localcluster.Root()
	if err != nil {
		return err
	}
	o.descheduler = filepath.Join(root, "bin", "lockstep-descheduler")
	cmd := exec.CommandContext(ctx, "make", "--silent", "build")
	cmd.Dir, cmd.Stdout, cmd.Stderr = root, os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("building the commands: %w", err)
	}
	o.scheduler = cmp.Or(o.scheduler, filepath.Join(root, "bin", "lockstep-scheduler"))
	o.controller = cmp.Or(o.controller, filepath.Join(root, "bin", "lockstep-controller"))
	return nil
}

// progress informs the user who waits; it is no part of the results.
func progress(format string, args ...any) {
	_, _ = fmt.Fprintf(io.Writer(os.Stderr), time.Now().Format("15:04:05 ")+format+"\n", args...)
}
