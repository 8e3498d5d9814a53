package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
)

// asked measures how long kubectl gang takes to answer on a large cluster, from its start to its end. Most GPUs are
// used, and a gang waits that does not fit.
type asked struct {
	nodes, onNode int
}

func (b asked) name() string { return fmt.Sprintf("Asked/nodes=%d/pods=%d", b.nodes, b.nodes*b.onNode) }

// job is what whatif is asked about.
const job = `apiVersion: batch/v1
kind: Job
metadata: {name: asked}
spec:
  parallelism: 16
  completions: 16
  template:
    metadata:
      annotations: {gang.scheduling.koordinator.sh/name: asked, gang.scheduling.koordinator.sh/min-available: "16"}
    spec:
      schedulerName: lockstep-scheduler
      restartPolicy: Never
      containers: [{name: worker, image: "registry.k8s.io/pause:3.10", resources: {limits: {nvidia.com/gpu: 2}}}]
`

func (b asked) run(ctx context.Context, f *fixture, r *report) (err error) {
	if err := f.setNodes(ctx, b.nodes); err != nil {
		return err
	}
	if err := b.fill(ctx, f); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.clear(ctx)) }()
	manifest := filepath.Join(f.cluster.Dir(), "asked.yaml")
	if err := os.WriteFile(manifest, []byte(job), 0o600); err != nil {
		return err
	}
	commands := [][]string{{"list", "-A"}, {"explain", "waiting0000"}, {"whatif", "-f", manifest}}
	within := func(column int) goal { return goal{unit: "s-to-answer", atMost: true, bound: 2, column: column} }
	t := r.table(b.name(), []goal{within(1), within(2)}, "command=list", "command=explain", "command=whatif")
	return f.takeTurns(t, func(column int, _ string) error {
		v, err := b.ask(ctx, f, commands[column]...)
		if err != nil {
			return err
		}
		r.add(t, column, 1, v)
		return nil
	})
}

// fill makes pods that have their nodes, six on each with a GPU, and a gang that asks for more nodes than are free.
func (b asked) fill(ctx context.Context, f *fixture) error {
	runs := workload{scheduler: ours.schedulerName, prefix: "runs", gangs: b.nodes, size: b.onNode}
	waits := workload{scheduler: ours.schedulerName, prefix: "waiting", gangs: 1, size: 64, min: 64, gpus: gpusOnNode}
	if err := f.fill(ctx, runs, 6); err != nil {
		return err
	}
	return f.create(ctx, waits)
}

// fill makes pods that have their nodes, as many on each as the workload's gangs have. Those beyond withGPU on a node
// ask for no GPU.
func (f *fixture) fill(ctx context.Context, runs workload, withGPU int) error {
	nodes, err := f.nodeNames(ctx)
	if err != nil {
		return err
	}
	return each(ctx, runs.pods(), func(ctx context.Context, i int) error {
		pod := runs.at(i)
		pod.Spec.NodeName = nodes[i/runs.size]
		if i%runs.size >= withGPU {
			delete(pod.Spec.Containers[0].Resources.Limits, localcluster.ResourceGPU)
		}
		return f.createPod(ctx, pod)
	})
}

// ask runs a command, and returns what it cost.
func (b asked) ask(ctx context.Context, f *fixture, command ...string) (values, error) {
	root, err := localcluster.Root()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	cmd := exec.CommandContext(ctx, filepath.Join(root, "bin", "kubectl-gang"), append(command, "--kubeconfig", f.cluster.Kubeconfig())...)
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("running kubectl gang %s: %w: %s", command[0], err, said)
	}
	v := values{"s-to-answer": time.Since(began).Seconds(), "command-cpu-s": (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()}
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		v["command-peak-MiB"] = float64(usage.Maxrss) / 1024
	}
	return v, nil
}
