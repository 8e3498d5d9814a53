package simulate

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"k8s.io/klog/v2"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/source"
)

// Environment is a cluster as it is. What it reads is without what is supposed.
type Environment struct {
	*source.Cluster
	// SchedulerConfig is the scheduler's configuration, nil for the built-in one, and Origin is where it comes from.
	SchedulerConfig []byte
	Origin          source.Origin
}

// Open looks for the cluster and the scheduler's configuration.
func Open(ctx context.Context, a *access.Access, s *source.Source) (*Environment, error) {
	if err := log(s.LogFile); err != nil {
		return nil, err
	}
	cluster, err := s.Cluster(a)
	if err != nil {
		return nil, err
	}
	g := &Environment{Cluster: cluster}
	dump, isDump := cluster.Base.(*source.Dump)
	if isDump {
		a.Note("the cluster is that of %s", dump.Taken.Local().Format(time.DateTime))
	}
	switch {
	case s.ConfigFile != "":
		if g.SchedulerConfig, err = os.ReadFile(s.ConfigFile); err != nil {
			return nil, fmt.Errorf("reading --scheduler-config: %w", err)
		}
		g.Origin.From = s.ConfigFile
	case !isDump:
		if g.SchedulerConfig, g.Origin.From, err = source.ConfigOf(ctx, a); err != nil {
			g.Origin.BuiltIn = err.Error()
		} else if g.SchedulerConfig == nil {
			g.Origin.BuiltIn = source.NoConfig
		}
	case dump.SchedulerConfig != "":
		g.SchedulerConfig, g.Origin.From = []byte(dump.SchedulerConfig), s.DumpFile
	default:
		g.Origin.BuiltIn = "the dump has none"
	}
	if !isDump {
		g.Origin.Lease, err = leaseOf(g.SchedulerConfig)
	}
	return g, err
}

// log directs the scheduler's log to a file, or nowhere, for the rest of the process.
func log(file string) error {
	to := os.DevNull
	if file != "" {
		created, err := os.Create(file) // klog ends the process where it cannot
		if err != nil {
			return fmt.Errorf("opening --scheduler-log: %w", err)
		}
		if err := created.Close(); err != nil {
			return fmt.Errorf("opening --scheduler-log: %w", err)
		}
		to = file
	}
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"log_file": to, "logtostderr": "false", "alsologtostderr": "false",
		"stderrthreshold": "FATAL", "one_output": "true"} {
		if err := flags.Set(name, value); err != nil {
			return fmt.Errorf("setting up the log: %w", err)
		}
	}
	return nil
}

// Ask calls a function with a simulation of the cluster that a question is about, in which no scheduler runs yet, and
// with the nodes to add once the answer without them is known; nil for none. The context ends at the timeout of the
// question.
func Ask(ctx context.Context, a *access.Access, q *source.Question,
	ask func(ctx context.Context, s *Simulation, more *source.More) error) error {
	more, err := q.More()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, q.Timeout)
	defer cancel()
	ground, err := Open(ctx, a, &q.Source)
	if err != nil {
		return err
	}
	simulation, err := New(ground)
	if err != nil {
		return err
	}
	defer simulation.Close()
	return ask(ctx, simulation, more)
}
