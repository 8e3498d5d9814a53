package overlayserver

import (
	"encoding/json"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// watcher is a watch under way.
type watcher struct {
	resource  schema.GroupVersionResource
	namespace string
	labels    labels.Selector
	fields    fields.Selector
	// events are those not sent yet, in order, under the lock of the store. ready has an element when there may be some.
	// sending is whether some were taken and are being sent.
	events  []watchEvent
	sending bool
	ready   chan struct{}
}

type watchEvent struct {
	Type   watch.EventType `json:"type"`
	Object object          `json:"object"`
}

// tell queues an event of an object for the watcher, if it watches it. The lock of the store is held: so events are in
// order. An object that its selectors no longer select, and did when it was old, is gone for the watcher.
func (w *watcher) tell(at ref, event watch.EventType, old, o object) {
	switch {
	case !w.covers(at):
		return
	case w.selects(o):
	case old != nil && w.selects(old):
		event = watch.Deleted
	default:
		return
	}
	w.queue(event, o)
}

func (w *watcher) queue(event watch.EventType, o object) {
	w.events = append(w.events, watchEvent{event, clone(o)})
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// covers reports whether an object is of the resource and in the namespace that are watched.
func (w *watcher) covers(at ref) bool {
	return at.GroupVersionResource == w.resource && (w.namespace == "" || at.namespace == w.namespace)
}

func (w *watcher) selects(o object) bool {
	return w.labels.Matches(labels.Set((&unstructured.Unstructured{Object: o}).GetLabels())) && w.fields.Matches(fieldsOf(o))
}

// take returns the events to send. All that it returned before have been sent.
func (s *store) take(w *watcher) (events []watchEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	events, w.events = w.events, nil
	w.sending = len(events) > 0
	return events
}

// fieldsOf returns the fields by which pods are selected.
func fieldsOf(o object) fields.Set {
	set := fields.Set{"metadata.name": text(meta(o), "name"), "metadata.namespace": text(meta(o), "namespace")}
	if spec, ok := o["spec"].(object); ok {
		set["spec.nodeName"] = text(spec, "nodeName")
	}
	if status, ok := o["status"].(object); ok {
		set["status.phase"] = text(status, "phase")
	}
	return set
}

// replay queues what exists for a new watcher and, if it goes on from a resource version that was given here, what has
// gone since. The lock of the store is held.
func (s *store) replay(w *watcher, from string) {
	since, err := strconv.ParseInt(from, 10, 64)
	continues := err == nil && since > firstRevision
	for _, at := range s.order {
		o, exists := s.objects[at], s.objects[at] != nil
		if !exists {
			o = s.last[at]
		}
		switch {
		case exists && w.selects(o):
			w.tell(at, watch.Added, nil, o)
		case continues && w.covers(at) && revisionOf(o) > since:
			w.queue(watch.Deleted, o)
		}
	}
}

// revisionOf returns the resource version that an object was given here.
func revisionOf(o object) int64 {
	revision, _ := strconv.ParseInt(text(meta(o), "resourceVersion"), 10, 64)
	return revision
}

// watch sends what is made, changed and deleted here, until the caller is gone.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) {
	query := r.URL.Query()
	if query.Get("sendInitialEvents") == "true" {
		refuse(w, apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: "ListOptions"}, "", nil)) // it is to list
		return
	}
	byLabel, err1 := labels.Parse(query.Get("labelSelector"))
	byField, err2 := fields.ParseSelector(query.Get("fieldSelector"))
	if err1 != nil || err2 != nil {
		refuse(w, apierrors.NewBadRequest("the selector cannot be read"))
		return
	}
	one := &watcher{resource: refOf(info).GroupVersionResource, namespace: info.Namespace, labels: byLabel, fields: byField, ready: make(chan struct{}, 1)}
	s.store.mu.Lock()
	s.store.replay(one, query.Get("resourceVersion"))
	s.store.watchers[one] = true
	s.store.mu.Unlock()
	defer func() {
		s.store.mu.Lock()
		defer s.store.mu.Unlock()
		delete(s.store.watchers, one)
	}()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w)
	encode := json.NewEncoder(w)
	for {
		if err := flush.Flush(); err != nil {
			return
		}
		events := s.store.take(one)
		if len(events) == 0 {
			select {
			case <-r.Context().Done():
				return
			case <-one.ready:
			}
		}
		for _, e := range events {
			if err := encode.Encode(e); err != nil {
				return
			}
		}
	}
}
