package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
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

// scheduler is one that runs.
type scheduler struct {
	served
	started time.Time
}

// start starts a scheduler. label names the profiles.
func (f *fixture) start(k kind, label string) (*scheduler, error) {
	port, err := localcluster.FreePort()
	if err != nil {
		return nil, err
	}
	args := []string{
		"--leader-elect=false", "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--authorization-always-allow-paths=/readyz,/metrics,/debug/*",
	}
	binary := f.scheduler
	if k.gates != "" {
		args = append(args, "--feature-gates="+k.gates)
	}
	config, text := f.config, ""
	switch k {
	case ours:
	case fair:
		text = fairConfig
	default:
		text = stockConfig
	}
	if text != "" {
		config = filepath.Join(f.cluster.Dir(), k.name+"-scheduler.yaml")
		if err := os.WriteFile(config, fmt.Appendf(nil, text, f.cluster.Kubeconfig()), 0o600); err != nil {
			return nil, fmt.Errorf("configuring a scheduler: %w", err)
		}
	}
	if k.schedulerName == v1.DefaultSchedulerName {
		if binary, err = localcluster.Binary("kube-scheduler"); err != nil {
			return nil, err
		}
	}
	if config != "" {
		args = append(args, "--config="+config)
	}
	if text == "" {
		args = append(args, "--kubeconfig="+f.cluster.Kubeconfig())
	}
	s := &scheduler{started: time.Now(), served: serving(fmt.Sprintf("https://127.0.0.1:%d", port))}
	if s.Process, err = f.cluster.Start(k.name, binary, args, ""); err != nil {
		return nil, err
	}
	if f.profiles != "" {
		s.profile(f.profileOf(label, k.name))
	}
	return s, nil
}

// startWatched starts a scheduler, with bindings watched before, and returns when it schedules.
func (f *fixture) startWatched(ctx context.Context, k kind, label string) (*bindings, *scheduler, error) {
	seen, err := watchBindings(ctx, f.client)
	if err != nil {
		return nil, nil, err
	}
	s, err := f.start(k, label)
	if err != nil {
		return nil, nil, err
	}
	if err := s.ready(ctx, readyPath); err != nil {
		return nil, nil, errors.Join(err, s.stop())
	}
	return seen, s, nil
}

// readyPath is where a scheduler reports whether it schedules.
const readyPath = "/readyz"

// ready waits until a process answers at a path.
func (s *served) ready(ctx context.Context, path string) error {
	err := s.WaitReady(ctx, s.url+path)
	if s.ended() {
		return s.died()
	}
	return err
}

// died returns the error of a process that ended by itself.
func (s *served) died() error {
	const tail = 2000
	log, _ := os.ReadFile(s.LogFile)
	return fmt.Errorf("running %s: it ended: %w\n%s", s.Name, s.Err(), log[max(0, len(log)-tail):])
}
