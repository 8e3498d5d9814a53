package defragplan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/defrag/migration"
	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate"
	"github.com/lockstep-sh/lockstep/test/helpers/fakeapi"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// late is a plan that moves the first pods of a gang, when it is approved.
type late struct {
	// minimum, running and succeeded are of the gang; moves are of its pods, of which the first so many are gone by
	// themselves.
	minimum, running, succeeded, moves, gone int
	// past are those that had succeeded and were gone when the plan was made.
	past int32
	// earlier are pods of an earlier Job of the same PodGroup, which succeeded, and are there still.
	earlier int
	// shown is how many pods start anew, as the plan says.
	shown int32
	// kind is how the gang is made: "", which is by a PodGroup of the community, "native", "annotation" or "single", which
	// is native and no gang.
	kind string
}

// TestApprovedLate: a plan says how many pods start anew. By the time it is approved gangs may have lost what they
// could do without.
func TestApprovedLate(t *testing.T) {
	const lost = `2 pods would start anew, and the plan shows 1: gang "ns/elastic" would lose 1 of its 2 members, and its minimum is 2`
	for sentence, c := range map[string]struct {
		late
		why string // empty: it is carried out
	}{
		"the gang can still do without one":    {late{minimum: 2, running: 3, moves: 1, shown: 1}, ""},
		"it cannot any more":                   {late{minimum: 2, running: 2, moves: 1, shown: 1}, lost},
		"a native one cannot":                  {late{minimum: 2, running: 2, moves: 1, shown: 1, kind: "native"}, lost},
		"one by annotation cannot":             {late{minimum: 2, running: 2, moves: 1, shown: 1, kind: "annotation"}, lost},
		"its pods are moved by themselves":     {late{running: 2, moves: 1, shown: 1, kind: "single"}, ""},
		"its minimum is not known":             {late{running: 2, moves: 1, shown: 2}, ""},
		"all of it was to start anew":          {late{minimum: 2, running: 2, moves: 1, shown: 2}, ""},
		"all of it moves":                      {late{minimum: 3, running: 3, moves: 3, shown: 3}, ""},
		"all of it starts anew, and it grew":   {late{minimum: 3, running: 3, moves: 1, shown: 2}, `gang "ns/elastic" would lose 1 of its 3 members`},
		"a member succeeded, which it counts":  {late{minimum: 3, running: 3, succeeded: 1, moves: 1, shown: 1}, ""},
		"one more has, and is there":           {late{minimum: 4, running: 3, succeeded: 1, past: 1, moves: 1, shown: 1}, ""},
		"two had succeeded, and were gone":     {late{minimum: 4, running: 3, past: 2, moves: 1, shown: 1}, ""},
		"two had, and one was lost since":      {late{minimum: 4, running: 2, past: 2, moves: 1, shown: 1}, `gang "ns/elastic" would lose 1 of its 4 members, and its minimum is 4`},
		"two of an earlier run had":            {late{minimum: 2, running: 2, earlier: 2, moves: 1, shown: 1}, lost},
		"they had, and the minimum has grown":  {late{minimum: 5, running: 3, past: 2, moves: 1, shown: 1}, `gang "ns/elastic" would lose 1 of its 5 members`},
		"one succeeded, and does not restart":  {late{minimum: 4, running: 3, succeeded: 1, moves: 1, shown: 3}, ""},
		"what moves is gone by itself":         {late{minimum: 2, running: 1, moves: 1, gone: 1, shown: 1}, ""},
		"a part of what moves is gone":         {late{minimum: 2, running: 3, moves: 2, gone: 1, shown: 2}, ""},
		"what moves is gone, and more":         {late{minimum: 3, running: 3, moves: 2, gone: 1, shown: 2}, `gang "ns/elastic" would lose 1 of its 3 members`},
		"all of it moves, and a part has gone": {late{minimum: 3, running: 3, moves: 3, gone: 1, shown: 3}, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			p := c.bring(t)
			complete := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.DefragmentationComplete)
			if c.why == "" {
				if p.Status.Phase != v1alpha1.DefragmentationRunning {
					t.Errorf("the plan is %s: %v", p.Status.Phase, complete)
				}
				return
			}
			if p.Status.Phase != v1alpha1.DefragmentationFailed || complete.Reason != v1alpha1.DefragmentationReasonOutdated || !strings.Contains(complete.Message, c.why) {
				t.Errorf("the plan is %s, want it outdated for %q: %v", p.Status.Phase, c.why, complete)
			}
		})
	}
}

// bring returns the plan after a look at it.
func (l late) bring(t *testing.T) *v1alpha1.DefragmentationPlan {
	p := &v1alpha1.DefragmentationPlan{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p", Finalizers: []string{v1alpha1.ReleaseFinalizer}}}
	p.Spec.Mode, p.Spec.Approved = v1alpha1.DefragmentationDryRun, true
	p.Spec.Goal.Pod = &v1alpha1.ReservationOwnerObject{Namespace: "ns", Name: "goal", UID: "goal"}
	p.Status.Phase, p.Status.Goal, p.Status.Restarts = v1alpha1.DefragmentationPlanned, "pod ns/goal", l.shown
	p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.DefragmentationFound, Status: metav1.ConditionTrue, Reason: v1alpha1.DefragmentationReasonFound}}
	p.Status.Places = []v1alpha1.PlannedPlace{{Namespace: "ns", PodName: "goal", PodUID: "goal", NodeName: "source", Members: 1}}
	for i := range l.moves {
		move := v1alpha1.PlannedMove{Namespace: "ns", PodName: fmt.Sprint("w-", i), PodUID: types.UID(fmt.Sprint("w-", i)), PodGroup: "elastic", SourceNode: "source", TargetNode: "target", SucceededGone: l.past}
		if l.kind == "single" {
			move.PodGroup = ""
		}
		p.Status.Moves = append(p.Status.Moves, move)
	}
	objects := []client.Object{p, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "goal", UID: "goal"}}}
	for _, name := range []string{"source", "target"} {
		objects = append(objects, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1.NodeStatus{Allocatable: v1.ResourceList{v1.ResourcePods: resource.MustParse("9")}}})
	}
	api := fakeapi.New(append(objects, l.gang()...)...).
		WithIndex(&v1.Pod{}, "spec.nodeName", func(object client.Object) []string { return []string{object.(*v1.Pod).Spec.NodeName} }).Build()
	r := &reconciler{client: api, live: api, recorder: events.NewFakeRecorder(99), clock: testingclock.NewFakeClock(time.Unix(1000, 0)), suspicions: map[types.UID]goalDoubt{}}
	if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "p"}}); err != nil {
		t.Fatal(err)
	}
	must.Succeed(t, api.Get(t.Context(), client.ObjectKey{Name: "p"}, p))
	return p
}

