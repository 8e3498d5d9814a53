package upgrade

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

var from = flag.String("from", "", "the commit to upgrade from, and to go back to")

// TestUpgradeAndWayBack: what runs runs on, on the same nodes, and a gang that waits goes on waiting, and starts whole
// when there is room for it, whichever build was there when it came. Each build reads the Queues, Reservations and
// PodMigrations of the other, and goes on with them.
func TestUpgradeAndWayBack(t *testing.T) {
	if *from == "" {
		t.Skip("-from names no commit")
	}
	root, err := localcluster.Root()
	if err != nil {
		t.Fatal(err)
	}
	if err := localcluster.BuildCommands(t.Context()); err != nil {
		t.Fatal(err)
	}
	newer, older := build{"newer", root}, build{"older", checkout(t, root)}
	slots := localcluster.NodePool{Count: 2, NamePrefix: "slot-", Allocatable: v1.ResourceList{slot: resource.MustParse("1")}}
	u := &upgrade{T: t, Cluster: localcluster.Run(t, localcluster.Options{
		Nodes:     []localcluster.NodePool{nodes("first-", 5), slots},
		Manifests: append(localcluster.Roles(older.dir), filepath.Join(older.dir, "manifests", "crds")),
	})}
	u.install(older)
	u.apply("shared", sharedByAll)
	u.kubectl("wait", "reservation", "spare", "--for=condition=Ready", "--timeout=30s")
	held := u.kubectl("get", "reservation", "spare", "-o", "jsonpath={.status.nodeName}")
	u.create("a", "research", 4)
	u.await("a", 4)
	u.create("b", "research", 3)
	u.reason("b", "Unschedulable")
	u.create("capped", "small", 2)
	u.reason("capped", "QueueCapability")
	u.kubectl("rollout", "status", "statefulset/moved", "--timeout=30s")
	u.plan("there")
	before := u.placed()

	if err := u.Apply(t.Context(), append([]string{filepath.Join(newer.dir, "manifests", "crds")}, localcluster.Roles(newer.dir)...)...); err != nil {
		t.Fatal(err)
	}
	u.install(newer)
	u.reason("b", "Unschedulable")
	u.reason("capped", "QueueCapability")
	u.unchanged("the upgrade", before)
	u.move("there")
	u.add("second-", 3)
	u.await("b", 3)
	u.create("c", "research", 2)
	u.reason("c", "Unschedulable")
	u.plan("back")
	before = u.placed()

	// The CRDs stay those of the newer build.
	if err := u.Apply(t.Context(), localcluster.Roles(older.dir)...); err != nil {
		t.Fatal(err)
	}
	u.install(older)
	u.reason("c", "Unschedulable")
	u.reason("capped", "QueueCapability")
	u.unchanged("the way back", before)
	u.move("back")
	u.add("third-", 2)
	u.await("c", 2)
	u.add("fourth-", 2)
	u.kubectl("patch", "queue", "small", "--type=merge", "--patch", `{"spec":{"capability":{"nvidia.com/gpu":"16"}}}`)
	u.await("capped", 2)
	u.unchanged("a start after the way back", before)
	u.apply("owner", owner)
	u.kubectl("wait", "pod", "spare", "--for=jsonpath={.status.phase}=Running", "--timeout=30s")
	if got := u.kubectl("get", "pod", "spare", "-o", "jsonpath={.spec.nodeName}"); got != held {
		t.Errorf("the owner of the Reservation is on %s, and %s was held for it", got, held)
	}
}

// slot is what a node has of which the PodMigrations move a pod.
const slot = "example.com/slot"

