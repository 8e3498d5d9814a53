package simulate

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang-forecast/overlayserver"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
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
	// SchedulerConfig is the scheduler's configuration, nil for the built-in one, and Origin is where it comes from.
	SchedulerConfig []byte
	Origin          Origin
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

// Open looks for the cluster and the scheduler's configuration.
func (s *Source) Open(ctx context.Context, a *access.Access) (*Ground, error) {
	if err := s.log(); err != nil {
		return nil, err
	}
	base, err := s.base(a)
	if err != nil {
		return nil, err
	}
	g := &Ground{Base: base}
	dump, isDump := base.(*overlayserver.Dump)
	if isDump {
		a.Note("the cluster is that of %s", dump.Taken.Local().Format(time.DateTime))
	}
	switch {
	case s.configFile != "":
		if g.SchedulerConfig, err = os.ReadFile(s.configFile); err != nil {
			return nil, fmt.Errorf("reading --scheduler-config: %w", err)
		}
		g.Origin.From = s.configFile
	case !isDump:
		if err := g.find(ctx, a); err != nil {
			return nil, err
		}
	case dump.SchedulerConfig != "":
		g.SchedulerConfig, g.Origin.From = []byte(dump.SchedulerConfig), s.dumpFile
	default:
		g.Origin.BuiltIn = "the dump has none"
	}
	if !isDump {
		g.Origin.Lease, err = leaseOf(g.SchedulerConfig)
	}
	return g, err
}

// base looks for the cluster. A live one is not read yet.
func (s *Source) base(a *access.Access) (overlayserver.Base, error) {
	if s.dumpFile == "" {
		config, err := a.Config()
		if err != nil {
			return nil, err
		}
		return overlayserver.Live(config)
	}
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

// find looks for the configuration of the scheduler that runs in the cluster. Where there is none, the built-in one is
// used.
func (g *Ground) find(ctx context.Context, a *access.Access) error {
	config, err := a.Config()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	g.SchedulerConfig, g.Origin.From, err = ConfigOf(ctx, client)
	switch {
	case err != nil:
		g.Origin.BuiltIn = err.Error()
	case g.SchedulerConfig == nil:
		g.Origin.BuiltIn = "neither a Deployment of lockstep-scheduler nor a ConfigMap kube-system/" + configMap + " was found"
	}
	return nil
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

// Check returns what is wrong with the question itself, whatever the cluster is like.
func (q *Question) Check() error {
	_, err := readMore(q.nodes)
	return err
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
