package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/lockstep-sh/lockstep/plugins/defragmentation"
	"github.com/lockstep-sh/lockstep/test/chaos/workload"
	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
)

// The cluster of a run.
const (
	fakeNodes, nodesPerRack, gpusOnNode = 64, 8, 8
	cpuOnNode, memoryOnNode             = "32", "128Gi"
	podsOnNode                          = "12"

	replicasEach = 2
	// stock is the value of -scheduler for kube-scheduler itself.
	stock = "stock"
)

func nodeName(i int) string { return fmt.Sprintf("node-%d", i) }

// stage is the control plane, and the processes under test.
type stage struct {
	cluster  *localcluster.Cluster
	dynamic  dynamic.Interface
	root     string
	dir      string // of the logs of this run
	options  Options
	seen     *observer
	health   *health
	replicas []*replica
	samples  samples // of a steady run
}

// clusterUp starts the control plane.
func clusterUp(ctx context.Context, o Options, root, dir string) (*localcluster.Cluster, error) {
	return localcluster.Up(ctx, localcluster.Options{
		Name: fmt.Sprintf("chaos-%d-%d", o.Seed, os.Getpid()),
		Nodes: []localcluster.NodePool{{
			Count: o.Nodes, LabelsFor: localcluster.Topology(o.Nodes, 0, max(1, o.Nodes/nodesPerRack)),
			Allocatable: v1.ResourceList{
				localcluster.ResourceGPU: *resource.NewQuantity(gpusOnNode, resource.DecimalSI),
				v1.ResourceCPU:           resource.MustParse(cpuOnNode),
				v1.ResourceMemory:        resource.MustParse(memoryOnNode),
				v1.ResourcePods:          resource.MustParse(podsOnNode),
			},
		}},
		Kubelets:  o.Kubelets > 0,
		Manifests: []string{filepath.Join(root, "manifests", "crds")},
		AuditLog:  filepath.Join(dir, "audit.log"),
	})
}

// furnish creates namespaces, priority classes and queues.
func (s *stage) furnish(ctx context.Context) error {
	users := newDriver(s.dynamic, s.seen)
	for _, name := range workload.Namespaces {
		users.createObject(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for level, value := range workload.Levels {
		users.createObject(ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: workload.ClassName(level)}, Value: value})
	}
	if s.options.Queues {
		for _, queue := range workload.Queues {
			users.createObject(ctx, queue)
		}
	}
	return errors.Join(users.refusals()...)
}