const (
	// sharedByAll is there from the beginning: queues, a place that is held, and a pod for the PodMigrations.
	sharedByAll = `
apiVersion: scheduling.lockstep.dev/v1alpha1
kind: Queue
metadata: {name: research}
spec: {weight: 2}
---
apiVersion: scheduling.lockstep.dev/v1alpha1
kind: Queue
metadata: {name: small}
spec: {capability: {nvidia.com/gpu: 8}}
---
apiVersion: scheduling.lockstep.dev/v1alpha1
kind: Reservation
metadata: {name: spare}
spec:
  ttl: 0s
  owners: [{object: {namespace: default, name: spare}}]
  template:
    spec:
      schedulerName: lockstep-scheduler
      containers: [{name: main, resources: {limits: {nvidia.com/gpu: 8}}}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: moved, namespace: default}
spec:
  serviceName: moved
  selector: {matchLabels: {app: moved}}
  template:
    metadata: {labels: {app: moved}}
    spec:
      schedulerName: lockstep-scheduler
      containers: [{name: main, image: none, resources: {limits: {example.com/slot: 1}}}]
`
	// owner is the pod that the place is held for.
	owner = `
apiVersion: v1
kind: Pod
metadata: {name: spare, namespace: default}
spec:
  schedulerName: lockstep-scheduler
  containers: [{name: main, image: none, resources: {limits: {nvidia.com/gpu: 8}}}]
`
)

// checkout builds the scheduler, the controller and the descheduler of the commit, and returns the folder with its
// files. That is the same each time: what was compiled there is not compiled again.
func checkout(t *testing.T, root string) string {
	t.Helper()
	dir := filepath.Join(root, ".local", "upgrade")
	for _, line := range []string{
		`rm -rf "$DIR" && mkdir -p "$DIR" && git -C "$ROOT" archive "$FROM" | tar -x -C "$DIR"`,
		`make --silent -C "$DIR" build COMMANDS="scheduler controller descheduler" VERSION="$FROM"`,
	} {
		cmd := exec.CommandContext(t.Context(), "bash", "-o", "pipefail", "-c", line)
		cmd.Env = append(os.Environ(), "ROOT="+root, "FROM="+*from, "DIR="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("building %s: %v\n%s", *from, err, out)
		}
	}
	return dir
}

// build is a checkout whose programs are in its bin/.
type build struct{ name, dir string }

// upgrade is a cluster on which one build runs.
type upgrade struct {
	*testing.T
	*localcluster.Cluster
	running []*localcluster.Process
}

// install starts the programs of a build, ends those that ran before, as a rollout does, and waits until the new ones
// lead.
func (u *upgrade) install(b build) {
	u.Helper()
	before := u.running
	u.running = []*localcluster.Process{
		u.start(b, "lockstep-scheduler", "--config="+u.config(b), "--secure-port=0"),
		u.start(b, "lockstep-controller", "--kubeconfig="+u.account("lockstep-controller"), "--leader-elect", "--metrics-bind-address=0", "--health-probe-bind-address=0"),
		u.start(b, "lockstep-descheduler", "--kubeconfig="+u.account("lockstep-descheduler"), "--scheduler-config="+u.config(b),
			"--policy-config-file="+filepath.Join(b.dir, "manifests", "descheduler", "workload", "policy.yaml"), "--descheduling-interval=10s",
			"--leader-elect", "--leader-elect-resource-name=lockstep-descheduler", "--leader-elect-resource-namespace=kube-system", "--leader-elect-retry-period=1s",
			"--secure-port=0"),
	}
	ctx, cancel := context.WithTimeout(u.Context(), 30*time.Second)
	defer cancel()
	leaders := u.leaders()
	for _, process := range before {
		if err := process.Stop(ctx); err != nil {
			u.Fatal(err)
		}
	}
	await.NoError(u, "the programs of the "+b.name+" build lead", func() error {
		for lease, holder := range u.leaders() {
			if holder == "" || holder == leaders[lease] && len(before) > 0 {
				return fmt.Errorf("lease %s is held by %q", lease, holder)
			}
		}
		for _, process := range u.running {
			select {
			case <-process.Done():
				u.Fatalf("%s of the %s build has ended: %v", process.Name, b.name, process.Err())
			default:
			}
		}
		return nil
	})
}

