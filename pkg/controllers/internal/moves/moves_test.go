package moves

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/test/helpers/fakeapi"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

const label = v1alpha1.MigrationLabel

// TestFinish: the finalizer comes off once all that was made for the object is gone, and nothing else is deleted.
func TestFinish(t *testing.T) {
	m := &v1alpha1.PodMigration{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m", UID: "u", Finalizers: []string{v1alpha1.ReleaseFinalizer, "other/one"}}}
	reservation := func(name, value string) *v1alpha1.Reservation {
		return &v1alpha1.Reservation{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{label: value}}}
	}
	api := fakeapi.New(m, reservation("one", "u"), reservation("two", "u"), reservation("not-ours", "v")).Build()
	made := func(rsv *v1alpha1.Reservation) bool { return rsv.Labels[label] == string(m.UID) }
	for _, want := range []time.Duration{Retry, 0, 0} {
		must.Succeed(t, api.Get(t.Context(), client.ObjectKeyFromObject(m), m))
		again, err := Finish(t.Context(), api, api, m, label, made)
		if err != nil || again != want {
			t.Fatalf("it looks again in %s (%v), want %s", again, err, want)
		}
	}
	var list v1alpha1.ReservationList
	if err := api.List(t.Context(), &list); err != nil || len(list.Items) != 1 || list.Items[0].Name != "not-ours" {
		t.Errorf("there are %v (%v), want not-ours", list.Items, err)
	}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(m), m); err != nil || !slices.Equal(m.Finalizers, []string{"other/one"}) {
		t.Errorf("finalizers %v (%v), want other/one", m.Finalizers, err)
	}
}

// TestReader: names that no object can have are not found, and are not asked for.
func TestReader(t *testing.T) {
	asked := 0
	reader := Reader{Reader: readerFunc(func() error { asked++; return nil })}
	for _, key := range []client.ObjectKey{{}, {Name: "a/b"}, {Name: ".."}, {Name: "."}, {Name: "a%2fb"}, {Namespace: "a/b", Name: "x"}} {
		if err := reader.Get(t.Context(), key, &v1.Pod{}); !apierrors.IsNotFound(err) {
			t.Errorf("%v: %v, want not found", key, err)
		}
	}
	for _, name := range []string{"a", "A b", strings.Repeat("x", 300), "ä"} {
		if err := reader.Get(t.Context(), client.ObjectKey{Name: name}, &v1.Pod{}); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	if asked != 4 {
		t.Errorf("asked for %d, want 4", asked)
	}
}

type readerFunc func() error

func (f readerFunc) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return f()
}

func (f readerFunc) List(context.Context, client.ObjectList, ...client.ListOption) error { return f() }

// TestUnimportant: only a refusal of what is being deleted does not matter.
func TestUnimportant(t *testing.T) {
	stays := &v1alpha1.PodMigration{ObjectMeta: metav1.ObjectMeta{UID: types.UID("u")}}
	goes := stays.DeepCopy()
	goes.DeletionTimestamp = &metav1.Time{}
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "PodMigration"}, "m", nil)
	conflict := apierrors.NewConflict(schema.GroupResource{}, "m", nil)
	if !Unimportant(goes, invalid) || Unimportant(stays, invalid) || Unimportant(goes, conflict) || Unimportant(goes, nil) {
		t.Error("only a refusal of what is being deleted does not matter")
	}
}
