package reservepods

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// heard notes the calls of the watchers of a store.
type heard struct{ events []string }

func listen(s *Store) *heard {
	h := &heard{}
	s.watch(func(e watch.Event) {
		pod := e.Object.(*v1.Pod)
		h.events = append(h.events, fmt.Sprintf("%s %s at %s node %q", e.Type, pod.Name, pod.ResourceVersion, pod.Spec.NodeName))
	})
	return h
}

func TestStore(t *testing.T) {
	a, b := PodName("a", 0), PodName("b", 0)
	uid := func(uid types.UID) *metav1.Preconditions { return &metav1.Preconditions{UID: &uid} }
	version := func(version string) *metav1.Preconditions {
		return &metav1.Preconditions{ResourceVersion: &version}
	}
	never := func(error) bool { return false }
	for name, c := range map[string]struct {
		do     func(s *Store) error
		fails  func(error) bool // never where it is nil
		events []string
	}{
		"a pod is added": {
			do:     func(s *Store) error { return s.Add(reservePod("b").Obj()) },
			events: []string{`ADDED ` + b + ` at 2 node ""`},
		},
		"a pod of a name that there is, is refused": {
			do:    func(s *Store) error { return s.Add(reservePod("a").UID("other").Obj()) },
			fails: apierrors.IsAlreadyExists,
		},
		"a pod that could be a real one is refused": {
			do:    func(s *Store) error { return s.Add(reservePod("b").Name("b").Obj()) },
			fails: apierrors.IsBadRequest,
		},
		"a pod without a UID is refused": {
			do:    func(s *Store) error { return s.Add(reservePod("b").UID("").Obj()) },
			fails: apierrors.IsBadRequest,
		},
		"a pod without a namespace is refused": {
			do:    func(s *Store) error { return s.Add(reservePod("b").Namespace("").Obj()) },
			fails: apierrors.IsBadRequest,
		},
		"a pod is deleted, and made again": {
			do: func(s *Store) error {
				if err := s.Delete(ns, a, uid(types.UID(a))); err != nil {
					return err
				}
				return s.Add(reservePod("a").UID("again").Obj())
			},
			events: []string{`DELETED ` + a + ` at 2 node ""`, `ADDED ` + a + ` at 3 node ""`},
		},
		"a pod of another UID is not deleted": {
			do:    func(s *Store) error { return s.Delete(ns, a, uid("other")) },
			fails: apierrors.IsConflict,
		},
		"a pod that changed is not deleted": {
			do:    func(s *Store) error { return s.Delete(ns, a, version("7")) },
			fails: apierrors.IsConflict,
		},
		"a pod that is not there is not deleted": {
			do:    func(s *Store) error { return s.Delete("other", a, nil) },
			fails: apierrors.IsNotFound,
		},
		"a pod is bound, and deleted": {
			do: func(s *Store) error {
				if err := s.Bind(ns, bindingOf(a, "n1")); err != nil {
					return err
				}
				return s.Delete(ns, a, nil)
			},
			events: []string{`MODIFIED ` + a + ` at 2 node "n1"`, `DELETED ` + a + ` at 3 node "n1"`},
		},
		"a pod is bound once": {
			do: func(s *Store) error {
				if err := s.Bind(ns, bindingOf(a, "n1")); err != nil {
					return err
				}
				return s.Bind(ns, bindingOf(a, "n1"))
			},
			fails:  apierrors.IsConflict,
			events: []string{`MODIFIED ` + a + ` at 2 node "n1"`},
		},
		"a pod of another UID is not bound": {
			do: func(s *Store) error {
				binding := bindingOf(a, "n1")
				binding.UID = "other"
				return s.Bind(ns, binding)
			},
			fails: apierrors.IsConflict,
		},
		"a pod that is not there is not bound": {
			do:    func(s *Store) error { return s.Bind(ns, bindingOf(b, "n1")) },
			fails: apierrors.IsNotFound,
		},
		"a pod is not bound to no node": {
			do:    func(s *Store) error { return s.Bind(ns, bindingOf(a, "")) },
			fails: apierrors.IsBadRequest,
		},
		"an update that changes nothing is none": {
			do: func(s *Store) error {
				_, err := s.UpdateStatus(ns, get(t, s, a))
				return err
			},
		},
		"an update of what has changed since is refused": {
			do: func(s *Store) error {
				stale := get(t, s, a)
				if _, err := s.Patch(ns, a, strategic, conditionPatch(t, "no room"), "status"); err != nil {
					return err
				}
				_, err := s.UpdateStatus(ns, stale)
				return err
			},
			fails:  apierrors.IsConflict,
			events: []string{`MODIFIED ` + a + ` at 2 node ""`},
		},
		"an update of a pod of another UID is refused": {
			do: func(s *Store) error {
				_, err := s.Update(ns, reservePod("a").UID("other").Obj())
				return err
			},
			fails: apierrors.IsConflict,
		},
		"an update of the spec is refused": {
			do: func(s *Store) error {
				_, err := s.Update(ns, reservePod("a").Node("n1").Obj())
				return err
			},
			fails: apierrors.IsInvalid,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := storeOf(t, reservePod("a").Obj())
			h := listen(s)
			if c.fails == nil {
				c.fails = never
			}
			if err := c.do(s); (err != nil || c.fails(nil)) && !c.fails(err) {
				t.Errorf("unexpected error: %v", err)
			}
			if diff := cmp.Diff(c.events, h.events); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAddedPodIsAsTheAPIServerMakesIt(t *testing.T) {
	given := reservePod("a").Obj()
	given.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "someone"}}
	given.ResourceVersion = "12345"
	s := storeOf(t, given)
	got := get(t, s, given.Name)
	want := given.DeepCopy()
	want.TypeMeta, want.ManagedFields = metav1.TypeMeta{}, nil
	want.ResourceVersion, want.Generation, want.Status.Phase = "1", 1, v1.PodPending
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("added pod (-want +got):\n%s", diff)
	}
	got.Labels["app"], given.Labels["app"] = "changed", "changed"
	if again := get(t, s, given.Name); again.Labels["app"] != "train" {
		t.Error("what a caller does to its copy changes the store")
	}
}

// TestConcurrentChangesHaveAnOrder: each change has a resourceVersion of its own, and
// watchers get the changes in their order.
func TestConcurrentChangesHaveAnOrder(t *testing.T) {
	s := storeOf(t, reservePod("a").Obj())
	var versions []string
	s.watch(func(e watch.Event) { versions = append(versions, e.Object.(*v1.Pod).ResourceVersion) })
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for j := range 50 {
				patch := encode(t, map[string]any{"metadata": map[string]any{"annotations": map[string]string{fmt.Sprint("k", i): fmt.Sprint(j)}}})
				if _, err := s.Patch(ns, PodName("a", 0), merging, patch); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	var want []string
	for i := range 8 * 50 {
		want = append(want, strconv.Itoa(i+2))
	}
	if !slices.Equal(want, versions) {
		t.Errorf("resourceVersions in order: %v", versions)
	}
	if got := get(t, s, PodName("a", 0)); len(got.Annotations) != 8 {
		t.Errorf("annotations are %v: a change was lost", got.Annotations)
	}
}
