package localcluster

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const (
	completeKey = "pod-complete.stage.kwok.x-k8s.io/delay"
	failKey     = "pod-fail.stage.kwok.x-k8s.io/delay"
)

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func boundPod(name, node string, annotations map[string]string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Annotations: annotations},
		Spec:       v1.PodSpec{NodeName: node, Containers: []v1.Container{{Name: "main", Image: "none"}}},
	}
}

func createPod(ctx context.Context, t *testing.T, c *Cluster, pod *v1.Pod) {
	t.Helper()
	if _, err := c.Clientset().CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatalf("creating pod %s: %v", pod.Name, err)
	}
}

// phase returns the phase of a pod, "" if it does not exist.
func phase(ctx context.Context, t *testing.T, c *Cluster, name string) v1.PodPhase {
	t.Helper()
	pod, err := c.Clientset().CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ""
	}
	if err != nil {
		t.Fatalf("reading pod %s: %v", name, err)
	}
	return pod.Status.Phase
}

func waitPhase(ctx context.Context, t *testing.T, c *Cluster, name string, want v1.PodPhase) {
	t.Helper()
	for got := phase(ctx, t, c, name); got != want; got = phase(ctx, t, c, name) {
		select {
		case <-ctx.Done():
			t.Fatalf("pod %s is %q, want %q", name, got, want)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// wantGone fails if a process or a file of the cluster is left.
func wantGone(t *testing.T, c *Cluster, pids []int) {
	t.Helper()
	for _, pid := range pids {
		if startTime(pid) != "" {
			t.Errorf("process %d of cluster %s is still there", pid, c.Name())
		}
	}
	if left, err := processesOf(c.Dir()); err != nil || len(left) != 0 {
		t.Errorf("processes left of cluster %s: %v, %v", c.Name(), left, err)
	}
	if _, err := os.Stat(c.Dir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder of cluster %s is still there: %v", c.Name(), err)
	}
}

func TestClusterRunsPods(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	c := Run(t, Options{Nodes: []NodePool{{
		Count: 4, NamePrefix: "gpu-", LabelsFor: Topology(4, 1, 2),
		Allocatable: v1.ResourceList{ResourceGPU: resource.MustParse("8")},
	}}})

	nodes, err := c.Clientset().CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: LabelRack + "=r1"})
	if err != nil || len(nodes.Items) != 2 {
		t.Fatalf("nodes in rack r1: %d, want 2; error %v", len(nodes.Items), err)
	}
	if got := nodes.Items[0].Status.Allocatable[ResourceGPU]; got.Value() != 8 {
		t.Errorf("allocatable GPUs: %s, want 8", got.String())
	}

	createPod(ctx, t, c, boundPod("forever", "gpu-0", nil))
	createPod(ctx, t, c, boundPod("completes", "gpu-1", map[string]string{completeKey: "1s"}))
	createPod(ctx, t, c, boundPod("fails", "gpu-2", map[string]string{failKey: "1s"}))
	createPod(ctx, t, c, boundPod("misspelt", "gpu-3", map[string]string{completeKey: "soon"}))
	waitPhase(ctx, t, c, "completes", v1.PodSucceeded)
	waitPhase(ctx, t, c, "fails", v1.PodFailed)
	waitPhase(ctx, t, c, "misspelt", v1.PodRunning)
	waitPhase(ctx, t, c, "forever", v1.PodRunning)
}

// TestManifestsAreServed: the columns are those that users are promised; hack/podgroupcrd adds them
// to the community's CRD.
func TestManifestsAreServed(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	c := Run(t, Options{Manifests: []string{"../../../manifests/crds"}, WithoutKwok: true, WithoutControllerManager: true})
	podGroup := filepath.Join(c.Dir(), "podgroup.yaml")
	if err := os.WriteFile(podGroup, []byte(`
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: PodGroup
metadata:
  name: train
  namespace: default
  annotations: {gang.scheduling.koordinator.sh/mode: NonStrict}
  labels: {scheduling.lockstep.dev/queue: research}
spec: {minMember: 8}
`), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := c.Apply(ctx, podGroup); err != nil {
		t.Fatal(err)
	}
	status := `{"status":{"phase":"Pending","running":3,"conditions":[{"type":"Scheduled","status":"False",` +
		`"reason":"GangIncomplete","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`
	if _, err := c.Kubectl(ctx, "patch", "podgroup", "train", "--subresource=status", "--type=merge", "-p", status); err != nil {
		t.Fatal(err)
	}
	out, err := c.Kubectl(ctx, "get", "podgroups")
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Fields(out)
	want := strings.Fields("NAME PHASE READY MIN MODE QUEUE REASON AGE train Pending 3 8 NonStrict research GangIncomplete")
	if len(got) != len(want)+1 || !slices.Equal(got[:len(want)], want) { // the age differs
		t.Errorf("kubectl get podgroups:\n%swant the words %v and an age", out, want)
	}
}

func TestDeletionHonoursTheGracePeriod(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	c := Run(t, Options{Nodes: []NodePool{{Count: 1}}})
	slow := boundPod("slow", "node-0", nil)
	slow.Spec.TerminationGracePeriodSeconds = ptr.To[int64](4)
	createPod(ctx, t, c, slow)
	createPod(ctx, t, c, boundPod("quick", "node-0", nil))
	waitPhase(ctx, t, c, "slow", v1.PodRunning)
	waitPhase(ctx, t, c, "quick", v1.PodRunning)

	start := time.Now()
	for _, name := range []string{"slow", "quick"} {
		if err := c.Clientset().CoreV1().Pods("default").Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	waitPhase(ctx, t, c, "quick", "")
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("a pod with the default grace period took %s to go, want less than 2s", took)
	}
	waitPhase(ctx, t, c, "slow", "")
	// Timestamps have whole seconds, so up to one second of the four may be missing.
	if took := time.Since(start); took < 3*time.Second {
		t.Errorf("a pod with 4s of grace was gone after %s", took)
	}
}

func TestTwoClustersSideBySide(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	a := Run(t, Options{Nodes: []NodePool{{Count: 4, NamePrefix: "a-"}}})
	b := Run(t, Options{Nodes: []NodePool{{Count: 2, NamePrefix: "b-"}}, WithoutKwok: true, WithoutControllerManager: true})
	for c, want := range map[*Cluster]int{a: 4, b: 2} {
		nodes, err := c.Clientset().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil || len(nodes.Items) != want {
			t.Errorf("nodes of cluster %s: %d, want %d; error %v", c.Name(), len(nodes.Items), want, err)
		}
		for _, n := range nodes.Items {
			if len(n.Spec.Taints) != 0 {
				t.Errorf("node %s is tainted: %v", n.Name, n.Spec.Taints)
			}
		}
	}
	if _, err := Up(ctx, Options{Name: a.Name()}); !errors.Is(err, ErrExists) {
		t.Errorf("second Up of %s: %v, want %v", a.Name(), err, ErrExists)
	}

	sleeper, err := a.Start("sleeper", "/bin/sh", []string{"-c", "echo started; sleep 1000; true"}, "")
	if err != nil {
		t.Fatal(err)
	}
	pids, err := processesOf(a.Dir())
	if err != nil || len(pids) < 5 { // etcd, API server, controller manager, KWOK, the sleeper's shell
		t.Fatalf("processes of cluster %s: %v, %v, want 5 or more", a.Name(), pids, err)
	}
	if err := Down(ctx, a.Name()); err != nil { // as another process would
		t.Fatal(err)
	}
	wantGone(t, a, pids)
	<-sleeper.Done()
	if sleeper.Err() == nil {
		t.Error("the sleeper ended by itself, want it killed")
	}
	if err := a.Down(ctx); err != nil {
		t.Errorf("second Down: %v", err)
	}
	createPod(ctx, t, b, boundPod("survivor", "b-0", nil))
}

func TestRestartOfTheAPIServer(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	c := Run(t, Options{Nodes: []NodePool{{Count: 1}}})
	createPod(ctx, t, c, boundPod("before", "node-0", nil))
	waitPhase(ctx, t, c, "before", v1.PodRunning)
	if err := errors.Join(c.KillAPIServer(ctx), c.StartAPIServer(ctx)); err != nil {
		t.Fatal(err)
	}
	createPod(ctx, t, c, boundPod("after", "node-0", nil))
	waitPhase(ctx, t, c, "after", v1.PodRunning)
	waitPhase(ctx, t, c, "before", v1.PodRunning)
}

func TestStartOfTheAPIServerSaysWhyItEnds(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	c := Run(t, Options{WithoutControllerManager: true, WithoutKwok: true})
	if err := c.KillAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	port, err := net.Listen("tcp", strings.TrimPrefix(c.RESTConfig().Host, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.StartAPIServer(ctx); !errors.Is(err, errEnded) || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("start with its port taken: %v, want an error that shows the log", err)
	}
	if err := port.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.StartAPIServer(ctx); err != nil {
		t.Error(err)
	}
}

func TestFailedStartLeavesNothing(t *testing.T) {
	t.Parallel()
	name := testName(t.Name())
	_, err := Up(testContext(t), Options{Name: name, APIServerArgs: []string{"no-such-flag=1"}, Manifests: []string{"/does/not/exist"}})
	if err == nil || !strings.Contains(err.Error(), "no-such-flag") {
		t.Errorf("Up with a wrong flag: %v, want an error that shows the log", err)
	}
	dir, err := clusterDir(name)
	if err != nil {
		t.Fatal(err)
	}
	wantGone(t, &Cluster{name: name, dir: dir}, nil)
}

func TestClusterOfCrashedCreatorIsSwept(t *testing.T) {
	dir, err := clusterDir(testName(t.Name()))
	if err != nil {
		t.Fatal(err)
	}
	if err := claim(dir); err != nil {
		t.Fatal(err)
	}
	c := &Cluster{name: filepath.Base(dir), dir: dir}
	if err := os.Mkdir(c.LogDir(), 0o755); err != nil {
		t.Fatal(err)
	}
	orphan, err := c.Start("orphan", "/bin/sleep", []string{"1000"}, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if orphan.Err() != nil {
		t.Fatal("the cluster of a live creator was swept")
	}
	// A process with the id of this one that started at another time: the owner is gone.
	record := []byte(`{"pid": 1, "started": "another time", "keep": false}`)
	if err := os.WriteFile(filepath.Join(dir, ownerFile), record, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantGone(t, c, []int{orphan.Pid()})
}

func TestNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"lockstep": true, "a.b-c": true, "": false, "..": false, "a/b": false, "Upper": false, "-x": false,
		strings.Repeat("x", nameLimit+1): false,
	} {
		if _, err := clusterDir(name); (err == nil) != ok {
			t.Errorf("name %q: error %v, want valid %t", name, err, ok)
		}
	}
	if name := testName("TestFoo/Bar baz_1"); !strings.HasPrefix(name, "testfoo-bar-baz-1-") {
		t.Errorf("name for a test: %q", name)
	}
}
