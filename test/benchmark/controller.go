package main

import (
	"context"
	"net"
	"strconv"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
)

// controller is a lockstep-controller that runs.
type controller struct {
	served
}

// startController starts one, as the manifests do except for the lease, and waits until it serves.
// label names the profiles.
func (f *fixture) startController(ctx context.Context, label string) (err error) {
	address := func() string {
		port, portErr := localcluster.FreePort()
		if portErr != nil {
			err = portErr
		}
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	metrics, pprof := address(), address()
	if err != nil {
		return err
	}
	args := []string{
		"--kubeconfig=" + f.cluster.Kubeconfig(), "--metrics-secure=false", "--metrics-bind-address=" + metrics,
		"--health-probe-bind-address=0",
	}
	c := &controller{served: serving("http://" + metrics)}
	if f.profiles != "" {
		args = append(args, "--pprof-bind-address="+pprof)
		c.pprof = "http://" + pprof
	}
	if c.Process, err = f.cluster.Start("controller", f.controller, args, ""); err != nil {
		return err
	}
	f.statusKeeper = c
	if err := c.ready(ctx, "/metrics"); err != nil {
		return err
	}
	if f.profiles != "" {
		c.profile(f.profileOf(label, "controller"))
	}
	return nil
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

// measure adds what the controller has used since its start to values that have what the scheduler has.
func (c *controller) measure(ctx context.Context, v values, pods, gangs int) error {
	cpu, err := cpuOf(c.Pid())
	if err != nil {
		return err
	}
	if v["controller-peak-MiB"], err = peakOf(c.Pid()); err != nil {
		return err
	}
	metrics, err := c.metrics(ctx)
	if err != nil {
		return err
	}
	written, err := parseClientWrites(metrics)
	if err != nil {
		return err
	}
	v["controller-cpu-ms/pod"] = ms(cpu) / float64(pods)
	v["system-cpu-ms/pod"] += v["controller-cpu-ms/pod"]
	v["controller-writes/gang"] = float64(written) / float64(gangs)
	return nil
}

// parseClientWrites counts the writes that a process has asked API servers for.
func parseClientWrites(metrics []byte) (int, error) {
	n := 0
	for s, err := range samples(metrics, "rest_client_requests_total") {
		if err != nil {
			return 0, err
		}
		if writing[s.labels["method"]] {
			n += int(s.value)
		}
	}
	return n, nil
}
