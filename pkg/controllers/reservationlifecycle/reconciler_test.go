package reservationlifecycle

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/framework/cachetransform"
	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
	"github.com/lockstep-sh/lockstep/test/helpers/fakeapi"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// made is when the Reservations of the tests are made.
var made = time.Date(2027, 1, 31, 6, 0, 0, 0, time.UTC)

// stage is a reconciler, and what happens around it.
type stage struct {
	*reconciler
	t        *testing.T
	clock    *testclock.FakeClock
	recorder *events.FakeRecorder
	// patches are the writes of the last step. before is called before each of them.
	patches []string
	before  func()
}

func newStage(t *testing.T, objects ...client.Object) *stage {
	t.Helper()
	s := &stage{t: t, clock: testclock.NewFakeClock(made), recorder: events.NewFakeRecorder(100), before: func() {}}
	c := fakeapi.New(objects...).WithIndex(&v1.Pod{}, podIndex, uidOf).WithIndex(&v1alpha1.Reservation{}, nodeIndex, nodesOf).
		WithInterceptorFuncs(fakeapi.OnStatusPatch(func(_ client.Object, patch string) {
			s.patches = append(s.patches, patch)
			s.before()
		})).Build()
	s.reconciler = &reconciler{client: c, live: c, recorder: s.recorder, clock: s.clock, keep: time.Hour}
	return s
}

// step reconciles, and returns what it has led to: phase, reason, events, and when to come again.
func (s *stage) step() string {
	s.t.Helper()
	s.patches = nil
	result, err := s.Reconcile(s.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "tonight"}})
	must.Succeed(s.t, err)
	var told []string
	for _, event := range await.Drain(s.recorder.Events) {
		kind, rest, _ := strings.Cut(event, " ")
		reason, _, _ := strings.Cut(rest, " ")
		told = append(told, kind+" "+reason)
	}
	rsv := s.get()
	if rsv == nil {
		return "gone"
	}
	ready := meta.FindStatusCondition(rsv.Status.Conditions, v1alpha1.ReservationReady)
	return fmt.Sprintf("%s %s %v %s", rsv.Status.Phase, ready.Reason, told, result.RequeueAfter)
}

func (s *stage) want(want string) {
	s.t.Helper()
	if got := s.step(); got != want {
		s.t.Errorf("it came to %q, want %q", got, want)
	}
}

func (s *stage) get() *v1alpha1.Reservation {
	s.t.Helper()
	rsv := &v1alpha1.Reservation{}
	err := s.client.Get(s.t.Context(), client.ObjectKey{Name: "tonight"}, rsv)
	if apierrors.IsNotFound(err) {
		return nil
	}
	must.Succeed(s.t, err)
	return rsv
}

// place does what the scheduler does when it has found places.
func (s *stage) place(nodes ...string) {
	s.t.Helper()
	rsv := s.get()
	rsv.Status.Phase, rsv.Status.Placements = v1alpha1.ReservationAvailable, placements(nodes...)
	must.Succeed(s.t, s.client.Status().Update(s.t.Context(), rsv))
}

func placements(nodes ...string) []v1alpha1.ReservationPlacement {
	var list []v1alpha1.ReservationPlacement
	for i, node := range nodes {
		list = append(list, v1alpha1.ReservationPlacement{Index: int32(i), NodeName: node, Allocatable: v1.ResourceList{
			v1.ResourceCPU: apiresource.MustParse("2"), v1.ResourcePods: apiresource.MustParse("1"),
		}})
	}
	return list
}

func reserve(replicas int32, once bool) *v1alpha1.Reservation {
	return &v1alpha1.Reservation{
		ObjectMeta: metav1.ObjectMeta{Name: "tonight", UID: "r", CreationTimestamp: metav1.NewTime(made)},
		Spec: v1alpha1.ReservationSpec{
			Replicas: replicas, AllocateOnce: &once, TTL: &metav1.Duration{Duration: time.Hour},
			Owners: []v1alpha1.ReservationOwner{{PodGroup: "a/train"}},
		},
	}
}

func node(name string) *v1.Node { return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }

