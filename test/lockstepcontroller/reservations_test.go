package lockstepcontroller_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// The marks against scale-down, and the record of which were set by the controller.
const (
	autoscalerMark = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	karpenterMark  = "karpenter.sh/do-not-disrupt"
	marksRecord    = "scheduling.lockstep.dev/reservation-marks"
)

// booking is a Reservation, and a stand-in for the scheduler, with its permissions and no others.
type booking struct {
	n         *namespace
	name      string
	admin     client.Client
	scheduler client.Client
}

type reservationChange = func(*v1alpha1.ReservationSpec)

func forTTL(ttl time.Duration) reservationChange {
	return func(s *v1alpha1.ReservationSpec) { s.TTL = &metav1.Duration{Duration: ttl} }
}

func usedAgain(s *v1alpha1.ReservationSpec) { s.AllocateOnce = new(false) }

func withReplicas(count int32) reservationChange {
	return func(s *v1alpha1.ReservationSpec) { s.Replicas = count }
}

// reserve creates a Reservation under the name of the namespace, for the pods there whose annotation says that
// they use it.
func (n *namespace) reserve(changes ...reservationChange) *booking {
	n.t.Helper()
	b := &booking{n: n, name: n.name}
	config := rest.CopyConfig(n.cluster.RESTConfig())
	b.admin = typedClient(n.t, config)
	config.Impersonate.UserName = "system:serviceaccount:" + system + ":lockstep-scheduler"
	config.Impersonate.Groups = []string{"system:serviceaccounts", "system:authenticated"}
	b.scheduler = typedClient(n.t, config)
	r := &v1alpha1.Reservation{ObjectMeta: metav1.ObjectMeta{Name: b.name}, Spec: v1alpha1.ReservationSpec{
		Template: v1.PodTemplateSpec{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main"}}}},
		Owners:   []v1alpha1.ReservationOwner{{PodGroup: n.name + "/train"}},
	}}
	for _, change := range changes {
		change(&r.Spec)
	}
	if err := b.admin.Create(n.t.Context(), r); err != nil {
		n.t.Fatal(err)
	}
	return b
}

func typedClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1.AddToScheme, v1alpha1.AddToScheme, admissionv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (b *booking) get() *v1alpha1.Reservation {
	b.n.t.Helper()
	r := &v1alpha1.Reservation{}
	if err := b.admin.Get(b.n.t.Context(), client.ObjectKey{Name: b.name}, r); err != nil {
		b.n.t.Fatal(err)
	}
	return r
}

// place writes what the scheduler does when it has found a place for each replica.
func (b *booking) place(nodes ...string) {
	b.n.t.Helper()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		r := b.get()
		r.Status.Phase, r.Status.Placements, r.Status.NodeName = v1alpha1.ReservationAvailable, nil, ""
		for i, node := range nodes {
			r.Status.Placements = append(r.Status.Placements, v1alpha1.ReservationPlacement{
				Index: int32(i), NodeName: node, Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")},
			})
		}
		meta.SetStatusCondition(&r.Status.Conditions, metav1.Condition{Type: v1alpha1.ReservationScheduled, Status: metav1.ConditionTrue, Reason: v1alpha1.ReservationReasonScheduled})
		return b.scheduler.Status().Update(b.n.t.Context(), r)
	})
	if err != nil {
		b.n.t.Fatalf("placing Reservation %s: %v", b.name, err)
	}
}

// use creates a pod for 1 cpu that uses a placement, and binds it there.
func (b *booking) use(name string, index int, node string) {
	b.n.t.Helper()
	b.n.createPod(member(name, func(p *v1.Pod) {
		asking(byLabel)(p)
		p.Annotations[v1alpha1.ReservationAllocatedAnnotation] = fmt.Sprintf(`{"name":%q,"uid":%q,"index":%d}`, b.name, b.get().UID, index)
	}))
	binding := &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: b.n.name}, Target: v1.ObjectReference{Kind: "Node", Name: node}}
	if err := b.n.cluster.Clientset().CoreV1().Pods(b.n.name).Bind(b.n.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		b.n.t.Fatalf("binding pod %s: %v", name, err)
	}
}

func (b *booking) delete(pod string) {
	b.n.t.Helper()
	b.n.kubectl("delete", "pod", pod, "--force", "--grace-period=0")
}

// story returns what a test looks at: phase/reason, index@node=cpu in use, and owners of all.
func (b *booking) story() string {
	b.n.t.Helper()
	r := b.get()
	reason := "-"
	if c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ReservationReady); c != nil {
		reason = c.Reason
	}
	text := fmt.Sprintf("%s/%s", r.Status.Phase, reason)
	for _, p := range r.Status.Placements {
		text += fmt.Sprintf(" %d@%s=%s", p.Index, p.NodeName, p.Allocated.Cpu())
	}
	return fmt.Sprintf("%s owners=%d", text, r.Status.OwnerCount)
}

