package lockstepcontroller_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// crd is ours: it has status.conditions.
const crd = "scheduling.x-k8s.io_podgroups.yaml"

const (
	incomplete = "GangIncomplete"
	awaiting   = "AwaitingPlacement"
	bound      = "MinimumBound"
)

// TestController runs everything that one controller can be asked at a time.
func TestController(t *testing.T) {
	t.Parallel()
	c := start(t, manifest(t, "crds", crd))
	controller := run(t, c, "controller")
	t.Run("Gangs", func(t *testing.T) { // returns when all of them are done
		for name, test := range map[string]func(*testing.T, *localcluster.Cluster){
			"PodsBeforePodGroup": testPodsFirst,
			"PodGroupBeforePods": testPodGroupFirst,
			"Job":                testJob,
			"FailedMembers":      testFailures,
			"TwoNamespaces":      testTwoNamespaces,
			"Writes":             testWrites,
			"TheSchedulersWord":  testSchedulersWord,
			"LeavesAndJoins":     testLeavesAndJoins,
			"Stages":             testStages,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, c)
			})
		}
	})
	if log := controller.log(t); strings.Contains(log, "forbidden") || strings.Contains(log, "Reconciler error") {
		t.Errorf("the log has errors:\n%s", log)
	}
}

func testPodsFirst(t *testing.T, c *localcluster.Cluster) {
	n := newNamespace(t, c, "pods-first")
	n.create(2, byLabel)
	n.bind("train-0", "train-1")
	g := n.createGroup(2)
	g.wait("Running", 2, 0, 0, bound)
	if got := g.last(); got.scheduled().Status != metav1.ConditionTrue || got.ScheduleStartTime.IsZero() {
		t.Errorf("status %s, start %v; want Scheduled True and a start", got, got.ScheduleStartTime)
	}
	g.stays()
}

// testPodGroupFirst: members that join in every way a PodGroup can describe; the
// annotation's minimum goes before the PodGroup's.
func testPodGroupFirst(t *testing.T, c *localcluster.Cluster) {
	n := newNamespace(t, c, "podgroup-first")
	g := n.createGroup(9)
	g.wait("Pending", 0, 0, 0, incomplete)
	g.stays()
	for i, join := range []func(*v1.Pod){
		byLabel,
		func(p *v1.Pod) { p.Labels["pod-group.scheduling.sigs.k8s.io"] = "train" },
		func(p *v1.Pod) { p.Labels["pod-group.scheduling.sigs.k8s.io/name"] = "train" },
		func(p *v1.Pod) {
			p.Annotations["gang.scheduling.koordinator.sh/name"] = "train"
			p.Annotations["gang.scheduling.koordinator.sh/min-available"] = "4"
		},
	} {
		n.createPod(member(fmt.Sprintf("train-%d", i), join))
	}
	n.createPod(member("stranger", func(p *v1.Pod) { p.Labels["scheduling.x-k8s.io/pod-group"] = "other" }))
	g.wait("PreScheduling", 0, 0, 0, awaiting)
	n.bind(names(4)...)
	g.wait("Running", 4, 0, 0, bound)
	if got, want := g.last().scheduled().Message, `gang "podgroup-first/train" has its minimum of 4 members bound`; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
}

