package localcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

const apiServer = "kube-apiserver"

// KillAPIServer ends the API server as a crash would. What it stored stays in etcd.
func (c *Cluster) KillAPIServer(ctx context.Context) error {
	pid, err := c.ComponentPID(apiServer)
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("killing the API server: %w", err)
	}
	for startTime(pid) != "" {
		if err := await.Pause(ctx, killPoll); err != nil {
			return fmt.Errorf("waiting for the API server to end: %w", err)
		}
	}
	// kwokctl asks the pid file, and takes a zombie for a running process.
	if err := os.Remove(c.pidFile(apiServer)); err != nil {
		return fmt.Errorf("forgetting the process of the API server: %w", err)
	}
	return nil
}

// SignalAPIServer sends the API server a signal: SIGSTOP stops it, SIGCONT lets it go on.
func (c *Cluster) SignalAPIServer(s syscall.Signal) error {
	pid, err := c.ComponentPID(apiServer)
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, s); err != nil {
		return fmt.Errorf("signalling the API server: %w", err)
	}
	return nil
}

// StartAPIServer starts it again, on the same port, and returns when it serves. An API server that ends before
// it serves is started again, a few times, as a kubelet would; the error has the end of its log.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		err := c.startAPIServer(ctx)
		if err == nil {
			return nil
		}
		if !errors.Is(err, errEnded) || attempt == startAttempts {
			return fmt.Errorf("starting the API server, attempt %d: %w%s", attempt, err, c.tailLog(apiServer))
		}
		if err := os.Remove(c.pidFile(apiServer)); err != nil {
			return fmt.Errorf("forgetting the process of the API server: %w", err)
		}
	}
}

// startAPIServer starts it once. The error wraps errEnded if it has ended.
func (c *Cluster) startAPIServer(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go c.watchComponents(ctx, cancel, []string{apiServer})
	if err := c.kwokctl(ctx, "start", "cluster"); err != nil {
		return err
	}
	return c.waitServing(ctx)
}