// gang returns the PodGroup, if any, and the pods of the gang.
func (l late) gang() (objects []client.Object) {
	group := fakeapi.PodGroup(coscheduling.Kind, "elastic", l.minimum, "spec", "minMember")
	switch l.kind {
	case "native":
		group = fakeapi.PodGroup(fakeapi.NativePodGroup, "elastic", l.minimum, "spec", "schedulingPolicy", "gang", "minCount")
	case "single":
		group.Object["spec"] = map[string]any{"schedulingPolicy": map[string]any{"basic": map[string]any{}}}
		group.SetGroupVersionKind(fakeapi.NativePodGroup)
	}
	group.Object["status"] = map[string]any{"succeeded": int64(l.past)}
	if l.kind != "annotation" {
		objects = append(objects, group)
	}
	for i := l.gone; i < l.gone+l.running+l.succeeded; i++ {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("w-", i), UID: types.UID(fmt.Sprint("w-", i))}, Spec: v1.PodSpec{NodeName: "source"}, Status: v1.PodStatus{Phase: v1.PodRunning}}
		if i >= l.gone+l.running {
			pod.Status.Phase = v1.PodSucceeded
		}
		switch l.kind {
		case "":
			pod.Labels = map[string]string{v1alpha1.PodGroupLabel: "elastic"}
		case "annotation":
			pod.Annotations = map[string]string{v1alpha1.GangNameAnnotation: "elastic", v1alpha1.MinAvailableAnnotation: fmt.Sprint(l.minimum)}
		default:
			pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: new("elastic")}
		}
		objects = append(objects, pod)
	}
	by := func(job string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job, UID: types.UID(job), Controller: new(true)}}
	}
	if l.earlier > 0 {
		for _, object := range objects {
			if pod, ok := object.(*v1.Pod); ok {
				pod.OwnerReferences, pod.CreationTimestamp = by("train-2"), metav1.NewTime(time.Unix(500, 0))
			}
		}
	}
	for i := range l.earlier {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: fmt.Sprint("earlier-", i), UID: types.UID(fmt.Sprint("earlier-", i)), OwnerReferences: by("train-1"),
			CreationTimestamp: metav1.NewTime(time.Unix(100, 0)), Labels: map[string]string{v1alpha1.PodGroupLabel: "elastic"},
		}, Spec: v1.PodSpec{NodeName: "source"}, Status: v1.PodStatus{Phase: v1.PodSucceeded}}
		pod.Status.ContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: metav1.NewTime(time.Unix(400, 0))}}}}
		objects = append(objects, pod)
	}
	return objects
}

// TestHeldAsLongAsItSays: what a plan frees is held until the plan releases it, however long its moves take.
func TestHeldAsLongAsItSays(t *testing.T) {
	p := &v1alpha1.DefragmentationPlan{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p"}}
	p.Status.Places = []v1alpha1.PlannedPlace{{Namespace: "ns", PodName: "goal", NodeName: "node", Members: 1}}
	rsv := holdFor(p, 0, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "goal", UID: "goal"}}, "")
	rsv.CreationTimestamp = metav1.NewTime(time.Unix(1000, 0))
	if at := reservationstate.Expiry(rsv); !at.IsZero() {
		t.Errorf("it ends at %s by itself", at)
	}
}

// TestOwnerOfWhatIsFreed: what a plan frees for a single pod is held for that pod alone, even if a native PodGroup has
// it: one that makes no gang.
func TestOwnerOfWhatIsFreed(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "goal", UID: "goal"}, Spec: v1.PodSpec{SchedulingGroup: &v1.PodSchedulingGroup{PodGroupName: new("train")}}}
	named := &v1alpha1.ReservationOwnerObject{Namespace: "ns", Name: "goal", UID: "goal"}
	for sentence, c := range map[string]struct {
		goal v1alpha1.DefragmentationGoal
		want v1alpha1.ReservationOwner
	}{
		"a pod":  {v1alpha1.DefragmentationGoal{Pod: named}, migration.OwnerByUID(pod)},
		"a gang": {v1alpha1.DefragmentationGoal{PodGroup: "ns/train"}, v1alpha1.ReservationOwner{PodGroup: "ns/train"}},
	} {
		p := &v1alpha1.DefragmentationPlan{Spec: v1alpha1.DefragmentationPlanSpec{Goal: c.goal}}
		if diff := cmp.Diff([]v1alpha1.ReservationOwner{c.want}, holdFor(p, 0, pod, "").Spec.Owners); diff != "" {
			t.Errorf("%s: owners (-want +got):\n%s", sentence, diff)
		}
	}
}