func (b *booking) wait(want string) {
	b.n.t.Helper()
	await.NoError(b.n.t, fmt.Sprintf("Reservation %s is %q", b.name, want), func() error {
		if got := b.story(); got != want {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
}

func (b *booking) says(want string) {
	b.n.t.Helper()
	if c := meta.FindStatusCondition(b.get().Status.Conditions, v1alpha1.ReservationReady); c == nil || !strings.Contains(c.Message, want) {
		b.n.t.Errorf("condition Ready of Reservation %s: %+v, want it to say %q", b.name, c, want)
	}
}

// stays fails if the Reservation is written for a while.
func (b *booking) stays() {
	b.n.t.Helper()
	before := b.get()
	time.Sleep(quiet)
	if after := b.get(); after.ResourceVersion != before.ResourceVersion {
		b.n.t.Errorf("Reservation %s was written where nothing changed: %+v", b.name, after.Status)
	}
}

// event waits for one on the Reservation.
func (b *booking) event(kind, reason string) {
	b.n.t.Helper()
	await.NoError(b.n.t, fmt.Sprintf("Reservation %s has an event %s %s", b.name, kind, reason), func() error {
		list, err := b.n.cluster.Clientset().CoreV1().Events("default").List(b.n.t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.InvolvedObject.Kind == "Reservation" && e.InvolvedObject.Name == b.name && e.Type == kind && e.Reason == reason {
				return nil
			}
		}
		return fmt.Errorf("not among %d events", len(list.Items))
	})
}

// TestReservations runs everything that one controller can be asked at a time, and then does without it.
func TestReservations(t *testing.T) {
	t.Parallel()
	c := startBare(t, manifest(t, "rbac", "node-marks.yaml"))
	controller := run(t, c, "first", "--reservation-mark-nodes", "--metrics-secure=false")
	early := newNamespace(t, c, "early")
	const line = `Waiting for a CRD: the API server does not serve its kind" kind="scheduling.lockstep.dev/v1alpha1, Kind=Reservation"`
	await.NoError(t, "the log says that it waits", func() error { return contains(controller.log(t), line) })
	if err := c.Apply(testContext(t), manifest(t, "crds", reservationCRD)); err != nil {
		t.Fatal(err)
	}
	await.NoError(t, "clients find Reservations", func() error {
		return typedClient(t, c.RESTConfig()).List(t.Context(), &v1alpha1.ReservationList{})
	})
	kept := early.reserve(forTTL(0), withReplicas(2), usedAgain)
	kept.wait("Pending/Pending owners=0")
	t.Run("Lives", func(t *testing.T) { // returns when all of them are done
		for name, test := range map[string]func(*testing.T, *localcluster.Cluster){
			"expires":   testReservationExpires,
			"prolonged": testReservationProlonged,
			"once":      testReservationOnce,
			"again":     testReservationAgain,
			"node-lost": testReservationNodeLost,
			"cordoned":  testReservationCordoned,
			"deleted":   testReservationDeleted,
			"marks":     testReservationMarks,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, c)
			})
		}
	})
	checkReservationMetrics(t, controller)
	testReservationRestart(t, c, controller, kept)
}

