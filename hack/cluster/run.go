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
	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applyv1 "k8s.io/client-go/applyconfigurations/core/v1"
	applyrbacv1 "k8s.io/client-go/applyconfigurations/rbac/v1"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/yaml"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
)

const (
	schedulerName   = "lockstep-scheduler"
	controllerName  = "lockstep-controller"
	deschedulerName = "lockstep-descheduler"

	fairShareName = "FairShare"
	fieldManager  = "make-run"

	// configMap is where kubectl gang looks for the configuration of a scheduler that no Deployment runs.
	configMap = "lockstep-scheduler-config"

	// stopTimeout bounds how long the processes may take to end.
	stopTimeout = 10 * time.Second
)

// runAll runs the scheduler in the foreground and the controller beside it, and what else is asked for, until the
// scheduler ends. Arguments after -- are the scheduler's.
func runAll(ctx context.Context, args []string) (err error) {
	flags := newFlags("run")
	name := flags.String("name", localcluster.DefaultName, "name of the cluster")
	fairShare := flags.Bool("fairshare", false, "run the scheduler with queues: its own configuration, and FairShare")
	page := flags.Bool("page", false, "serve the page of lockstep-controller")
	descheduler := flags.Bool("descheduler", false, "run lockstep-descheduler, whose plans wait for approval")
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
	config, args := configOf(flags.Args())
	switch {
	case config == "":
		config = filepath.Join(root, "cmd", "scheduler", "app", "default.yaml")
	case *fairShare:
		return fmt.Errorf("running with FairShare: %s is a configuration of its own; enable FairShare there", config)
	}
	if *fairShare {
		if config, err = withFairShare(config, c.Dir()); err != nil {
			return err
		}
	}
	if err := publish(ctx, c, config); err != nil {
		return err
	}
	others := []program{{controllerName, []string{"--metrics-bind-address=0", "--health-probe-bind-address=0",
		"--scheduler-config=" + config}}}
	if *page {
		token, err := pageToken(ctx, c, root)
		if err != nil {
			return err
		}
		port, err := localcluster.FreePort()
		if err != nil {
			return err
		}
		address := fmt.Sprint("127.0.0.1:", port)
		others[0].args = append(others[0].args, "--page-bind-address="+address)
		fmt.Printf("The page is at https://%s; the token for it: %s\n", address, token)
	}
	if *descheduler {
		others = append(others, program{deschedulerName, []string{
			"--policy-config-file=" + filepath.Join(root, "hack", "demo", "7-policy.yaml"), "--scheduler-config=" + config,
			"--descheduling-interval=10s", "--secure-port=0",
		}})
	}
	bin := filepath.Join(root, "bin")
	for _, other := range others {
		stop, err := beside(ctx, c, bin, other)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	return foreground(ctx, filepath.Join(bin, schedulerName), schedulerArgs(c.Kubeconfig(), config, args))
}

// schedulerArgs returns the arguments of the scheduler, those of the user last: they win. It serves nothing unless they
// say so, for its port may be taken.
func schedulerArgs(kubeconfig, config string, args []string) []string {
	return append([]string{"--kubeconfig=" + kubeconfig, "--bind-address=127.0.0.1", "--secure-port=0",
		"--config=" + config}, args...)
}

// program is one that runs beside the scheduler.
type program struct {
	name string
	args []string
}

// beside starts a program, and returns how to stop it. If it ends before, it says so.
func beside(ctx context.Context, c *localcluster.Cluster, bin string, p program) (stop func() error, err error) {
	process, err := c.Start(p.name, filepath.Join(bin, p.name),
		append([]string{"--kubeconfig=" + c.Kubeconfig()}, p.args...), "")
	if err != nil {
		return nil, err
	}
	fmt.Printf("%s runs, too; its log is %s. Ctrl-C ends all.\n", p.name, process.LogFile)
	ended := make(chan struct{})
	go func() {
		select {
		case <-process.Done():
			fmt.Fprintf(os.Stderr, "%s has ended (%v). See %s\n", p.name, process.Err(), process.LogFile)
		case <-ended:
		}
	}()
	return func() error {
		close(ended)
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		return process.Stop(stopCtx)
	}, nil
}

// configOf takes --config out of the scheduler's arguments.
func configOf(args []string) (config string, rest []string) {
	for i := 0; i < len(args); i++ {
		if value, ok := strings.CutPrefix(args[i], "--config="); ok {
			config = value
		} else if args[i] == "--config" && i+1 < len(args) {
			i++
			config = args[i]
		} else {
			rest = append(rest, args[i])
		}
	}
	return config, rest
}

// withFairShare writes a configuration with FairShare in all profiles into a folder, and returns its path.
func withFairShare(file, dir string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("reading the scheduler's configuration: %w", err)
	}
	var config configv1.KubeSchedulerConfiguration
	if err := yaml.UnmarshalStrict(data, &config); err != nil {
		return "", fmt.Errorf("reading the scheduler's configuration: %w", err)
	}
	for i := range config.Profiles {
		all := &config.Profiles[i].Plugins.MultiPoint
		all.Enabled = append(all.Enabled, configv1.Plugin{Name: fairShareName})
	}
	if data, err = yaml.Marshal(config); err != nil {
		return "", fmt.Errorf("writing a configuration with FairShare: %w", err)
	}
	path := filepath.Join(dir, "fairshare.yaml")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return "", fmt.Errorf("writing a configuration with FairShare: %w", err)
	}
	return path, nil
}

// publish writes the configuration that the scheduler runs with to the ConfigMap where kubectl gang looks for it.
func publish(ctx context.Context, c *localcluster.Cluster, file string) error {
	config, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading the scheduler's configuration: %w", err)
	}
	maps := c.Clientset().CoreV1().ConfigMaps(metav1.NamespaceSystem)
	object := applyv1.ConfigMap(configMap,
		metav1.NamespaceSystem).WithData(map[string]string{"config.yaml": string(config)})
	if _, err := maps.Apply(ctx, object, metav1.ApplyOptions{FieldManager: fieldManager, Force: true}); err != nil {
		return fmt.Errorf("publishing the scheduler's configuration: %w", err)
	}
	return nil
}

// pageToken returns a token of a user who may see the page.
func pageToken(ctx context.Context, c *localcluster.Cluster, root string) (string, error) {
	if err := c.Apply(ctx, localcluster.Roles(root)...); err != nil {
		return "", err
	}
	const viewer, role = "lockstep-page-viewer", "lockstep-page-reader"
	options := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
	accounts := c.Clientset().CoreV1().ServiceAccounts(metav1.NamespaceSystem)
	if _, err := accounts.Apply(ctx, applyv1.ServiceAccount(viewer, metav1.NamespaceSystem), options); err != nil {
		return "", fmt.Errorf("making a user for the page: %w", err)
	}
	binding := applyrbacv1.ClusterRoleBinding(viewer).
		WithSubjects(applyrbacv1.Subject().WithKind("ServiceAccount").WithNamespace(metav1.NamespaceSystem).WithName(viewer)).
		WithRoleRef(applyrbacv1.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("ClusterRole").WithName(role))
	if _, err := c.Clientset().RbacV1().ClusterRoleBindings().Apply(ctx, binding, options); err != nil {
		return "", fmt.Errorf("making a user for the page: %w", err)
	}
	request, err := accounts.CreateToken(ctx, viewer, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("making a token for the page: %w", err)
	}
	return request.Status.Token, nil
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
	return state.Success() || ok && status.Signaled() &&
		(status.Signal() == syscall.SIGINT || status.Signal() == syscall.SIGTERM)
}