func (u *upgrade) start(b build, name string, args ...string) *localcluster.Process {
	u.Helper()
	process, err := u.Start(b.name+"-"+name, filepath.Join(b.dir, "bin", name), args, "")
	if err != nil {
		u.Fatal(err)
	}
	return process
}

// leaders returns who holds which lease.
func (u *upgrade) leaders() map[string]string {
	u.Helper()
	holders := map[string]string{"lockstep-scheduler": "", "lockstep-controller": "", "lockstep-descheduler": ""}
	for name := range holders {
		lease, err := u.Clientset().CoordinationV1().Leases(metav1.NamespaceSystem).Get(u.Context(), name, metav1.GetOptions{})
		if err == nil && lease.Spec.HolderIdentity != nil {
			holders[name] = *lease.Spec.HolderIdentity
		}
	}
	return holders
}

func (u *upgrade) account(name string) string {
	u.Helper()
	path, err := u.KubeconfigFor(name)
	if err != nil {
		u.Fatal(err)
	}
	return path
}

// config returns the configuration that a build installs, with FairShare and the kubeconfig of the scheduler.
func (u *upgrade) config(b build) string {
	u.Helper()
	data, err := os.ReadFile(filepath.Join(b.dir, "manifests", "config", "beside-default-scheduler.yaml"))
	if err != nil {
		u.Fatal(err)
	}
	config := map[string]any{}
	if err := yaml.Unmarshal(data, &config); err != nil {
		u.Fatal(err)
	}
	config["clientConnection"].(map[string]any)["kubeconfig"] = u.account("lockstep-scheduler")
	for _, profile := range config["profiles"].([]any) {
		all := profile.(map[string]any)["plugins"].(map[string]any)["multiPoint"].(map[string]any)
		all["enabled"] = append(all["enabled"].([]any), map[string]any{"name": "FairShare"})
	}
	if data, err = yaml.Marshal(config); err != nil {
		u.Fatal(err)
	}
	path := filepath.Join(u.Dir(), b.name+".yaml")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		u.Fatal(err)
	}
	return path
}

// nodes are such that each has room for one member.
func nodes(prefix string, count int) localcluster.NodePool {
	return localcluster.NodePool{Count: count, NamePrefix: prefix, Allocatable: v1.ResourceList{localcluster.ResourceGPU: resource.MustParse("8")}}
}

func (u *upgrade) add(prefix string, count int) {
	u.Helper()
	if err := u.AddNodes(u.Context(), nodes(prefix, count)); err != nil {
		u.Fatal(err)
	}
}

// create makes a gang of a queue that needs a number of nodes for itself.
func (u *upgrade) create(name, queue string, size int) {
	u.Helper()
	u.apply(name, fmt.Sprintf(`
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: PodGroup
metadata: {name: %[1]s, namespace: default, labels: {scheduling.lockstep.dev/queue: %[3]s}}
spec: {minMember: %[2]d}
---
apiVersion: batch/v1
kind: Job
metadata: {name: %[1]s, namespace: default}
spec:
  parallelism: %[2]d
  completions: %[2]d
  template:
    metadata:
      labels: {scheduling.x-k8s.io/pod-group: %[1]s}
    spec:
      schedulerName: lockstep-scheduler
      restartPolicy: Never
      containers:
      - name: worker
        image: worker
        resources: {limits: {nvidia.com/gpu: 8}}
`, name, size, queue))
}

// apply applies objects by way of a file of this name.
func (u *upgrade) apply(name, objects string) {
	u.Helper()
	file := filepath.Join(u.Dir(), name+".yaml")
	if err := os.WriteFile(file, []byte(objects), 0o600); err != nil {
		u.Fatal(err)
	}
	if err := u.Apply(u.Context(), file); err != nil {
		u.Fatal(err)
	}
}

func (u *upgrade) kubectl(args ...string) string {
	u.Helper()
	out, err := u.Kubectl(u.Context(), args...)
	if err != nil {
		u.Fatal(err)
	}
	return out
}

