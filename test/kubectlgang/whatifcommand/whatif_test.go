// Package whatif_test asks kubectl gang what the scheduler would do, makes it happen, and compares.
package whatifcommand_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// cluster is one of two racks of four nodes with eight GPUs each, and a scheduler and a controller at work.
type cluster struct {
	*testing.T
	*localcluster.Cluster
	root string
	// port is where the scheduler serves.
	port      int
	scheduler *localcluster.Process
}

func start(t *testing.T) *cluster {
	t.Helper()
	root, err := localcluster.Root()
	if err == nil {
		err = localcluster.BuildCommands(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	c := localcluster.Run(t, localcluster.Options{
		Manifests: []string{filepath.Join(root, "manifests", "crds")},
		Nodes: []localcluster.NodePool{{
			Count: 8, Labels: map[string]string{"pool": "gpu"},
			LabelsFor:   func(i int) map[string]string { return map[string]string{localcluster.LabelRack: fmt.Sprint("r", i/4)} },
			Allocatable: v1.ResourceList{localcluster.ResourceGPU: resource.MustParse("8")},
		}},
	})
	port, err := localcluster.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	started := &cluster{T: t, Cluster: c, root: root, port: port}
	for name, args := range map[string][]string{
		"scheduler":  {"--config", configOf(root), "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port), "--authentication-kubeconfig=" + c.Kubeconfig(), "--authorization-kubeconfig=" + c.Kubeconfig()},
		"controller": {"--health-probe-bind-address=0", "--metrics-bind-address=0"}, // it makes the PodGroups of gangs by owner
	} {
		process, err := c.Start(name, filepath.Join(root, "bin", "lockstep-"+name), append(args, "--kubeconfig", c.Kubeconfig()), "")
		if err != nil {
			t.Fatal(err)
		}
		if name == "scheduler" {
			started.scheduler = process
		}
	}
	return started
}

// configOf returns the scheduler's configuration.
func configOf(root string) string {
	return filepath.Join(root, "hack", "demo", "8-fairshare.yaml")
}

// gang runs kubectl gang, and reads what it writes as JSON.
func (c *cluster) gang(args ...string) report {
	c.Helper()
	out := c.run(args...)
	var list struct{ Items []report }
	if err := json.Unmarshal(out, &list); err != nil || len(list.Items) == 0 {
		c.Fatalf("kubectl gang %s: %v:\n%s", strings.Join(args, " "), err, out)
	}
	return list.Items[len(list.Items)-1]
}

// run runs kubectl gang, which has to succeed.
func (c *cluster) run(args ...string) []byte {
	c.Helper()
	out, err := c.tryRun(args...)
	if err != nil {
		c.Fatal(err)
	}
	return out
}

// tryRun runs kubectl gang, which may fail: the objects that it is asked about may not be there yet.
func (c *cluster) tryRun(args ...string) ([]byte, error) {
	cmd := exec.CommandContext(c.Context(), filepath.Join(c.root, "bin", "kubectl-gang"), append(args, "--kubeconfig", c.Kubeconfig(), "--scheduler-config", configOf(c.root))...)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%w:\n%s", err, exit.Stderr)
	}
	if err != nil {
		return nil, fmt.Errorf("kubectl gang %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}

// report is the report of whatif, of one case.
type report struct {
	Placed, Pods int
	Undecided    bool
	Why          []struct{ Reason, Message string }
	Victims      []struct {
		Gang, Pod string
		Left      int
	}
	// EvictedForOthers are evicted for other pods that wait.
	EvictedForOthers []struct{ Gang, Pod string }
}

func (r *report) reasons() []string {
	var list []string
	for _, why := range r.Why {
		list = append(list, why.Reason)
	}
	return list
}

func (r *report) victims() []string {
	var list []string
	for _, victim := range r.Victims {
		list = append(list, fmt.Sprintf("%s keeps %d", victim.Gang, victim.Left))
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// job returns the manifest of a Job that is a gang.
func job(name string, pods, gpus int, keys ...string) string {
	annotations := fmt.Sprintf("gang.scheduling.koordinator.sh/name: %s", name)
	class := ""
	for _, key := range keys {
		if after, ok := strings.CutPrefix(key, "class: "); ok {
			class = "priorityClassName: " + after
		} else {
			annotations += ", " + key
		}
	}
	if !strings.Contains(annotations, "min-available") {
		annotations += fmt.Sprintf(`, gang.scheduling.koordinator.sh/min-available: "%d"`, pods)
	}
	return fmt.Sprintf(`
apiVersion: batch/v1
kind: Job
metadata: {name: %s}
spec:
  parallelism: %d
  completions: %d
  backoffLimit: 0
  template:
    metadata:
      annotations: {%s}
    spec:
      schedulerName: lockstep-scheduler
      restartPolicy: Never
      terminationGracePeriodSeconds: 0
      containers: [{name: main, image: none, resources: {limits: {nvidia.com/gpu: %d}}}]
      %s
---
`, name, pods, pods, annotations, gpus, class)
}

const (
	classes = `
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 100}
---
{apiVersion: scheduling.lockstep.dev/v1alpha1, kind: Queue, metadata: {name: small}, spec: {capability: {nvidia.com/gpu: 16}}}
`
	rack  = "scheduling.lockstep.dev/required-topology: topology.lockstep.dev/rack"
	three = "{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: PodGroup, metadata: {name: group}, spec: {minMember: 5}}\n---\n"
)

// TestWhatIfAgrees: what whatif reports is what happens.
func TestWhatIfAgrees(t *testing.T) {
	c := start(t)
	c.apply(classes)
	for name, test := range map[string]struct {
		// running is there before; asked is what is asked about, with the given flags.
		running, asked string
		preempt        bool
		placed         int
		reasons        []string
		victims        []string
	}{
		"a gang that fits":                       {asked: job("train", 8, 8), placed: 8},
		"a gang that does not fit":               {running: job("low", 6, 8), asked: job("train", 4, 8), reasons: []string{"Unschedulable"}},
		"a gang that never fits":                 {asked: job("train", 9, 8), reasons: []string{"Unschedulable"}},
		"room in two racks, and one is required": {running: job("low", 2, 8, rack), asked: job("train", 5, 8, rack), reasons: []string{"Unschedulable"}},
		"others make way":                        {running: job("low", 8, 8), asked: job("train", 4, 8, "class: high"), preempt: true, placed: 4, victims: []string{"default/low keeps 0"}},
		"surplus makes way": {
			running: job("low", 8, 8, `gang.scheduling.koordinator.sh/min-available: "2"`), asked: job("train", 3, 8, rack, "class: high"), preempt: true, placed: 3, victims: []string{"default/low keeps 5"}},
		"nobody makes way for an equal": {running: job("low", 8, 8), asked: job("train", 4, 8), preempt: true, reasons: []string{"Unschedulable"}},
		"a queue's ceiling":             {asked: strings.ReplaceAll(job("train", 3, 8), "metadata:\n      annotations", "metadata:\n      labels: {scheduling.lockstep.dev/queue: small}\n      annotations"), reasons: []string{"QueueCapability"}},
		"members are missing":           {asked: three + strings.ReplaceAll(job("train", 3, 1), "gang.scheduling.koordinator.sh/name: train, gang.scheduling.koordinator.sh/min-available: \"3\"", "pod-group.scheduling.sigs.k8s.io/name: group"), reasons: []string{"GangIncomplete"}},
		"a gang by its owner": {
			running: job("low", 6, 8), asked: strings.ReplaceAll(job("train", 3, 8), "gang.scheduling.koordinator.sh/name: train, gang.scheduling.koordinator.sh/min-available: \"3\"", "scheduling.lockstep.dev/gang: Owner"),
			reasons: []string{"Unschedulable"}},
		"pods in no gang": {asked: strings.ReplaceAll(job("train", 3, 8), "gang.scheduling.koordinator.sh/", "example.com/"), placed: 3},
	} {
		t.Run(name, func(t *testing.T) {
			c := &cluster{t, c.Cluster, c.root, c.port, c.scheduler}
			defer c.clear()
			if test.running != "" {
				c.apply(test.running)
				await.NoError(t, "others run", func() error { return c.all(func(pod *v1.Pod) bool { return pod.Spec.NodeName != "" }) })
			}
			before := c.pods()
			file := filepath.Join(t.TempDir(), "asked.yaml")
			if err := os.WriteFile(file, []byte(test.asked), 0o600); err != nil {
				t.Fatal(err)
			}
			args := []string{"whatif", "-f", file, "-o", "json"}
			if test.preempt {
				args = append(args, "--preempt")
			}
			said := c.gang(args...)
			if said.Undecided || said.Placed != test.placed {
				t.Errorf("whatif says that %d pods are placed (undecided: %t), want %d", said.Placed, said.Undecided, test.placed)
			}
			if diff := cmp.Diff(test.reasons, said.reasons()); diff != "" {
				t.Errorf("reasons (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.victims, said.victims()); diff != "" {
				t.Errorf("gangs of victims (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, c.pods()); diff != "" {
				t.Errorf("whatif changed pods (-before +after):\n%s", diff)
			}
			dump := filepath.Join(t.TempDir(), "cluster.dump")
			c.run("dump", "-f", dump)
			if diff := cmp.Diff(said, c.gang(append(args, "--dump", dump)...), cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Pod" }, cmp.Ignore())); diff != "" {
				t.Errorf("on a dump of the cluster whatif says another thing (-cluster +dump):\n%s", diff)
			}
			c.apply(test.asked)
			c.happens(said, len(before))
		})
	}
}

// happens waits until the report has happened to the Job train, whose pods are those beside as many others.
func (c *cluster) happens(said report, others int) {
	c.Helper()
	await.NoError(c, "what whatif said happens", func() error {
		list := c.list()
		bound, why, left := 0, map[string]bool{}, 0
		for i := range list {
			pod := &list[i]
			switch {
			case pod.Labels["job-name"] != "train":
				if pod.DeletionTimestamp == nil && pod.Status.Phase != v1.PodFailed {
					left++
				}
			case pod.Spec.NodeName != "":
				bound++
			default:
				for _, condition := range pod.Status.Conditions {
					if condition.Type == v1.PodScheduled {
						why[condition.Reason] = true
					}
				}
			}
		}
		if bound != said.Placed || len(why) != len(said.Why) || len(said.Why) > 0 && !why[said.Why[0].Reason] {
			return fmt.Errorf("%d pods are placed, others wait for %v; whatif said %d, and %v", bound, why, said.Placed, said.reasons())
		}
		if want := others - len(said.Victims); left != want {
			return fmt.Errorf("%d others are left, want %d", left, want)
		}
		return nil
	})
}

// TestWhatIfOfOthers: what is in the cluster already is not asked about, and a pod that is evicted for others that wait
// there is no victim of what is.
func TestWhatIfOfOthers(t *testing.T) {
	c := start(t)
	c.apply(classes)
	c.apply(job("low", 8, 8))
	await.NoError(t, "others run", func() error { return c.all(func(pod *v1.Pod) bool { return pod.Spec.NodeName != "" }) })
	if err := c.scheduler.Kill(); err != nil { // so that gangs that wait go on to wait
		t.Fatal(err)
	}
	c.apply(job("first", 4, 8, "class: high"))
	await.Until(t, "all pods are there", func() bool { return len(c.list()) == 12 })
	file := filepath.Join(t.TempDir(), "asked.yaml")
	if err := os.WriteFile(file, []byte(job("train", 2, 8)), 0o600); err != nil {
		t.Fatal(err)
	}
	said := c.gang("whatif", "-f", file, "-o", "json")
	if said.Placed != 2 || len(said.Victims) != 0 || len(said.EvictedForOthers) != 8 {
		t.Errorf("%d pods are placed, %d victims, %d pods are evicted for others; want 2, none and 8", said.Placed, len(said.Victims), len(said.EvictedForOthers))
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(c.root, "bin", "kubectl-gang"), "whatif", "-n", "nowhere", "-f", file, "--kubeconfig", c.Kubeconfig(), "--scheduler-config", configOf(c.root))
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "there is no namespace nowhere") {
		t.Errorf("asked about a namespace that there is not whatif ends with %v, and says:\n%s", err, out)
	}
	if err := os.WriteFile(file, []byte(job("first", 4, 8)), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd = exec.CommandContext(t.Context(), filepath.Join(c.root, "bin", "kubectl-gang"), "whatif", "-f", file, "--kubeconfig", c.Kubeconfig(), "--scheduler-config", configOf(c.root))
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "Job default/first is in the cluster already") {
		t.Errorf("asked about what is there whatif ends with %v, and says:\n%s", err, out)
	}
}

// TestExplain: explain reports what the scheduler said, and what it would do with more nodes.
func TestExplain(t *testing.T) {
	c := start(t)
	c.apply(job("train", 9, 8))
	await.NoError(t, "the gang is told why it waits", func() error {
		return c.all(func(pod *v1.Pod) bool {
			return slices.ContainsFunc(pod.Status.Conditions, func(condition v1.PodCondition) bool { return condition.Reason == "Unschedulable" })
		})
	})
	c.apply(job("late", 10, 8))
	await.NoError(t, "another waits behind it", func() error {
		out, err := c.tryRun("explain", "late", "-v")
		if err == nil && !strings.Contains(string(out), "Place in queue default: 2 of 2; gang default/train") {
			err = errors.New(string(out))
		}
		return err
	})
	out := string(c.run("explain", "train", "-v", "--nodes", "+1:gpu"))
	for _, want := range []string{
		"default/train waits: 8 of 9 members fit; short 8 nvidia.com/gpu\nDOMAIN      FITS   SHORT\nall nodes   8/9    8 nvidia.com/gpu\n",
		"An autoscaler may add nodes\n",
		"Place in queue default: 1 of 2\n",
		"Now: 0 of 9 placed\n",
		"With 1 more node like node-0 (in rack=r0) the scheduler would place ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("explain does not say %q:\n%s", want, out)
		}
	}
	c.leavesNothing("explain", "train")
}

// leavesNothing runs kubectl gang without a reader of its output, and looks what is left in the directory for temporary
// files.
func (c *cluster) leavesNothing(args ...string) {
	c.Helper()
	reads, writes, err := os.Pipe()
	if err != nil {
		c.Fatal(err)
	}
	defer writes.Close()
	if err := reads.Close(); err != nil {
		c.Fatal(err)
	}
	cmd := exec.CommandContext(c.Context(), filepath.Join(c.root, "bin", "kubectl-gang"), append(args, "--kubeconfig", c.Kubeconfig(), "--scheduler-config", configOf(c.root))...)
	dir := c.TempDir()
	cmd.Env, cmd.Stdout = append(os.Environ(), "TMPDIR="+dir), writes
	_ = cmd.Run() // it cannot print
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		c.Errorf("kubectl gang %s leaves %v, %v", strings.Join(args, " "), left, err)
	}
}

func (c *cluster) apply(manifest string) {
	c.Helper()
	cmd := exec.CommandContext(c.Context(), filepath.Join(c.root, ".local", "bin", "kubectl"), "--kubeconfig", c.Kubeconfig(), "apply", "-f", "-")
	cmd.Stdin = strings.NewReader(manifest)
	if out, err := cmd.CombinedOutput(); err != nil {
		c.Fatalf("applying:\n%s\n%v: %s", manifest, err, out)
	}
}

// clear deletes what a test made.
func (c *cluster) clear() {
	c.Helper()
	if out, err := c.Kubectl(c.Context(), "delete", "jobs,pods,podgroups.scheduling.x-k8s.io", "--all", "--wait=false"); err != nil {
		c.Fatal(err, out)
	}
	await.NoError(c, "all is deleted", func() error {
		if n := len(c.list()); n > 0 {
			return fmt.Errorf("%d pods are left", n)
		}
		return nil
	})
}

func (c *cluster) list() []v1.Pod {
	c.Helper()
	list, err := c.Clientset().CoreV1().Pods("default").List(c.Context(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return list.Items
}

// pods returns all pods and their revisions, once nothing has changed for a while.
func (c *cluster) pods() map[string]string {
	c.Helper()
	var last map[string]string
	await.Until(c, "pods stay as they are", func() bool {
		now := map[string]string{}
		for _, pod := range c.list() {
			now[pod.Name] = pod.ResourceVersion
		}
		same := last != nil && cmp.Equal(last, now)
		if last = now; !same {
			_ = await.Pause(c.Context(), 500*time.Millisecond) // the next look shows it
		}
		return same
	})
	return last
}

// all returns an error unless there are pods, and all are as they should be.
func (c *cluster) all(is func(*v1.Pod) bool) error {
	list := c.list()
	for i := range list {
		if !is(&list[i]) {
			return fmt.Errorf("pod %s is not: %v", list[i].Name, list[i].Status.Conditions)
		}
	}
	if len(list) == 0 {
		return errors.New("there are no pods")
	}
	return nil
}