// testReservationExpires: a Reservation that found no place ends when its time is up: not before, and soon
// after.
func testReservationExpires(t *testing.T, c *localcluster.Cluster) {
	b := newNamespace(t, c, "expires").reserve(forTTL(4 * time.Second))
	b.wait("Pending/Pending owners=0")
	b.wait("Failed/Expired owners=0")
	r := b.get()
	if late := r.Status.EndTime.Sub(r.CreationTimestamp.Time) - 4*time.Second; late < 0 || late > patience/3 {
		t.Errorf("made at %s, it ended at %s: %s late", r.CreationTimestamp, r.Status.EndTime, late)
	}
	b.says("without a place: condition Scheduled tells why")
	b.event(v1.EventTypeWarning, "Expired")
	r.Spec.TTL = &metav1.Duration{Duration: time.Hour}
	if err := b.admin.Update(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	b.stays()
	b.wait("Failed/Expired owners=0")
}

// testReservationProlonged: a user who prolongs it in time keeps it, and one who shortens it ends it at once.
func testReservationProlonged(t *testing.T, c *localcluster.Cluster) {
	b := newNamespace(t, c, "prolonged").reserve(forTTL(12 * time.Second))
	b.place("node-0")
	b.n.kubectl("patch", "rsv", b.name, "--type=merge", "--patch", `{"spec": {"ttl": "1h"}}`)
	b.wait("Available/Available 0@node-0=0 owners=0")
	time.Sleep(time.Until(b.get().CreationTimestamp.Add(13 * time.Second)))
	b.stays()
	b.n.kubectl("patch", "rsv", b.name, "--type=merge", "--patch", `{"spec": {"expires": "2020-01-01T00:00:00Z"}}`)
	b.wait("Failed/Expired 0@node-0=0 owners=0")
	b.event(v1.EventTypeNormal, "Expired")
}

// testReservationOnce: used once, it has succeeded; and stays so when its owner is gone.
func testReservationOnce(t *testing.T, c *localcluster.Cluster) {
	b := newNamespace(t, c, "once").reserve(forTTL(0), withReplicas(2))
	b.place("node-0", "node-1")
	b.wait("Available/Available 0@node-0=0 1@node-1=0 owners=0")
	b.says("2 placements are held until it is deleted")
	b.event(v1.EventTypeNormal, "Available")
	b.use("train-0", 0, "node-0")
	b.wait("Available/Available 0@node-0=1 1@node-1=0 owners=1")
	b.use("train-1", 1, "node-1")
	b.wait("Succeeded/Succeeded 0@node-0=1 1@node-1=1 owners=2")
	b.event(v1.EventTypeNormal, "Succeeded")
	b.delete("train-0")
	b.stays()
}

// testReservationAgain: used again and again, it is held for the next owner; pods that do not own it do not
// count.
func testReservationAgain(t *testing.T, c *localcluster.Cluster) {
	b := newNamespace(t, c, "again").reserve(forTTL(0), usedAgain)
	b.place("node-0")
	b.use("train-0", 0, "node-0")
	b.wait("Available/Available 0@node-0=1 owners=1")
	b.use("train-1", 0, "node-0")
	b.use("train-2", 0, "node-0")
	b.use("elsewhere", 0, "node-1")
	b.wait("Available/Available 0@node-0=2 owners=3")
	b.n.createPod(member("stranger", asking(byLabel)))
	b.stays()
	b.n.phase("train-0", v1.PodSucceeded)
	b.wait("Available/Available 0@node-0=2 owners=2")
	b.delete("train-1")
	b.wait("Available/Available 0@node-0=1 owners=1")
	b.delete("train-2")
	b.wait("Available/Available 0@node-0=0 owners=0")
}

// testReservationNodeLost: a node that goes takes its placement along; the scheduler finds another one.
func testReservationNodeLost(t *testing.T, c *localcluster.Cluster) {
	b := newNamespace(t, c, "node-lost").reserve(forTTL(0), withReplicas(2))
	b.place("node-2", "node-3")
	b.wait("Available/Available 0@node-2=0 1@node-3=0 owners=0")
	b.n.kubectl("delete", "node", "node-3")
	b.wait("Pending/NodeLost 0@node-2=0 owners=0")
	b.says("gone: node node-3, and 1 of 2 placements with it: another place is sought; 1 are held")
	b.event(v1.EventTypeWarning, "NodeLost")
	b.stays()
	b.place("node-2", "node-4")
	b.wait("Available/Available 0@node-2=0 1@node-4=0 owners=0")
}

// testReservationCordoned: a node that takes no more pods keeps what is held on it, and is named.
func testReservationCordoned(t *testing.T, c *localcluster.Cluster) {
	b := newNamespace(t, c, "cordoned").reserve(forTTL(0))
	b.place("node-5")
	b.wait("Available/Available 0@node-5=0 owners=0")
	b.n.kubectl("cordon", "node-5")
	await.NoError(t, "it says so", func() error {
		return contains(meta.FindStatusCondition(b.get().Status.Conditions, v1alpha1.ReservationReady).Message, "cordoned, and still held: node node-5")
	})
	b.n.kubectl("uncordon", "node-5")
	await.NoError(t, "it says it no more", func() error {
		if message := meta.FindStatusCondition(b.get().Status.Conditions, v1alpha1.ReservationReady).Message; strings.Contains(message, "cordoned") {
			return fmt.Errorf("it says %q", message)
		}
		return nil
	})
	b.wait("Available/Available 0@node-5=0 owners=0")
}

// testReservationDeleted: a Reservation that is being deleted holds nothing, however long others need to let
// it go.
func testReservationDeleted(t *testing.T, c *localcluster.Cluster) {
	b := newNamespace(t, c, "deleted").reserve(forTTL(0))
	b.place("node-0")
	b.wait("Available/Available 0@node-0=0 owners=0")
	b.n.kubectl("patch", "rsv", b.name, "--type=merge", "--patch", `{"metadata": {"finalizers": ["example.com/wait"]}}`)
	b.n.kubectl("delete", "rsv", b.name, "--wait=false")
	b.wait("Failed/Deleted 0@node-0=0 owners=0")
	b.n.kubectl("patch", "rsv", b.name, "--type=merge", "--patch", `{"metadata": {"finalizers": null}}`)
	b.gone()
}

func (b *booking) gone() {
	b.n.t.Helper()
	await.NoError(b.n.t, fmt.Sprintf("Reservation %s is gone", b.name), func() error {
		err := b.admin.Get(b.n.t.Context(), client.ObjectKey{Name: b.name}, &v1alpha1.Reservation{})
		if client.IgnoreNotFound(err) != nil || err == nil {
			return fmt.Errorf("it is there, %w", err)
		}
		return nil
	})
}

// marks waits for the marks of a node.
func (n *namespace) marks(node string, want map[string]string) {
	n.t.Helper()
	await.NoError(n.t, fmt.Sprintf("node %s has marks %v", node, want), func() error {
		object, err := n.cluster.Clientset().CoreV1().Nodes().Get(n.t.Context(), node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, key := range []string{autoscalerMark, karpenterMark, marksRecord} {
			if object.Annotations[key] != want[key] {
				return fmt.Errorf("it has %v", object.Annotations)
			}
		}
		return nil
	})
}

// testReservationMarks: nodes are marked for as long as something is held there; marks that others have set
// are left alone.
func testReservationMarks(t *testing.T, c *localcluster.Cluster) {
	n := newNamespace(t, c, "marks")
	n.kubectl("annotate", "node", "node-6", karpenterMark+"=true")
	b := n.reserve(forTTL(0))
	b.place("node-6")
	n.marks("node-6", map[string]string{autoscalerMark: "true", karpenterMark: "true", marksRecord: autoscalerMark})
	n.kubectl("delete", "rsv", b.name)
	n.marks("node-6", map[string]string{karpenterMark: "true"})
}

func checkReservationMetrics(t *testing.T, i *instance) {
	t.Helper()
	await.NoError(t, "metrics have what there is", func() error { // they follow watches
		have, err := reservationMetrics(i)
		if err != nil {
			return err
		}
		for _, want := range []string{
			`lockstep_reservation_reservations{phase="Available"} 3`, // again, node-lost, cordoned
			`lockstep_reservation_reservations{phase="Pending"} 1`,
			`lockstep_reservation_reservations{phase="Succeeded"} 1`,
			`lockstep_reservation_reservations{phase="Failed"} 2`,
			`lockstep_reservation_reserved{resource="cpu"} 8`,
			`lockstep_reservation_allocated{resource="cpu"} 0`,
			`lockstep_reservation_expired_total 2`,
			`lockstep_reservation_age_seconds{phase="Available"} `,
		} {
			if err := contains(have, want); err != nil {
				return err
			}
		}
		return nil
	})
}

// reservationMetrics returns the metrics of Reservations.
func reservationMetrics(i *instance) (string, error) {
	response, err := http.Get("http://" + i.metrics + "/metrics")
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(response.Body)
	have := ""
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "lockstep_reservation") {
			have += line
		}
	}
	return have, errors.Join(err, response.Body.Close())
}

