package overlayserver

import (
	"fmt"
	"slices"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// object is one as JSON has it.
type object = map[string]any

// ref names an object.
type ref struct {
	schema.GroupVersionResource
	namespace, name string
}

func refOf(info *request.RequestInfo) ref {
	return ref{schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}, info.Namespace, info.Name}
}

// store is what differs from the base.
type store struct {
	mu sync.Mutex
	// objects are the objects that were made or changed; nil for deleted ones, which are in last as they were. order lists
	// them as they came.
	objects, last map[ref]object
	order         []ref
	// revision is the last resource version given; those of the base are lower.
	revision int64
	watchers map[*watcher]bool
	// deleted are the objects that were deleted, in order, as they were; events are the events that were written.
	deleted, events []object
	// changes counts all writes.
	changes int
	// refused is the last error of a read that the base refused; nil for none.
	refused error
}

// firstRevision is beyond any that etcd gives.
const firstRevision = 1 << 52

func newStore() store {
	return store{objects: map[ref]object{}, last: map[ref]object{}, revision: firstRevision, watchers: map[*watcher]bool{}}
}

// put stores an object that was made or changed, and queues an event for the watchers. It returns it with its new
// resource version.
func (s *store) put(at ref, o object, event watch.EventType) object {
	s.note(at, o, event)
	s.objects[at] = o
	return o
}

// drop deletes an object, and queues an event for the watchers.
func (s *store) drop(at ref, o object) {
	s.note(at, o, watch.Deleted)
	s.objects[at], s.last[at] = nil, o
	s.deleted = append(s.deleted, o)
}

func (s *store) note(at ref, o object, event watch.EventType) {
	if _, known := s.objects[at]; !known {
		s.order = append(s.order, at)
	}
	s.revision++
	s.changes++
	meta(o)["resourceVersion"] = strconv.FormatInt(s.revision, 10)
	for w := range s.watchers {
		w.tell(at, event, s.objects[at], o)
	}
}

// meta returns the metadata of an object, which is made where it has none.
func meta(o object) object {
	m, ok := o["metadata"].(object)
	if !ok {
		m = object{}
		o["metadata"] = m
	}
	return m
}

func text(o object, key string) string {
	value, _ := o[key].(string)
	return value
}

// Made lists the objects of a resource that were made or changed and not deleted, in order.
func (s *Server) Made(resource schema.GroupVersionResource) []map[string]any {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	var list []map[string]any
	for _, at := range s.store.order {
		if o := s.store.objects[at]; o != nil && at.GroupVersionResource == resource {
			list = append(list, o)
		}
	}
	return list
}

// Deleted lists the objects of a kind that were deleted, as they were, in order.
func (s *Server) Deleted(kind string) []map[string]any {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.store.deleted), func(o object) bool { return text(o, "kind") != kind })
}

// Events lists the events that were written, in order, without the first ones, so many. They must not be changed.
func (s *Server) Events(but int) []map[string]any {
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
	return s.store.changes
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
// namespace.
func (s *Server) Add(resource schema.GroupVersionResource, o map[string]any) error {
	at := ref{resource, text(meta(o), "namespace"), text(meta(o), "name")}
	if at.name == "" {
		return fmt.Errorf("adding a %s: it has no name", text(o, "kind"))
	}
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.store.create(at, o)
	return nil
}