// startReplicas starts two of each service and returns when one of each leads.
func (s *stage) startReplicas(ctx context.Context) error {
	config, err := s.schedulerConfig()
	if err != nil {
		return err
	}
	for i := range replicasEach {
		scheduler, err := s.scheduler(i+1, config)
		if err != nil {
			return err
		}
		controller, err := s.controller(i + 1)
		if err != nil {
			return err
		}
		s.replicas = append(s.replicas, scheduler, controller)
		if s.options.Moves {
			descheduler, err := s.descheduler(i+1, config)
			if err != nil {
				return err
			}
			s.replicas = append(s.replicas, descheduler)
		}
	}
	for _, r := range s.replicas {
		s.health.replicas[r.target] = append(s.health.replicas[r.target], r)
	}
	for _, r := range s.replicas {
		if err := r.start(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for target := range s.health.replicas {
		if _, err := s.health.waitLeader(ctx, target); err != nil {
			return fmt.Errorf("waiting for a leader: %w", err)
		}
	}
	return nil
}

// schedulerConfig writes the configuration of the scheduler: the default one, with a short lease.
func (s *stage) schedulerConfig() (string, error) {
	config := map[string]any{
		"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
		"profiles": []any{map[string]any{"schedulerName": workload.SchedulerName}},
	}
	if s.options.Scheduler != stock {
		data, err := os.ReadFile(filepath.Join(s.root, "cmd", "scheduler", "app", "default.yaml"))
		if err != nil {
			return "", fmt.Errorf("reading the scheduler's configuration: %w", err)
		}
		if err := yaml.Unmarshal(data, &config); err != nil {
			return "", fmt.Errorf("reading the scheduler's configuration: %w", err)
		}
	}
	config["clientConnection"] = map[string]any{"kubeconfig": s.cluster.Kubeconfig(), "qps": 2000, "burst": 4000}
	config["leaderElection"] = map[string]any{
		"leaderElect": true, "resourceName": leaseNames[workload.Scheduler], "resourceNamespace": leaseNamespace,
		"leaseDuration": s.options.lease().String(), "renewDeadline": s.options.renewDeadline().String(), "retryPeriod": "1s",
	}
	if s.options.Queues && s.options.Scheduler != stock {
		if err := addPlugin(config, "FairShare"); err != nil {
			return "", err
		}
	}
	data, err := yaml.Marshal(config)
	if err != nil {
		return "", fmt.Errorf("encoding the scheduler's configuration: %w", err)
	}
	path := filepath.Join(s.dir, "scheduler.yaml")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		return "", fmt.Errorf("writing the scheduler's configuration: %w", err)
	}
	return path, nil
}

// lease returns the lease duration of scheduler and descheduler. In a steady run it is as long as by default, so that
// few lose it.
func (o Options) lease() time.Duration {
	if o.Steady {
		return 15 * time.Second
	}
	return workload.LeaseDuration
}

func (o Options) renewDeadline() time.Duration { return o.lease() * 3 / 5 }

// addPlugin enables a plugin at all its extension points, in every profile.
func addPlugin(config map[string]any, name string) error {
	profiles, _ := config["profiles"].([]any)
	for _, profile := range profiles {
		p, _ := profile.(map[string]any)
		plugins, _ := p["plugins"].(map[string]any)
		multiPoint, _ := plugins["multiPoint"].(map[string]any)
		enabled, ok := multiPoint["enabled"].([]any)
		if !ok {
			return fmt.Errorf("enabling %s: the configuration has no plugins at multiPoint", name)
		}
		multiPoint["enabled"] = append(enabled, map[string]any{"name": name})
	}
	return nil
}

func (s *stage) scheduler(number int, config string) (*replica, error) {
	port, err := localcluster.FreePort()
	if err != nil {
		return nil, err
	}
	binary := s.options.Scheduler
	if binary == stock {
		if binary, err = localcluster.Binary("kube-scheduler"); err != nil {
			return nil, err
		}
	}
	r := s.replica(workload.Scheduler, number)
	r.binary, r.scheme, r.probes, r.metrics = binary, "https", port, port
	r.args = []string{
		"--config=" + config, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--authorization-always-allow-paths=/healthz,/livez,/readyz,/metrics", "--v=3",
	}
	return r, nil
}

// command returns a command of this checkout.
func (s *stage) command(name string) string { return filepath.Join(s.root, "bin", "lockstep-"+name) }

func (s *stage) controller(number int) (*replica, error) {
	probes, err := localcluster.FreePort()
	if err != nil {
		return nil, err
	}
	metrics, err := localcluster.FreePort()
	if err != nil {
		return nil, err
	}
	r := s.replica(workload.Controller, number)
	r.binary, r.scheme, r.probes, r.metrics = s.command("controller"), "http", probes, metrics
	r.args = []string{
		"--kubeconfig=" + s.cluster.Kubeconfig(), "--leader-elect", "--leader-elect-namespace=" + leaseNamespace,
		"--metrics-secure=false", fmt.Sprintf("--metrics-bind-address=127.0.0.1:%d", metrics),
		fmt.Sprintf("--health-probe-bind-address=127.0.0.1:%d", probes),
	}
	return r, nil
}

// descheduler makes plans so often that there are many in a run, and holds what was freed for a short while only.
func (s *stage) descheduler(number int, schedulerConfig string) (*replica, error) {
	port, err := localcluster.FreePort()
	if err != nil {
		return nil, err
	}
	policy := map[string]any{
		"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy",
		"profiles": []any{map[string]any{
			"name": "moves",
			"pluginConfig": []any{map[string]any{"name": defragmentation.Name, "args": map[string]any{
				"waitedFor": "1s", "coolDownTime": "5s", "holdTime": "10s", "minGain": 0, "schedulerConfig": schedulerConfig,
			}}},
			"plugins": map[string]any{"balance": map[string]any{"enabled": []any{defragmentation.Name}}},
		}},
	}
	data, err := yaml.Marshal(policy)
	if err != nil {
		return nil, fmt.Errorf("encoding the descheduler's policy: %w", err)
	}
	path := filepath.Join(s.dir, "descheduler.yaml")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		return nil, fmt.Errorf("writing the descheduler's policy: %w", err)
	}
	r := s.replica(workload.Descheduler, number)
	r.binary, r.scheme, r.probes, r.metrics, r.ready = s.command("descheduler"), "https", port, port, "healthz"
	r.args = []string{
		"--kubeconfig=" + s.cluster.Kubeconfig(), "--policy-config-file=" + path, "--descheduling-interval=3s",
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port), "--cert-dir=" + filepath.Join(s.dir, r.name),
		"--leader-elect", "--leader-elect-resource-name=" + leaseNames[workload.Descheduler], "--leader-elect-resource-namespace=" + leaseNamespace,
		"--leader-elect-lease-duration=" + s.options.lease().String(), "--leader-elect-renew-deadline=" + s.options.renewDeadline().String(),
		"--leader-elect-retry-period=1s", "--v=1",
	}
	return r, nil
}

func (s *stage) replica(target workload.Target, number int) *replica {
	name := fmt.Sprintf("%s-%d", target, number)
	return &replica{name: name, target: target, ready: "readyz", cluster: s.cluster, seen: s.seen, health: s.health, logFile: logPath(s.dir, name)}
}