// user returns a pod that asks for one cpu and uses a placement of the Reservation with this UID.
func user(name, uid string, index int32, on string) *v1.Pod {
	use := reservationstate.Allocation{Name: "tonight", UID: types.UID(uid), Index: index}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID(name), Annotations: map[string]string{v1alpha1.ReservationAllocatedAnnotation: use.String()}},
		Spec: v1.PodSpec{NodeName: on, Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: apiresource.MustParse("1")},
		}}}},
	}
}

// TestLife: what is done and reported from beginning to end; what has not changed is not written.
func TestLife(t *testing.T) {
	s := newStage(t, reserve(2, true), node("n1"), node("n2"))
	s.want("Pending Pending [] 30s")
	s.want("Pending Pending [] 30s")
	if len(s.patches) > 0 {
		t.Errorf("nothing has changed, and it wrote %s", s.patches)
	}
	s.place("n1", "n2")
	s.want("Available Available [Normal Available] 10m0s")
	for _, pod := range []*v1.Pod{user("stale", "another", 1, "n2"), user("first", "r", 0, "n1")} {
		must.Succeed(t, s.client.Create(t.Context(), pod))
	}
	s.want("Available Available [] 10m0s")
	rsv := s.get()
	if diff := cmp.Diff([]v1alpha1.ReservationConsumer{{Namespace: "a", Name: "first", UID: "first", Index: 0}}, rsv.Status.CurrentOwners); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
	if cpu, pods := rsv.Status.Allocated.Cpu().String(), rsv.Status.Allocated.Pods().String(); cpu != "1" || pods != "1" {
		t.Errorf("allocated %s cpu, %s pods; want 1 and 1", cpu, pods)
	}
	must.Succeed(t, s.client.Create(t.Context(), user("second", "r", 1, "n2")))
	s.want("Succeeded Succeeded [Normal Succeeded] 0s")
	s.want("Succeeded Succeeded [] 10m0s")
	s.clock.Step(time.Hour - time.Second)
	s.want("Succeeded Succeeded [] 1s")
	s.clock.Step(time.Second)
	s.want("gone")
}

// TestExpiry: it is looked at when it ends, and ends then.
func TestExpiry(t *testing.T) {
	s := newStage(t, reserve(1, true))
	s.want("Pending Pending [] 30s")
	s.clock.Step(time.Hour - time.Second)
	s.want("Pending Pending [] 1s")
	s.clock.Step(time.Second)
	s.want("Failed Expired [Warning Expired] 0s")
	s.keep = 0
	s.clock.Step(1000 * time.Hour)
	s.want("Failed Expired [] 0s")
}

// TestConflict: what has been changed meanwhile is not overwritten, but looked at again.
func TestConflict(t *testing.T) {
	s := newStage(t, reserve(1, true), node("n1"))
	s.want("Pending Pending [] 30s")
	s.clock.Step(2 * time.Hour)
	s.before = func() { s.before = func() {}; s.place("n1") }
	s.want("Available Pending [] 200ms")
	s.want("Failed Expired [Normal Expired] 0s")
}

// TestDeleteConflict: what has changed since it was read is not deleted.
func TestDeleteConflict(t *testing.T) {
	rsv := reserve(1, true)
	rsv.Status.Phase, rsv.Status.EndTime = v1alpha1.ReservationFailed, new(metav1.NewTime(made))
	s := newStage(t, rsv)
	s.clock.Step(2 * time.Hour)
	stale := s.get()
	changed := s.get()
	changed.Labels = map[string]string{"changed": "yes"}
	must.Succeed(t, s.client.Update(t.Context(), changed))
	if result, err := s.collect(t.Context(), stale); err != nil || result.RequeueAfter != settle || s.get() == nil {
		t.Errorf("it came to %v, %v, and is %v; want a later try", result, err, s.get())
	}
}

