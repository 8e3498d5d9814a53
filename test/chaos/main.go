package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
)

// errViolated is the error of a run in which an invariant did not hold, errLittle of one that shows
// too little.
var (
	errViolated = errors.New("an invariant did not hold")
	errLittle   = errors.New("the run shows too little")
)

// exitLittle is the exit code when the run shows too little, and nothing else is wrong.
const exitLittle = 3

func main() {
	// Ctrl-C ends the run, which then cleans up; a second one ends it at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		if errors.Is(err, errLittle) {
			os.Exit(exitLittle)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	root, err := localcluster.Root()
	if err != nil {
		return err
	}
	o := Options{Progress: os.Stderr}
	minutes := flag.Float64("minutes", 5, "how long gangs come and faults happen")
	hours := flag.Float64("hours", 0, "instead of -minutes: a steady load for so long, few faults, and nothing may grow")
	flag.Uint64Var(&o.Seed, "seed", uint64(time.Now().UnixNano()%1e6), "what the plan is made from")
	flag.BoolVar(&o.Queues, "queues", false, "with FairShare on, and all gangs in queues")
	flag.BoolVar(&o.Reservations, "reservations", false, "with Reservations for many of the gangs and pods")
	flag.BoolVar(&o.Moves, "moves", false, "with a descheduler that moves pods to make room for gangs that wait")
	flag.BoolVar(&o.BadInput, "badinput", true, "add objects that make no sense")
	flag.BoolVar(&o.Faults, "faults", true, "make faults happen")
	flag.IntVar(&o.Kubelets, "kubelets", 0, "how many nodes are run by kubelets, in place of 64 by KWOK")
	flag.StringVar(&o.Scheduler, "scheduler", filepath.Join(root, "bin", "lockstep-scheduler"), `the scheduler's binary, or "stock" for kube-scheduler itself`)
	flag.Parse()
	if *minutes <= 0 || *hours < 0 {
		return fmt.Errorf("reading -minutes and -hours: %g or %g is too little", *minutes, *hours)
	}
	if o.Moves && o.Scheduler == stock {
		return errors.New("reading -moves: the stock scheduler knows no Reservations; take -scheduler away")
	}
	o.Length = time.Duration(*minutes * float64(time.Minute))
	if o.Steady = *hours > 0; o.Steady {
		o.Length = time.Duration(*hours * float64(time.Hour))
	}
	quietKlog()
	report, err := Run(ctx, o)
	if report != nil {
		fmt.Print(report)
		if report.Violated() {
			err = errors.Join(err, fmt.Errorf("checking the invariants: %w, seed %d", errViolated, o.Seed))
		}
		if little := report.Little(); little != "" && err == nil {
			err = fmt.Errorf("%w: %s", errLittle, little)
		}
	}
	return err
}

// quietKlog makes client-go log nothing about the API server that the run kills.
func quietKlog() { klog.SetLogger(logr.Discard()) }
