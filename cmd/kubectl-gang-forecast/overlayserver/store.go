package overlayserver

import (
	"fmt"
	"slices"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// object is one of any kind. It is not changed once it is stored: each change puts another one in its place.
type object = unstructured.Unstructured

// ref names an object.
type ref struct {
	schema.GroupVersionResource
	namespace, name string
}

func refOf(info *request.RequestInfo) ref {
	return ref{schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource},
		info.Namespace, info.Name}
}

// store is what differs from the base.
type store struct {
	mu sync.Mutex
	// entries are the objects that were made, changed or deleted, and order lists them as they came.
	entries map[ref]entry
	order   []ref
	// revision is the last resource version given; those of the base are lower.
	revision int64
	watchers map[*watcher]bool
	// deletedPods are the pods that were deleted, in order, as they were; events are the events that were written.
	deletedPods, events []*object
	// refused is the last error of a read that the base refused; nil for none.
	refused error
}

// entry is an object as it is since a revision, or as it was when it was deleted.
type entry struct {
	*object
	revision int64
	deleted  bool
}

// firstRevision is beyond any that etcd gives.
const firstRevision = 1 << 52

func newStore() store {
	return store{entries: map[ref]entry{}, revision: firstRevision, watchers: map[*watcher]bool{}}
}

// get returns an object, or that it is deleted; known is false for one that the base alone has. mu is held.
func (s *store) get(at ref) (o *object, known bool, err error) {
	e, known := s.entries[at]
	if e.deleted {
		return nil, known, apierrors.NewNotFound(at.GroupResource(), at.name)
	}
	return e.object, known, nil
}

// put stores an object as it is now, or was when it was deleted, with a new resource version, and queues an event for
// the watchers. mu is held.
func (s *store) put(at ref, o *object, event watch.EventType) {
	before, known := s.entries[at]
	if !known {
		s.order = append(s.order, at)
	}
	s.revision++
	o.SetResourceVersion(strconv.FormatInt(s.revision, 10))
	s.entries[at] = entry{o, s.revision, event == watch.Deleted}
	if event == watch.Deleted && at.GroupVersionResource == podsResource {
		s.deletedPods = append(s.deletedPods, o)
	}
	for w := range s.watchers {
		w.tell(at, event, before, o)
	}
}

// Made lists the objects of a resource that were made or changed and not deleted, in order. They must not be changed.
func (s *Server) Made(resource schema.GroupVersionResource) []*unstructured.Unstructured {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	var list []*unstructured.Unstructured
	for _, at := range s.store.order {
		if e := s.store.entries[at]; !e.deleted && at.GroupVersionResource == resource {
			list = append(list, e.object)
		}
	}
	return list
}

// DeletedPods lists the pods that were deleted, as they were, in order. They must not be changed.
func (s *Server) DeletedPods() []*unstructured.Unstructured {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	return slices.Clone(s.store.deletedPods)
}

// Events lists the events that were written, in order, without the first ones, so many. They must not be changed.
func (s *Server) Events(but int) []*unstructured.Unstructured {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	return slices.Clone(s.store.events[but:])
}

// Refused returns the error of what the user may not read of the base, or that it cannot be reached; nil for none. A
// client of the overlay would ask for ever.
func (s *Server) Refused() error {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	return s.store.refused
}

// Changes returns how many writes there were.
func (s *Server) Changes() int {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	return int(s.store.revision - firstRevision)
}

// Behind reports whether a watch has not delivered yet all that was written.
func (s *Server) Behind() bool {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	for w := range s.store.watchers {
		if len(w.events) > 0 || w.sending {
			return true
		}
	}
	return false
}

// Add makes an object that the base does not have. It needs a kind, a name and, where its resource has namespaces, a
// namespace. It must not be changed from then on.
func (s *Server) Add(resource schema.GroupVersionResource, o map[string]any) error {
	u := &object{Object: o}
	at := ref{resource, u.GetNamespace(), u.GetName()}
	if at.name == "" {
		return fmt.Errorf("adding a %s: it has no name", u.GetKind())
	}
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.store.create(at, u)
	return nil
}
