package lockstepcontroller_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// queueCRD is the CRD of Queues.
const queueCRD = "scheduling.lockstep.dev_queues.yaml"

// queues are the Queues of a cluster.
type queues struct {
	t       *testing.T
	cluster *localcluster.Cluster
	client  dynamic.ResourceInterface
}

func newQueues(t *testing.T, c *localcluster.Cluster) *queues {
	t.Helper()
	client, err := dynamic.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	return &queues{t: t, cluster: c, client: client.Resource(v1alpha1.QueueResource)}
}

func (q *queues) create(name string, spec map[string]any) {
	q.t.Helper()
	if _, err := q.client.Create(q.t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": "Queue", "metadata": map[string]any{"name": name}, "spec": spec,
	}}, metav1.CreateOptions{}); err != nil {
		q.t.Fatalf("creating queue %s: %v", name, err)
	}
}

func (q *queues) patch(name, body string) {
	q.t.Helper()
	if _, err := q.client.Patch(q.t.Context(), name, types.MergePatchType, []byte(body), metav1.PatchOptions{}); err != nil {
		q.t.Fatalf("changing queue %s: %v", name, err)
	}
}

// wait waits for what users see of a queue: cpu deserved/allocated/requested, share, running+pending,
// and the reason of Ready.
func (q *queues) wait(name, want string) {
	q.t.Helper()
	await.NoError(q.t, fmt.Sprintf("queue %s has %q", name, want), func() error {
		got, err := q.cluster.Kubectl(q.t.Context(), "get", "queue", name, "--output",
			`jsonpath={.status.deserved.cpu}/{.status.allocated.cpu}/{.status.requested.cpu} {.status.share} {.status.runningGangs}+{.status.pendingGangs} {.status.conditions[?(@.type=="Ready")].reason}`)
		if err != nil || got != want {
			return fmt.Errorf("it has %q, %w", got, err)
		}
		return nil
	})
}

func (q *queues) version(name string) string {
	q.t.Helper()
	object, err := q.client.Get(q.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		q.t.Fatal(err)
	}
	return object.GetResourceVersion()
}

// asking makes members ask for one cpu.
func asking(join func(*v1.Pod)) func(*v1.Pod) {
	return func(p *v1.Pod) {
		join(p)
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}
	}
}

// TestQueues: Queues are counted from when their CRD is there, by PodGroup from when that one is.
func TestQueues(t *testing.T) {
	t.Parallel()
	c := start(t)
	controller := run(t, c, "controller")
	n := newNamespace(t, c, "queues")
	n.kubectl("annotate", "namespace", n.name, v1alpha1.QueueLabel+"=a")
	n.create(2, asking(func(p *v1.Pod) { byLabel(p); p.Annotations[v1alpha1.MinAvailableAnnotation] = "2" }))
	n.createPod(member("alone", asking(func(p *v1.Pod) { p.Labels[v1alpha1.QueueLabel] = "b" })))
	n.createPod(member("foreign", func(p *v1.Pod) { p.Spec.SchedulerName = "other" }))

	if err := c.Apply(testContext(t), manifest(t, "crds", queueCRD)); err != nil {
		t.Fatal(err)
	}
	q := newQueues(t, c)
	q.create("top", map[string]any{})
	q.create("a", map[string]any{"parent": "top"})
	q.create("b", map[string]any{"parent": "nobody"})
	q.wait("a", "2//2 0% 0+1 Serving")
	q.wait("top", "2//2 0% 0+1 Serving")
	q.wait("b", "//1 0% 0+1 ParentNotFound")
	n.bind("train-0")
	q.wait("a", "2/1/2 "+percentOfOne(t, c)+" 1+0 Serving")

	q.patch("b", `{"spec": {"parent": "top", "closed": true}}`)
	q.wait("b", "//1 0% 0+1 Closed")
	q.wait("top", "2/1/3 "+percentOfOne(t, c)+" 1+1 Serving")

	if err := c.Apply(testContext(t), manifest(t, "crds", crd)); err != nil {
		t.Fatal(err)
	}
	n.createGroup(2)
	n.kubectl("label", "podgroups.scheduling.x-k8s.io", "train", v1alpha1.QueueLabel+"=b")
	q.wait("a", "// 0% 0+0 Serving")
	q.wait("b", "1/1/3 "+percentOfOne(t, c)+" 1+1 Closed")

	before := q.version("b")
	n.kubectl("annotate", "pod", "alone", "example.com/unrelated=yes")
	n.createPod(member("nothing", func(p *v1.Pod) { p.Spec.SchedulerName = "other" }))
	time.Sleep(quiet)
	if after := q.version("b"); after != before {
		t.Errorf("queue b was written where nothing changed in it")
	}
	if log := controller.log(t); strings.Contains(log, "forbidden") || strings.Contains(log, "Reconciler error") {
		t.Errorf("the log has errors:\n%s", log)
	}
}

// percentOfOne returns the share of one cpu.
func percentOfOne(t *testing.T, c *localcluster.Cluster) string {
	t.Helper()
	list, err := c.Clientset().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sum := resource.Quantity{}
	for i := range list.Items {
		sum.Add(*list.Items[i].Status.Allocatable.Cpu())
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", 100/sum.AsApproximateFloat64()), ".0") + "%"
}