// TestNodes: a node that is gone is distinguished from one that the cache does not have yet.
func TestNodes(t *testing.T) {
	cordoned := node("n2")
	cordoned.Spec.Unschedulable = true
	s := newStage(t, reserve(2, true), node("n1"), cordoned)
	s.place("n1", "n2")
	s.want("Available Available [Normal Available] 10m0s")
	if got := s.get().Status.Conditions[0].Message; !strings.Contains(got, "cordoned, and still held: node n2") {
		t.Errorf("of the cordoned node it says %q", got)
	}
	must.Succeed(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(cordoned), cordoned))
	cordoned.Spec.Unschedulable, cordoned.Spec.Taints = false, []v1.Taint{{Key: v1.TaintNodeUnreachable, Effect: v1.TaintEffectNoExecute}}
	must.Succeed(t, s.client.Update(t.Context(), cordoned))
	s.want("Available Available [] 10m0s")
	if got := s.get().Status.Conditions[0].Message; !strings.Contains(got, "not ready, and still held: node n2") {
		t.Errorf("of the node that does not report it says %q", got)
	}
	must.Succeed(t, s.client.Delete(t.Context(), node("n1")))
	cache := s.live
	s.live = fake.NewClientBuilder().WithScheme(s.client.Scheme()).WithObjects(node("n1")).Build()
	s.want("Available Available [] 1s")
	s.live = cache
	s.want("Pending NodeLost [Warning NodeLost] 10m0s")
	s.want("Pending NodeLost [] 10m0s")
	if left := s.get().Status.Placements; len(left) != 1 || left[0].NodeName != "n2" {
		t.Errorf("left: %v, want what is on n2", left)
	}
}

// TestKeptPods: what a pod uses is the same out of the cache.
func TestKeptPods(t *testing.T) {
	finished := user("b", "r", 1, "n1")
	finished.Status.Phase = v1.PodSucceeded
	for _, pod := range []*v1.Pod{user("a", "r", 1, "n1"), finished} {
		pod.CreationTimestamp, pod.Spec.Overhead = metav1.NewTime(made), v1.ResourceList{v1.ResourceCPU: apiresource.MustParse("250m")}
		stripped, err := cachetransform.Pod(pod)
		must.Succeed(t, err)
		full, _ := consumer(pod)
		got, ok := consumer(stripped.(*v1.Pod))
		if got.Ended {
			full.Requests, got.Requests = nil, nil
		}
		if diff := cmp.Diff(full, got); !ok || diff != "" {
			t.Errorf("uses (-full +kept):\n%s", diff)
		}
		if again, err := cachetransform.Pod(stripped); err != nil || cmp.Diff(stripped, again) != "" {
			t.Errorf("stripped twice: %v, %v", again, err)
		}
	}
}

func TestPodDiffers(t *testing.T) {
	for sentence, c := range map[string]struct {
		change func(*v1.Pod)
		want   bool
	}{
		"nothing":            {func(*v1.Pod) {}, false},
		"a label":            {func(p *v1.Pod) { p.Labels = map[string]string{"a": "b"} }, false},
		"it runs":            {func(p *v1.Pod) { p.Status.Phase = v1.PodRunning }, false},
		"it has ended":       {func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }, true},
		"it is bound":        {func(p *v1.Pod) { p.Spec.NodeName = "n1" }, true},
		"it asks for more":   {func(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = apiresource.MustParse("2") }, true},
		"it uses it no more": {func(p *v1.Pod) { p.Annotations = nil }, true},
	} {
		was, is := user("a", "r", 0, ""), user("a", "r", 0, "")
		c.change(is)
		if got := podDiffers(was, is); got != c.want {
			t.Errorf("%s: %t, want %t", sentence, got, c.want)
		}
	}
	was, is := user("a", "r", 0, ""), user("a", "r", 0, "n1")
	was.Annotations, is.Annotations = nil, nil
	if podDiffers(was, is) {
		t.Error("a pod that uses none is looked at")
	}
}

func TestNodesOf(t *testing.T) {
	rsv := reserve(3, true)
	rsv.Status.Placements = placements("n2", "n1", "n2")
	rsv.Status.Placements[1].Spent = true
	for sentence, c := range map[string]struct {
		phase   v1alpha1.ReservationPhase
		deleted bool
		want    []string
	}{
		"what is not spent is held":          {phase: v1alpha1.ReservationAvailable, want: []string{"n2"}},
		"also while another place is sought": {phase: v1alpha1.ReservationPending, want: []string{"n2"}},
		"of what has ended nothing is":       {phase: v1alpha1.ReservationFailed},
		"nor of what is being deleted":       {phase: v1alpha1.ReservationAvailable, deleted: true},
	} {
		rsv := rsv.DeepCopy()
		rsv.Status.Phase = c.phase
		if c.deleted {
			rsv.DeletionTimestamp = new(metav1.NewTime(made))
		}
		if got := nodesOf(rsv); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", sentence, got, c.want)
		}
	}
}