func testJob(t *testing.T, c *localcluster.Cluster) {
	n := newNamespace(t, c, "job")
	g := n.createGroup(3)
	g.wait("Pending", 0, 0, 0, incomplete)
	pod := member("", byLabel)
	pod.Annotations["pod-complete.stage.kwok.x-k8s.io/delay"] = "3s"
	pod.Spec.RestartPolicy = v1.RestartPolicyNever
	jobs := c.Clientset().BatchV1().Jobs(n.name)
	_, err := jobs.Create(t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "train"}, Spec: batchv1.JobSpec{
		Parallelism: ptr.To[int32](3), Completions: ptr.To[int32](3),
		Template: v1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	g.wait("PreScheduling", 0, 0, 0, awaiting)
	list, err := c.Clientset().CoreV1().Pods(n.name).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 3 {
		t.Fatalf("pods of the job: %d, %v; want 3", len(list.Items), err)
	}
	n.bind(list.Items[0].Name)
	g.wait("Scheduling", 1, 0, 0, awaiting)
	n.bind(list.Items[1].Name, list.Items[2].Name)
	g.wait("Finished", 0, 3, 0, bound)
	if got := g.last().OccupiedBy; got != "job/train" {
		t.Errorf("occupied by %q, want job/train", got)
	}
	// Scheduled may be passed too fast to be written.
	want := "[Pending PreScheduling Scheduling Scheduled Running Finished]"
	if got := fmt.Sprint(g.phases()); got != want && got != strings.Replace(want, " Scheduled", "", 1) {
		t.Errorf("phases %s, want %s", got, want)
	}
	n.kubectl("delete", "job", "train", "--wait=true")
	await.NoError(t, "the pods are gone", func() error {
		list, err := c.Clientset().CoreV1().Pods(n.name).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) > 0 {
			return fmt.Errorf("%d pods, %w", len(list.Items), err)
		}
		return nil
	})
	g.stays()
	g.wait("Finished", 0, 3, 0, bound)
}

func testFailures(t *testing.T, c *localcluster.Cluster) {
	n := newNamespace(t, c, "failures")
	g := n.createGroup(3)
	n.create(3, byLabel)
	n.bind(names(3)...)
	g.wait("Running", 3, 0, 0, bound)
	n.phase("train-1", v1.PodFailed)
	g.wait("Failed", 2, 0, 1, incomplete)
	if got, want := g.last().scheduled().Message, `gang "failures/train" has 2 of 3 members (and 1 failed)`; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
	n.createPod(member("train-3", byLabel))
	g.wait("Unknown", 2, 0, 1, awaiting)
	n.bind("train-3")
	g.wait("Running", 3, 0, 1, bound)
	for _, name := range []string{"train-0", "train-2", "train-3"} {
		n.phase(name, v1.PodSucceeded)
	}
	g.wait("Finished", 0, 3, 1, bound)
}

func testTwoNamespaces(t *testing.T, c *localcluster.Cluster) {
	a, b := newNamespace(t, c, "twin-a"), newNamespace(t, c, "twin-b")
	ga, gb := a.createGroup(2), b.createGroup(2)
	a.create(2, byLabel)
	b.create(1, byLabel)
	a.bind(names(2)...)
	ga.wait("Running", 2, 0, 0, bound)
	gb.wait("Pending", 0, 0, 0, incomplete)
	gb.stays()
	if got, want := gb.last().scheduled().Message, `gang "twin-b/train" has 1 of 2 members`; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
}

// TestRecreated: a pod that is made again under its name is another one, and a pod that
// is on its way out is none.
func TestRecreated(t *testing.T) {
	t.Parallel()
	// Without KWOK: it deletes by name, and so may hit the successor.
	c := localcluster.Run(t, localcluster.Options{
		Nodes: nodes, WithoutKwok: true, Manifests: []string{manifest(t, "rbac"), manifest(t, "crds", crd)},
	})
	run(t, c, "controller")
	n := newNamespace(t, c, "recreated")
	g := n.createGroup(2)
	slow := func(p *v1.Pod) {
		byLabel(p)
		p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](3600)
	}
	start := func(names ...string) {
		n.bind(names...)
		for _, name := range names {
			n.phase(name, v1.PodRunning)
		}
	}
	n.create(2, slow)
	start(names(2)...)
	g.wait("Running", 2, 0, 0, bound)
	n.kubectl("delete", "pod", "train-0", "--wait=false")
	g.wait("Unknown", 1, 0, 0, incomplete)
	n.kubectl("delete", "pod", "train-0", "--force", "--grace-period=0")
	n.createPod(member("train-0", slow))
	g.wait("Unknown", 1, 0, 0, awaiting)
	start("train-0")
	g.wait("Running", 2, 0, 0, bound)
	n.phase("train-1", v1.PodFailed)
	g.wait("Failed", 1, 0, 1, incomplete)
	n.kubectl("delete", "pod", "train-1", "--force", "--grace-period=0")
	n.createPod(member("train-1", slow))
	g.wait("Unknown", 1, 0, 0, awaiting)
	n.kubectl("delete", "pod", "--all", "--force", "--grace-period=0")
	g.waitFor("phase Pending without a start, once all pods are gone", func(s status) bool {
		return s.Phase == "Pending" && s.Running == 0 && s.scheduled().Reason == incomplete && s.ScheduleStartTime.IsZero()
	})
}

