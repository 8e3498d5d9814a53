package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"time"

	"k8s.io/component-base/metrics/testutil"

	"github.com/lockstep-sh/lockstep/test/chaos/invariant"
	"github.com/lockstep-sh/lockstep/test/chaos/workload"
	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
	"github.com/lockstep-sh/lockstep/test/helpers/metrics"
)

// replica is one of the processes of a service. It is started again when it ends. It is safe for concurrent use.
type replica struct {
	name    string // "scheduler-1"
	target  workload.Target
	cluster *localcluster.Cluster
	seen    *observer
	health  *health
	binary  string
	args    []string
	scheme  string // of its addresses
	probes  int    // port of ready
	ready   string // "readyz"
	metrics int    // port of /metrics
	logFile string

	mu      sync.Mutex
	process *localcluster.Process
	stopped bool // by SIGSTOP
	// logStart is where in the log this process begins.
	logStart int64
	// holder is the name of this process in the lease; empty as long as it has not led.
	holder   string
	starts   int
	lostRuns int // ends after a lease that was lost to a fault
	over     bool
}

// leaseLost matches what the services log when they end because they lead no more.
var leaseLost = regexp.MustCompile(`(?i)leader ?election lost|leader lost|lease is lost|lease \S+ ran out`)

// aftermath is how long after a fault a replica may lose its lease to it.
const aftermath = 15 * time.Second

// start starts the process.
func (r *replica) start() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logStart = 0
	if info, err := os.Stat(r.logFile); err == nil {
		r.logStart = info.Size()
	}
	process, err := r.cluster.Start(r.name, r.binary, r.args, r.logFile)
	if err != nil {
		return err
	}
	r.process, r.stopped, r.holder = process, false, ""
	r.starts++
	go r.watch(process)
	return nil
}

// watch starts the process again if it ends otherwise than by this run.
func (r *replica) watch(process *localcluster.Process) {
	<-process.Done()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process != process || r.over {
		return // kill has taken it away
	}
	r.process = nil
	tail := r.tail(tailBytes)
	lost := leaseLost.MatchString(r.tail(endBytes))
	since, why := r.health.lastFault()
	if lost && since < aftermath {
		r.lostRuns++
		r.seen.fault("%s has lost its lease, %.1f s after %s, and is started again", r.name, since.Seconds(), why)
	} else {
		r.seen.report(invariant.Process, r.name, "it ended (%v), %.1f s after the last fault (%s); the end of its log:\n%s", process.Err(), since.Seconds(), why, tail)
	}
	go func() {
		if err := r.start(); err != nil {
			r.seen.report(invariant.Process, r.name, "%v", err)
		}
	}()
}

const (
	// tailBytes is how much of the end of a log is shown.
	tailBytes = 800
	// endBytes is how much of it may say why a process ended: what was under way fails too, and is logged.
	endBytes = 64 << 10
)

// tail returns the end of the log of this process.
func (r *replica) tail(bytes int) string {
	data, err := os.ReadFile(r.logFile)
	if err != nil {
		return err.Error()
	}
	return string(data[max(int(r.logStart), len(data)-bytes, 0):])
}

// kill ends the process as a crash would.
func (r *replica) kill() error {
	r.mu.Lock()
	process := r.process
	r.process = nil
	r.mu.Unlock()
	if process == nil {
		return nil
	}
	return process.Kill()
}

// freeze stops the process, or lets it go on.
func (r *replica) freeze(still bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = still
	if r.process == nil {
		return nil
	}
	if still {
		return r.process.Signal(syscall.SIGSTOP)
	}
	return r.process.Signal(syscall.SIGCONT)
}

// end ends the process for good.
func (r *replica) end() error {
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	return r.kill()
}

// works reports whether the process runs and is not stopped.
func (r *replica) works() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.process != nil && !r.stopped
}

func (r *replica) holds() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.holder
}

// metricsTimeout bounds a look at metrics: the machine may be busy, but a process that is stopped does not answer.
const metricsTimeout = 700 * time.Millisecond

// readMetrics returns the metrics of the process.
func (r *replica) readMetrics(ctx context.Context) (testutil.Metrics, error) {
	ctx, cancel := context.WithTimeout(ctx, metricsTimeout)
	defer cancel()
	served, err := metrics.Of(ctx, fmt.Sprintf("%s://127.0.0.1:%d", r.scheme, r.metrics))
	if err != nil {
		return nil, fmt.Errorf("reading metrics of %s: %w", r.name, err)
	}
	return served, nil
}

// acquired is what client-go logs when a process begins to lead.
const acquired = "successfully acquired lease"

// claims reports whether the log of the process says that it leads, and takes it to be the holder of the lease from
// then on. The log is read, since not every scheduler has the metric.
func (r *replica) claims(holder string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process == nil || r.stopped || r.holder != "" {
		return false
	}
	log, err := readFrom(r.logFile, r.logStart)
	if err != nil || !bytes.Contains(bytes.ToLower(log), []byte(acquired)) {
		return false
	}
	r.holder = holder
	return true
}

// readFrom reads a file from an offset on.
func readFrom(path string, offset int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading a log: %w", err)
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.NewSectionReader(file, offset, 1<<40))
	if err != nil {
		return nil, fmt.Errorf("reading a log: %w", err)
	}
	return data, nil
}

// waitReady waits until the process serves.
func (r *replica) waitReady(ctx context.Context) error {
	r.mu.Lock()
	process := r.process
	r.mu.Unlock()
	if process == nil {
		return fmt.Errorf("waiting for %s: it does not run", r.name)
	}
	return process.WaitReady(ctx, fmt.Sprintf("%s://127.0.0.1:%d/%s", r.scheme, r.probes, r.ready))
}

// logPath returns where the log of a replica is.
func logPath(dir, name string) string { return filepath.Join(dir, name+".log") }
