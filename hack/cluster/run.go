package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applyv1 "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
)

const (
	schedulerName  = "lockstep-scheduler"
	controllerName = "lockstep-controller"
	// configMap is where kubectl gang looks for the configuration of a scheduler that no Deployment runs.
	configMap = "lockstep-scheduler-config"

	// stopTimeout bounds how long the processes may take to end.
	stopTimeout = 10 * time.Second
)

// runBoth runs the scheduler in the foreground and the controller beside it, until the scheduler ends.
// Arguments after -- are the scheduler's.
func runBoth(ctx context.Context, args []string) (err error) {
	flags := newFlags("run")
	name := flags.String("name", localcluster.DefaultName, "name of the cluster")
	if err := flags.Parse(args); err != nil {
		return err
	}
	c, err := localcluster.Get(*name)
	if err != nil {
		return err
	}
	root, err := localcluster.Root()
	if err != nil {
		return err
	}
	bin := filepath.Join(root, "bin")
	controller, err := c.Start(controllerName, filepath.Join(bin, controllerName), []string{
		"--kubeconfig=" + c.Kubeconfig(), "--metrics-bind-address=0", "--health-probe-bind-address=0",
	}, "")
	if err != nil {
		return err
	}
	defer func() {
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		err = errors.Join(err, controller.Stop(stopCtx))
	}()
	fmt.Printf("%s runs, too; its log is %s. Ctrl-C ends both.\n", controllerName, controller.LogFile)
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-controller.Done():
			fmt.Fprintf(os.Stderr, "%s has ended (%v): no status is written any more. See %s\n", controllerName, controller.Err(), controller.LogFile)
		case <-ended:
		}
	}()
	if err := publish(ctx, c, root, flags.Args()); err != nil {
		return err
	}
	args = append([]string{"--kubeconfig=" + c.Kubeconfig(), "--bind-address=127.0.0.1"}, flags.Args()...)
	return foreground(ctx, filepath.Join(bin, schedulerName), args)
}

// publish writes the configuration that a scheduler with these flags runs with to the ConfigMap where kubectl gang
// looks for it.
func publish(ctx context.Context, c *localcluster.Cluster, root string, args []string) error {
	file := filepath.Join(root, "cmd", "scheduler", "app", "default.yaml")
	for i, arg := range args {
		if value, ok := strings.CutPrefix(arg, "--config="); ok {
			file = value
		} else if arg == "--config" && i+1 < len(args) {
			file = args[i+1]
		}
	}
	config, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading the scheduler's configuration: %w", err)
	}
	maps := c.Clientset().CoreV1().ConfigMaps(metav1.NamespaceSystem)
	object := applyv1.ConfigMap(configMap, metav1.NamespaceSystem).WithData(map[string]string{"config.yaml": string(config)})
	if _, err := maps.Apply(ctx, object, metav1.ApplyOptions{FieldManager: "make-run", Force: true}); err != nil {
		return fmt.Errorf("publishing the scheduler's configuration: %w", err)
	}
	return nil
}

// nameArgument returns what make needs to mean a cluster.
func nameArgument(name string) string {
	if name == localcluster.DefaultName {
		return ""
	}
	return " NAME=" + name
}

// foreground runs a program, on a terminal in the foreground: Ctrl-C then reaches it and no other
// process, so that make, which waits for this process, sees it end and is not itself interrupted.
func foreground(ctx context.Context, program string, args []string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopTimeout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	terminal := int(os.Stdin.Fd())
	if group, err := unix.IoctlGetInt(terminal, unix.TIOCGPGRP); err == nil && group == syscall.Getpgrp() {
		cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, terminal
		signal.Ignore(syscall.SIGTTOU) // else taking the terminal back would stop this process
		defer func() { _ = unix.IoctlSetPointerInt(terminal, unix.TIOCSPGRP, group) }()
	}
	err := cmd.Run()
	if err != nil && !asked(cmd.ProcessState) {
		return fmt.Errorf("running %s: %w", filepath.Base(program), err)
	}
	return nil
}

// asked reports whether a process ended well, or because it was asked to before it could heed that.
func asked(state *os.ProcessState) bool {
	if state == nil {
		return false
	}
	status, ok := state.Sys().(syscall.WaitStatus)
	return state.Success() || ok && status.Signaled() && (status.Signal() == syscall.SIGINT || status.Signal() == syscall.SIGTERM)
}