// testWrites: a gang of 100 that comes, binds and runs costs a handful of writes.
func testWrites(t *testing.T, c *localcluster.Cluster) {
	const size, limit = 100, 12
	n := newNamespace(t, c, "writes")
	g := n.createGroup(size)
	begin := time.Now()
	n.create(size, byLabel)
	g.wait("PreScheduling", 0, 0, 0, awaiting)
	created := g.written()
	n.bind(names(size)...)
	g.wait("Running", size, 0, 0, bound)
	took := time.Since(begin)
	g.stays()
	t.Logf("%d writes until %d members were there, %d more until they ran, in %s", created, size, g.written()-created, took.Round(time.Millisecond))
	if got := g.written(); got > limit {
		t.Errorf("%d writes, want at most %d; phases %v", got, limit, g.phases())
	}
}

// testSchedulersWord: the controller and a scheduler that has its own opinion do not
// fight.
func testSchedulersWord(t *testing.T, c *localcluster.Cluster) {
	n := newNamespace(t, c, "word")
	g := n.createGroup(2)
	n.create(2, byLabel)
	g.wait("PreScheduling", 0, 0, 0, awaiting)
	g.explain("Unschedulable", "rack r1: 1 of 2 members fit; short 1 cpu")
	g.waitFor("the explanation", func(s status) bool { return s.scheduled().Reason == "Unschedulable" })
	n.kubectl("label", "pod", "train-0", "touched=yes")
	g.stays()
	n.kubectl("delete", "pod", "train-1", "--force", "--grace-period=0")
	g.wait("Pending", 0, 0, 0, incomplete)
	n.createPod(member("train-1", byLabel))
	g.wait("PreScheduling", 0, 0, 0, awaiting)
	g.explain("TimedOut", "waited 5s")
	n.kubectl("annotate", "pod", "train-0", "train-1", "gang.scheduling.koordinator.sh/timeout=true")
	g.wait("Pending", 0, 0, 0, "TimedOut")
	n.kubectl("delete", "pod", "train-1", "--force", "--grace-period=0")
	g.stays()
	n.kubectl("annotate", "pod", "train-0", "gang.scheduling.koordinator.sh/timeout-")
	g.wait("Pending", 0, 0, 0, incomplete)
	n.createPod(member("train-1", byLabel))
	n.bind(names(2)...)
	g.wait("Running", 2, 0, 0, bound)
	g.stays()
}

// testLeavesAndJoins: a pod whose label is changed counts where it went.
func testLeavesAndJoins(t *testing.T, c *localcluster.Cluster) {
	n := newNamespace(t, c, "leaves")
	g := n.createGroup(2)
	n.create(2, byLabel)
	g.wait("PreScheduling", 0, 0, 0, awaiting)
	n.kubectl("label", "pod", "train-1", "--overwrite", "scheduling.x-k8s.io/pod-group=other")
	g.wait("Pending", 0, 0, 0, incomplete)
	n.kubectl("label", "pod", "train-1", "--overwrite", "scheduling.x-k8s.io/pod-group=train")
	g.wait("PreScheduling", 0, 0, 0, awaiting)
}