// plan makes a PodMigration of the pod moved-0 to the other node with a slot, and returns once that is reserved. The
// pod stays until move.
func (u *upgrade) plan(name string) {
	u.Helper()
	pod, err := u.Clientset().CoreV1().Pods("default").Get(u.Context(), "moved-0", metav1.GetOptions{})
	if err != nil {
		u.Fatal(err)
	}
	target := map[string]string{"slot-0": "slot-1", "slot-1": "slot-0"}[pod.Spec.NodeName]
	u.apply(name, fmt.Sprintf(`
apiVersion: scheduling.lockstep.dev/v1alpha1
kind: PodMigration
metadata: {name: %s, namespace: default}
spec: {podName: moved-0, podUID: %s, sourceNode: %s, targetNode: %s, suspend: true}
`, name, pod.UID, pod.Spec.NodeName, target))
	u.kubectl("wait", "podmigration", name, "--for=condition=Reserved", "--timeout=30s")
}

// move carries a PodMigration out.
func (u *upgrade) move(name string) {
	u.Helper()
	u.kubectl("patch", "podmigration", name, "--type=merge", "--patch", `{"spec":{"suspend":false}}`)
	u.kubectl("wait", "podmigration", name, "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s")
}

// pods returns those of a gang; of all if it is empty.
func (u *upgrade) pods(gang string) []v1.Pod {
	u.Helper()
	selector := "scheduling.x-k8s.io/pod-group"
	if gang != "" {
		selector += "=" + gang
	}
	list, err := u.Clientset().CoreV1().Pods("default").List(u.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		u.Fatal(err)
	}
	return list.Items
}

// await waits until all members of a gang run.
func (u *upgrade) await(gang string, size int) {
	u.Helper()
	await.NoError(u, "gang "+gang+" runs", func() error {
		running := 0
		for _, pod := range u.pods(gang) {
			if pod.Status.Phase == v1.PodRunning {
				running++
			}
		}
		if running != size {
			return fmt.Errorf("%d of %d members run", running, size)
		}
		return nil
	})
}

// reason waits until the controller gives a reason why a gang waits, and makes sure that it has no node.
func (u *upgrade) reason(gang, want string) {
	u.Helper()
	await.NoError(u, "gang "+gang+" says why it waits", func() error {
		got, err := u.Kubectl(u.Context(), "get", "podgroup", gang, "-o", `jsonpath={.status.conditions[?(@.type=="Scheduled")].reason}`)
		if err == nil && got != want {
			err = fmt.Errorf("its reason is %q", got)
		}
		return err
	})
	for _, pod := range u.pods(gang) {
		if pod.Spec.NodeName != "" {
			u.Errorf("a member of gang %s, which waits, is on %s", gang, pod.Spec.NodeName)
		}
	}
}

// placed returns where each pod is that has a node, by its UID.
func (u *upgrade) placed() map[string]string {
	u.Helper()
	nodes := map[string]string{}
	for _, pod := range u.pods("") {
		if pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil {
			nodes[string(pod.UID)] = pod.Spec.NodeName
		}
	}
	return nodes
}

// unchanged checks that what was placed before still is, on the same nodes.
func (u *upgrade) unchanged(after string, before map[string]string) {
	u.Helper()
	now := u.placed()
	for uid := range now {
		if _, ok := before[uid]; !ok {
			delete(now, uid)
		}
	}
	if diff := cmp.Diff(before, now); diff != "" {
		u.Errorf("nodes of pods after %s (-before +now):\n%s", after, diff)
	}
}

// TestMakeNeedsACommit: without a commit and without tags make test-upgrade fails, and says what to give.
func TestMakeNeedsACommit(t *testing.T) {
	root, err := localcluster.Root()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "make", "test-upgrade", "FROM=")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "GIT_DIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if want := "Name a commit: make test-upgrade FROM=COMMIT"; err == nil || !strings.Contains(string(out), want) {
		t.Errorf("make test-upgrade: %v, want a failure that says %q:\n%s", err, want, out)
	}
}
