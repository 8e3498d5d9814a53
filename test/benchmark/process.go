package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics/testutil"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
	"github.com/lockstep-sh/lockstep/test/helpers/metrics"
)

// kind is one of the schedulers that are compared.
type kind struct {
	name          string // in results
	schedulerName string // in pods
	gates         string // its feature gates, as a flag has them
}

var (
	stock = kind{name: "stock", schedulerName: v1.DefaultSchedulerName}
	// native is the stock scheduler with its own pod groups switched on.
	native = kind{name: "native", schedulerName: v1.DefaultSchedulerName, gates: "GenericWorkload=true"}
	ours   = kind{name: "ours", schedulerName: "lockstep-scheduler"}
)

// stockConfig gives the stock scheduler the client limits that ours has by default.
const stockConfig = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  kubeconfig: %q
  qps: 2000
  burst: 4000
`

// process is a scheduler or a lockstep-controller that runs.
type process struct {
	*localcluster.Process
	url     string
	started time.Time
}

// start starts a scheduler.
func (f *fixture) start(k kind) (*process, error) {
	port, err := localcluster.FreePort()
	if err != nil {
		return nil, err
	}
	args := []string{
		"--leader-elect=false", "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--authorization-always-allow-paths=/readyz,/metrics",
	}
	binary := f.scheduler
	if k.gates != "" {
		args = append(args, "--feature-gates="+k.gates)
	}
	text := ""
	switch k {
	case ours:
		args = append(args, "--kubeconfig="+f.cluster.Kubeconfig())
	case fair:
		text = fairConfig
	default:
		text = stockConfig
	}
	if text != "" {
		config := filepath.Join(f.cluster.Dir(), k.name+"-scheduler.yaml")
		if err := os.WriteFile(config, fmt.Appendf(nil, text, f.cluster.Kubeconfig()), 0o600); err != nil {
			return nil, fmt.Errorf("configuring a scheduler: %w", err)
		}
		args = append(args, "--config="+config)
	}
	if k.schedulerName == v1.DefaultSchedulerName {
		if binary, err = localcluster.Binary("kube-scheduler"); err != nil {
			return nil, err
		}
	}
	return f.startProcess(k.name, binary, args, fmt.Sprintf("https://127.0.0.1:%d", port))
}

// startProcess starts a process that serves at a URL.
func (f *fixture) startProcess(name, binary string, args []string, url string) (*process, error) {
	p := &process{started: time.Now(), url: url}
	var err error
	p.Process, err = f.cluster.Start(name, binary, args, "")
	return p, err
}

// startWatched starts a scheduler, with bindings watched before, and returns when it schedules.
func (f *fixture) startWatched(ctx context.Context, k kind) (*bindings, *process, error) {
	seen, err := watchBindings(ctx, f.client)
	if err != nil {
		return nil, nil, err
	}
	s, err := f.start(k)
	if err != nil {
		return nil, nil, err
	}
	if err := s.ready(ctx, readyPath); err != nil {
		return nil, nil, errors.Join(err, s.stop())
	}
	return seen, s, nil
}

// startController starts a lockstep-controller, as the manifests do except for the lease, and waits until it serves.
func (f *fixture) startController(ctx context.Context) error {
	port, err := localcluster.FreePort()
	if err != nil {
		return err
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	f.statusKeeper, err = f.startProcess("controller", f.controller, []string{
		"--kubeconfig=" + f.cluster.Kubeconfig(), "--metrics-secure=false", "--metrics-bind-address=" + address, "--health-probe-bind-address=0",
	}, "http://"+address)
	if err != nil {
		return err
	}
	return f.statusKeeper.ready(ctx, "/metrics")
}

// stopController ends the one that runs, if any does.
func (f *fixture) stopController() error {
	c := f.statusKeeper
	if c == nil {
		return nil
	}
	f.statusKeeper = nil
	return c.stop()
}

// readyPath is where a scheduler reports whether it schedules.
const readyPath = "/readyz"

// ready waits until the process answers at a path.
func (p *process) ready(ctx context.Context, path string) error {
	err := p.WaitReady(ctx, p.url+path)
	if p.ended() {
		return p.died()
	}
	return err
}

// metrics returns all that it serves now.
func (p *process) metrics(ctx context.Context) (testutil.Metrics, error) {
	return metrics.Of(ctx, p.url)
}

const stopTimeout = 10 * time.Second

// stop ends the process.
func (p *process) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return p.Stop(ctx)
}

func (p *process) ended() bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

// died returns the error of a process that ended by itself.
func (p *process) died() error {
	const tail = 2000
	log, _ := os.ReadFile(p.LogFile)
	return fmt.Errorf("running %s: it ended: %w\n%s", p.Name, p.Err(), log[max(0, len(log)-tail):])
}

// measureController adds what lockstep-controller has used since its start to values that have what the scheduler has.
func (f *fixture) measureController(ctx context.Context, v values, pods, gangs int) error {
	c := f.statusKeeper
	cpu, err := cpuOf(c.Pid())
	if err != nil {
		return err
	}
	if v["controller-peak-MiB"], err = peakOf(c.Pid()); err != nil {
		return err
	}
	served, err := c.metrics(ctx)
	if err != nil {
		return err
	}
	written := 0.0
	for _, s := range served["rest_client_requests_total"] {
		if writing[string(s.Metric["method"])] {
			written += float64(s.Value)
		}
	}
	v["controller-cpu-ms/pod"] = ms(cpu) / float64(pods)
	v["system-cpu-ms/pod"] += v["controller-cpu-ms/pod"]
	v["controller-writes/gang"] = written / float64(gangs)
	return nil
}
