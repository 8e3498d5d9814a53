package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/test/localcluster"
)

// kind is one of the schedulers that are compared.
type kind struct {
	name          string // in results
	schedulerName string // in pods
}

var (
	stock = kind{"stock", v1.DefaultSchedulerName}
	// native is the stock scheduler with its own pod groups switched on.
	native = kind{"native", v1.DefaultSchedulerName}
	ours   = kind{"ours", "lockstep-scheduler"}
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
	*localcluster.Process
	started time.Time
	port    int
	client  *http.Client
	// stopProfile ends the taking of profiles and waits for the last one.
	stopProfile func()
}

// start starts a scheduler. label names the profiles.
func (f *fixture) start(k kind, label string) (*scheduler, error) {
	port, err := localcluster.FreePort()
	if err != nil {
		return nil, err
	}
	args := []string{
		"--leader-elect=false", "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--authorization-always-allow-paths=/readyz,/debug/*",
	}
	binary := f.scheduler
	if k == native {
		args = append(args, "--feature-gates=GenericWorkload=true")
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
	s := &scheduler{
		started: time.Now(), port: port, stopProfile: func() {},
		// A self-signed certificate that it makes when it starts.
		client: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}},
	}
	if s.Process, err = f.cluster.Start(k.name, binary, args, ""); err != nil {
		return nil, err
	}
	if f.profiles != "" {
		s.profile(filepath.Join(f.profiles, strings.NewReplacer("/", ",", "=", "").Replace(label)+","+k.name))
	}
	return s, nil
}

func (s *scheduler) get(ctx context.Context, path string, into io.Writer) error {
	url := fmt.Sprintf("https://127.0.0.1:%d%s", s.port, path)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("asking the scheduler: %w", err)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return fmt.Errorf("asking the scheduler: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("asking the scheduler: %s says %s", path, response.Status)
	}
	if _, err := io.Copy(into, response.Body); err != nil {
		return fmt.Errorf("asking the scheduler: %w", err)
	}
	return nil
}

const servingPoll = 20 * time.Millisecond

// ready waits until the scheduler schedules.
func (s *scheduler) ready(ctx context.Context) error {
	for {
		if err := s.get(ctx, "/readyz", io.Discard); err == nil {
			return nil
		}
		select {
		case <-s.Done():
			return s.died()
		case <-ctx.Done():
			return fmt.Errorf("waiting for the scheduler: %w", context.Cause(ctx))
		case <-time.After(servingPoll):
		}
	}
}

// died is the error of a scheduler that ended by itself.
func (s *scheduler) died() error {
	const tail = 2000
	log, _ := os.ReadFile(s.LogFile)
	return fmt.Errorf("running %s: it ended: %w\n%s", s.Name, s.Err(), log[max(0, len(log)-tail):])
}

// slice is the length of one profile. A profile has a fixed length, and a run has not, so that a run
// is profiled in slices, which go tool pprof merges.
const slice = 2 * time.Second

// profile takes CPU profiles until stopProfile is called, which also takes one of all allocations.
func (s *scheduler) profile(path string) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for n := 0; ctx.Err() == nil; {
			cpu := fmt.Sprintf("/debug/pprof/profile?seconds=%d", slice/time.Second)
			if err := s.profileInto(fmt.Sprintf("%s-%d.pb.gz", path, n), cpu); err != nil {
				_ = pause(ctx, servingPoll) // it does not serve yet
				continue
			}
			n++
		}
	})
	s.stopProfile = func() {
		cancel()
		done.Wait()
		if err := s.profileInto(path+"-allocs.pb.gz", "/debug/pprof/allocs"); err != nil {
			progress("taking a profile: %v", err)
		}
	}
}

// profileInto saves what the scheduler answers.
func (s *scheduler) profileInto(name, path string) error {
	file, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("writing a profile: %w", err)
	}
	if err := errors.Join(s.get(context.Background(), path, file), file.Close()); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return nil
}

const stopTimeout = 10 * time.Second

// stop ends the scheduler.
func (s *scheduler) stop() error {
	s.stopProfile()
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return s.Stop(ctx)
}

func (s *scheduler) ended() bool {
	select {
	case <-s.Done():
		return true
	default:
		return false
	}
}
