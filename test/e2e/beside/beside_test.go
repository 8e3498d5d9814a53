// Package beside_test runs the stock scheduler and lockstep-scheduler beside each other on the same nodes. The test
// plays the kubelets, which refuse pods for which both have used the same room.
package beside_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
)

const (
	// There is room for 6% more pods than there are.
	nodes, cpuOnNode = 160, 16
	// Plain pods, for the stock scheduler, and gangs.
	plain, replicaSets = 2000, 20
	gangs, members     = 100, 4
	// grace is what docs/behaviour.md promises for gangs of Jobs with a limit for each index, where there is room.
	grace = time.Minute
	// release is how long the kubelets may see a gang that is being bound as partial, on a busy machine.
	release = 5 * time.Second
	// patience bounds the time until all pods run.
	patience = 3 * time.Minute
)

// Both schedulers fill the fullest nodes first, so that they want the same places.
const config = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: %q, qps: 2000, burst: 4000}
profiles:
- schedulerName: %s
  plugins: {multiPoint: {enabled: [%s]}}
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
`

// TestBesideTheDefaultScheduler: no gang is partial for longer than is documented, and no node is oversold at rest.
func TestBesideTheDefaultScheduler(t *testing.T) {
	root, err := localcluster.Root()
	if err != nil {
		t.Fatal(err)
	}
	if err := localcluster.BuildCommands(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := localcluster.Build(t.Context(), os.Stderr, "", "kube-scheduler"); err != nil {
		t.Fatal(err)
	}
	stock, err := localcluster.Binary("kube-scheduler")
	if err != nil {
		t.Fatal(err)
	}
	c := localcluster.Run(t, localcluster.Options{
		WithoutKwok: true,
		Nodes: []localcluster.NodePool{{Count: nodes, Allocatable: v1.ResourceList{
			v1.ResourceCPU: *resource.NewQuantity(cpuOnNode, resource.DecimalSI),
		}}},
		Manifests: []string{filepath.Join(root, "manifests", "crds")},
	})
	k := newKubelets(c.Clientset())
	k.run(t)
	schedule(t, c, stock, v1.DefaultSchedulerName, "")
	schedule(t, c, filepath.Join(root, "bin", "lockstep-scheduler"), "lockstep-scheduler", "{name: Gang}, {name: GangPreemption}")
	begin := time.Now()
	createAll(t, c)
	awaitAll(t, c)
	longest, repaired := k.longestPartial(release)
	k.mu.Lock()
	t.Logf("all run after %s; refused: %v; %d gangs were repaired, the slowest in %s", time.Since(begin).Round(time.Second), k.refused, repaired, longest.Round(time.Second))
	if k.refused["lockstep-scheduler"] == 0 || k.refused[v1.DefaultSchedulerName] == 0 {
		t.Errorf("refused: %v; the schedulers did not meet, so that this shows nothing", k.refused)
	}
	k.mu.Unlock()
	if longest > grace {
		t.Errorf("a gang was partial for %s, want %s at most", longest, grace)
	}
}

// schedule starts a scheduler.
func schedule(t *testing.T, c *localcluster.Cluster, binary, name, plugins string) {
	t.Helper()
	port, err := localcluster.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(c.Dir(), name+".yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, config, c.Kubeconfig(), name, plugins), 0o600); err != nil {
		t.Fatal(err)
	}
	process, err := c.Start(name, binary, []string{"--config=" + file, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--authorization-always-allow-paths=/readyz", "--v=2"}, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := process.WaitReady(t.Context(), fmt.Sprintf("https://127.0.0.1:%d/readyz", port)); err != nil {
		t.Fatal(err)
	}
}

// template is that of pods of one CPU.
func template(scheduler string, restart v1.RestartPolicy, labels, annotations map[string]string) v1.PodTemplateSpec {
	return v1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations},
		Spec: v1.PodSpec{
			SchedulerName: scheduler, RestartPolicy: restart,
			Containers: []v1.Container{{Name: "main", Image: "none", Resources: v1.ResourceRequirements{
				Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")},
			}}},
		},
	}
}

// createAll creates ReplicaSets of plain pods, and between them Jobs that are gangs.
func createAll(t *testing.T, c *localcluster.Cluster) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	group.Go(func() error {
		for i := range replicaSets {
			labels := map[string]string{"app": fmt.Sprintf("web-%d", i)}
			set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: labels["app"]}, Spec: appsv1.ReplicaSetSpec{
				Replicas: ptr.To(int32(plain / replicaSets)), Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: template(v1.DefaultSchedulerName, v1.RestartPolicyAlways, labels, nil),
			}}
			if _, err := c.Clientset().AppsV1().ReplicaSets(metav1.NamespaceDefault).Create(ctx, set, metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("creating ReplicaSet %s: %w", set.Name, err)
			}
		}
		return nil
	})
	group.Go(func() error {
		for i := range gangs {
			name := fmt.Sprintf("train-%d", i)
			job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{
				Parallelism: ptr.To(int32(members)), Completions: ptr.To(int32(members)),
				CompletionMode: ptr.To(batchv1.IndexedCompletion), BackoffLimitPerIndex: ptr.To(int32(6)),
				Template: template("lockstep-scheduler", v1.RestartPolicyNever, nil, map[string]string{
					v1alpha1.GangNameAnnotation: name, v1alpha1.MinAvailableAnnotation: fmt.Sprint(members),
				}),
			}}
			if _, err := c.Clientset().BatchV1().Jobs(metav1.NamespaceDefault).Create(ctx, job, metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("creating Job %s: %w", job.Name, err)
			}
			time.Sleep(20 * time.Millisecond) // while plain pods come and are bound
		}
		return nil
	})
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// awaitAll waits until all pods run, and checks that no node has more of them than it has room for.
func awaitAll(t *testing.T, c *localcluster.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		on, running := map[string]int{}, map[string]int{}
		pods, err := c.Clientset().CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			t.Fatal(err)
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			if pod.Spec.NodeName != "" && pod.Status.Phase != v1.PodFailed {
				on[pod.Spec.NodeName]++
			}
			if pod.Status.Phase == v1.PodRunning {
				running[pod.Spec.SchedulerName]++
			}
		}
		if running[v1.DefaultSchedulerName] == plain && running["lockstep-scheduler"] == gangs*members {
			for node, n := range on {
				if n > cpuOnNode {
					t.Errorf("node %s is oversold: it has %d pods, and room for %d", node, n, cpuOnNode)
				}
			}
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("after %s these run: %v", patience, running)
		case <-time.After(500 * time.Millisecond):
		}
	}
}
