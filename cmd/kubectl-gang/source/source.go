// Package source is what the commands read that ask what the scheduler would do: the flags of the question, and the
// cluster, which runs or is a dump of one. It has no scheduler.
package source

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
)

// Source is flags: which cluster the scheduler is asked about, and by which configuration.
type Source struct {
	ConfigFile, LogFile, DumpFile string
	cluster                       *Cluster
}

// AddFlags adds them.
func (s *Source) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&s.ConfigFile, "scheduler-config", "",
		"The scheduler's configuration. By default that which the Deployment lockstep-scheduler mounts, "+
			"or else the built-in one.")
	flags.StringVar(&s.DumpFile, "dump", "", "Answer for a cluster as kubectl gang dump saved it.")
	flags.StringVar(&s.LogFile, "scheduler-log", "",
		"Where to write the log of the scheduler that decides. Without it there is none.")
}

// Cluster returns the cluster that is asked about, the same one each time. A live one is not read yet.
func (s *Source) Cluster(a *access.Access) (_ *Cluster, err error) {
	if s.cluster == nil {
		s.cluster, err = s.open(a)
	}
	return s.cluster, err
}

func (s *Source) open(a *access.Access) (*Cluster, error) {
	if s.DumpFile == "" {
		config, err := a.Config()
		if err != nil {
			return nil, err
		}
		base, err := Live(config)
		if err != nil {
			return nil, err
		}
		return &Cluster{base}, nil
	}
	file, err := os.Open(s.DumpFile)
	if err != nil {
		return nil, fmt.Errorf("opening --dump: %w", err)
	}
	defer file.Close()
	dump, err := ReadDump(file)
	if err != nil {
		return nil, fmt.Errorf("reading --dump %s: %w", s.DumpFile, err)
	}
	return &Cluster{dump}, nil
}

// Question is the flags of commands that ask what would be.
type Question struct {
	Source
	Timeout time.Duration
	nodes   string
}

// AddFlags adds them.
func (q *Question) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&q.nodes, "nodes", "",
		"Also answer for more nodes: +COUNT:POOL. POOL is a node, KEY=VALUE of a label, or the name of a pool.")
	flags.DurationVar(&q.Timeout, "timeout", 30*time.Second, "How long the answer may take.")
	q.Source.AddFlags(flags)
}

// More is nodes that are supposed to be added: so many like those of a pool.
type More struct {
	Count int
	Pool  string
}

// maxMore is the most nodes that may be added.
const maxMore = 10000

// More returns the nodes to add once the answer without them is known; nil for none.
func (q *Question) More() (*More, error) {
	if q.nodes == "" {
		return nil, nil
	}
	number, pool, ok := strings.Cut(strings.TrimPrefix(q.nodes, "+"), ":")
	count, err := strconv.Atoi(number)
	if err != nil || !ok || count < 1 || count > maxMore || pool == "" {
		return nil, fmt.Errorf("checking --nodes: %q is not +COUNT:POOL, such as +4:a100, with a count from 1 to %d",
			q.nodes, maxMore)
	}
	return &More{Count: count, Pool: pool}, nil
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
