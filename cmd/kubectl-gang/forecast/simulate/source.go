package simulate

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/forecast/overlayserver"
)

// Source is what a simulation begins with.
type Source struct {
	configFile, logFile, dumpFile string
}

// AddFlags adds the flags that set it.
func (s *Source) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&s.configFile, "scheduler-config", "", "The scheduler's configuration. Without it that which the Deployment of lockstep-scheduler mounts counts, or else the built-in one.")
	flags.StringVar(&s.dumpFile, "dump", "", "A dump of a cluster, by kubectl gang dump, to be taken for the cluster.")
	flags.StringVar(&s.logFile, "scheduler-log", "", "Where to write the log of the scheduler that decides. Without it there is none.")
}

// Ground is a cluster as it is.
type Ground struct {
	Base overlayserver.Base
	// ConfigFile is the scheduler's configuration; empty for the embedded one.
	ConfigFile string
	// SchedulerConfig is what is in it, and Origin is where it comes from.
	SchedulerConfig []byte
	Origin          Origin
	dir             string
}

// Origin is where the configuration comes from with which a scheduler simulates.
type Origin struct {
	// From says where it was found: a ConfigMap, a file or a dump; empty for the built-in one.
	From string `json:"from,omitempty"`
	// BuiltIn is why the built-in one is used; empty where it is not.
	BuiltIn string `json:"builtInBecause,omitempty"`
	// Lease is the namespace/name of the lease whose holder schedules the cluster, by this configuration; empty where it
	// has no leader election, and for a dump.
	Lease string `json:"lease,omitempty"`
}

// String says with which configuration something was predicted.
func (o Origin) String() string {
	if o.BuiltIn != "" {
		return "the built-in configuration, since " + o.BuiltIn + ": name the scheduler's by --scheduler-config"
	}
	return "the scheduler's configuration of " + o.From
}

// Close removes what was written to files.
func (g *Ground) Close() { _ = os.RemoveAll(g.dir) } // a directory for temporary files

// Open looks for the cluster and the scheduler's configuration.
func (s *Source) Open(ctx context.Context, a *access.Access) (*Ground, error) {
	if err := s.log(); err != nil {
		return nil, err
	}
	g := &Ground{}
	config, err := s.base(ctx, a, g)
	if err == nil && s.dumpFile == "" {
		g.Origin.Lease, err = leaseOf(config)
	}
	if err == nil {
		g.dir, err = os.MkdirTemp("", "kubectl-gang")
	}
	if err == nil && config != nil {
		g.SchedulerConfig = config
		g.ConfigFile, err = WriteConfig(g.dir, config)
	}
	if err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// base looks for the cluster, and returns the scheduler's configuration; nil for the embedded one.
func (s *Source) base(ctx context.Context, a *access.Access, g *Ground) ([]byte, error) {
	if s.dumpFile != "" {
		dump, err := s.dump()
		if err != nil {
			return nil, err
		}
		g.Base = dump
		a.Note("the cluster is that of %s", dump.Taken.Local().Format(time.DateTime))
		if s.configFile == "" && dump.SchedulerConfig != "" {
			g.Origin.From = s.dumpFile
			return []byte(dump.SchedulerConfig), nil
		}
		return s.config(ctx, nil, &g.Origin)
	}
	config, err := a.Config()
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = -1, 0
	if g.Base, err = overlayserver.Live(config); err != nil {
		return nil, err
	}
	return s.config(ctx, config, &g.Origin)
}

// dump reads the dump that is taken for the cluster.
func (s *Source) dump() (*overlayserver.Dump, error) {
	file, err := os.Open(s.dumpFile)
	if err != nil {
		return nil, fmt.Errorf("opening --dump: %w", err)
	}
	defer file.Close()
	dump, err := overlayserver.ReadDump(file)
	if err != nil {
		return nil, fmt.Errorf("reading --dump %s: %w", s.dumpFile, err)
	}
	return dump, nil
}

// log directs the scheduler's log to where it was asked for, for the rest of the process.
func (s *Source) log() error {
	to := os.DevNull
	if s.logFile != "" {
		file, err := os.Create(s.logFile) // klog ends the process where it cannot
		if err != nil {
			return fmt.Errorf("opening --scheduler-log: %w", err)
		}
		if err := file.Close(); err != nil {
			return fmt.Errorf("opening --scheduler-log: %w", err)
		}
		to = s.logFile
	}
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"log_file": to, "logtostderr": "false", "alsologtostderr": "false", "stderrthreshold": "FATAL", "one_output": "true"} {
		if err := flags.Set(name, value); err != nil {
			return fmt.Errorf("setting up the log: %w", err)
		}
	}
	return nil
}

// config returns the scheduler's configuration, of the flag or of the cluster; nil for the embedded one.
func (s *Source) config(ctx context.Context, config *rest.Config, origin *Origin) ([]byte, error) {
	if s.configFile != "" {
		text, err := os.ReadFile(s.configFile)
		if err != nil {
			return nil, fmt.Errorf("reading --scheduler-config: %w", err)
		}
		origin.From = s.configFile
		return text, nil
	}
	if config == nil {
		origin.BuiltIn = "the dump has none"
		return nil, nil
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	text, where, err := ConfigOf(ctx, client)
	switch origin.From = where; {
	case err != nil:
		origin.BuiltIn = err.Error()
	case text == nil:
		origin.BuiltIn = "neither a Deployment of lockstep-scheduler nor a ConfigMap kube-system/" + configMap + " was found"
	}
	return text, nil
}

// Question is the flags of commands that ask what would be.
type Question struct {
	source  Source
	nodes   string
	timeout time.Duration
}

// AddFlags adds them.
func (q *Question) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&q.nodes, "nodes", "", "Tell also what would be with more nodes: +COUNT:POOL. POOL is a node, KEY=VALUE of a label, or the name of a pool.")
	flags.DurationVar(&q.timeout, "timeout", 30*time.Second, "How long the answer may take.")
	q.source.AddFlags(flags)
}

// Ask calls a function with a simulation of the cluster, in which no scheduler runs yet, and with the nodes to add once
// the answer without them is known; nil for none. The context ends at the timeout of the question.
func (q *Question) Ask(ctx context.Context, a *access.Access, ask func(ctx context.Context, s *Simulation, more *More) error) error {
	more, err := readMore(q.nodes)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	ground, err := q.source.Open(ctx, a)
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
