package podmigration

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/objects"
	"github.com/lockstep-sh/lockstep/test/helpers/fakeapi"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// aMove returns a PodMigration of a plan that moves a pod of a gang.
func aMove(name, plan, gang string, phase v1alpha1.MigrationPhase) *v1alpha1.PodMigration {
	m := &v1alpha1.PodMigration{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}}
	if plan != "" {
		m.Labels = map[string]string{v1alpha1.PlanLabel: plan}
	}
	m.Spec.PodGroup, m.Status.Phase = gang, phase
	return m
}

// TestMirror: a PodGroup says how far the pods of its gang are moved by the plan of a PodMigration, as that is now; and
// keeps what else it says.
func TestMirror(t *testing.T) {
	group := fakeapi.PodGroup(coscheduling.Kind, "g", 2, "spec", "minMember")
	group.SetAnnotations(map[string]string{"example.com/kept": "yes"})
	one := aMove("one", "p", "g", v1alpha1.MigrationPending)
	alone := aMove("alone", "", "g", v1alpha1.MigrationPending)
	api := fakeapi.New(group, one, alone,
		aMove("two", "p", "g", v1alpha1.MigrationSucceeded), aMove("other-plan", "q", "g", v1alpha1.MigrationFailed),
		aMove("other-gang", "p", "h", v1alpha1.MigrationFailed)).Build()
	r := &reconciler{client: client.WithFieldOwner(api, objects.FieldOwner), live: api}
	one.Status.Phase = v1alpha1.MigrationRunning // the cache is behind
	for _, c := range []struct {
		m    *v1alpha1.PodMigration
		want string
	}{
		{one, `{"phase":"Running","pods":2,"moved":1}`}, {alone, `{"phase":"Pending","pods":1,"moved":0}`},
	} {
		must.Succeed(t, r.mirror(t.Context(), c.m))
		must.Succeed(t, api.Get(t.Context(), client.ObjectKeyFromObject(group), group))
		annotations := group.GetAnnotations()
		if got := annotations[v1alpha1.MigrationAnnotation]; got != c.want || annotations["example.com/kept"] != "yes" {
			t.Errorf("after %s it says %v, want %s", c.m.Name, annotations, c.want)
		}
		if n, _, err := unstructured.NestedInt64(group.Object, "spec", "minMember"); err != nil || n != 2 {
			t.Errorf("its minimum is %d, %v", n, err)
		}
	}
}

// TestMirrorOfTheLast: the last of moves that end together says so of all, although the cache has not seen the others
// end.
func TestMirrorOfTheLast(t *testing.T) {
	group := fakeapi.PodGroup(coscheduling.Kind, "g", 2, "spec", "minMember")
	last := aMove("last", "p", "g", v1alpha1.MigrationSucceeded)
	last.Finalizers = []string{v1alpha1.ReleaseFinalizer}
	api := fakeapi.New(group, last, aMove("other", "p", "g", v1alpha1.MigrationSucceeded)).Build()
	behind := fakeapi.New(last, aMove("other", "p", "g", v1alpha1.MigrationRunning)).Build()
	r := &reconciler{client: cached{Client: api, reader: behind}, live: api}
	must.Succeed(t, r.mirror(t.Context(), last))
	must.Succeed(t, api.Get(t.Context(), client.ObjectKeyFromObject(group), group))
	if got, want := group.GetAnnotations()[v1alpha1.MigrationAnnotation],
		`{"phase":"Succeeded","pods":2,"moved":2}`; got != want {
		t.Errorf("it says %s, want %s", got, want)
	}
}

// cached is a client that lists from a cache.
type cached struct {
	client.Client
	reader client.Reader
}

// List implements client.Reader.
func (c cached) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return c.reader.List(ctx, list, options...)
}

// TestOwnerOf: an event of a Reservation queues the PodMigration that it was made for, and no other one.
func TestOwnerOf(t *testing.T) {
	api := fakeapi.New(aMove("one", "p", "g", ""), aMove("two", "p", "g", "")).Build()
	for uid, want := range map[string]string{"uid-two": "two", "uid-none": "", "": ""} {
		rsv := &v1alpha1.Reservation{ObjectMeta: metav1.ObjectMeta{Name: "r"}}
		if uid != "" {
			rsv.Labels = map[string]string{v1alpha1.MigrationLabel: uid}
		}
		name := ""
		for _, request := range ownerOf(api)(t.Context(), rsv) {
			name += request.Name
		}
		if name != want {
			t.Errorf("of UID %q it queues %q, want %q", uid, name, want)
		}
	}
}