// testReservationRestart: the next controller makes up for what happens while none runs. It marks no nodes,
// and so unmarks them; and it deletes what has ended.
func testReservationRestart(t *testing.T, c *localcluster.Cluster, first *instance, kept *booking) {
	kept.place("node-6", "node-7")
	kept.wait("Available/Available 0@node-6=0 1@node-7=0 owners=0")
	kept.n.marks("node-7", map[string]string{autoscalerMark: "true", karpenterMark: "true", marksRecord: autoscalerMark + "," + karpenterMark})
	over := newNamespace(t, c, "over").reserve(forTTL(2 * time.Second))
	used := newNamespace(t, c, "used").reserve(forTTL(0))
	used.place("node-1")
	used.wait("Available/Available 0@node-1=0 owners=0")
	log := first.log(t) // what it does when it is stopped may fail
	if err := first.Stop(testContext(t)); err != nil {
		t.Fatal(err)
	}
	kept.use("train-0", 1, "node-7")
	used.use("train-0", 0, "node-1")
	kept.n.kubectl("delete", "node", "node-6")
	time.Sleep(2 * time.Second)
	over.n.kubectl("patch", "rsv", over.name, "--type=merge", "--patch", `{"metadata": {"annotations": {"example.com/a": "b"}}}`)

	second := run(t, c, "second", "--reservation-keep-ended=5s")
	kept.wait("Pending/NodeLost 1@node-7=1 owners=1")
	kept.n.marks("node-7", nil)
	used.wait("Succeeded/Succeeded 0@node-1=1 owners=1")
	used.gone()
	over.gone()
	for _, log := range []string{log, second.log(t)} {
		if strings.Contains(log, "forbidden") || strings.Contains(log, "Reconciler error") {
			t.Errorf("the log has errors:\n%s", log)
		}
	}
}
