package overlayserver

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
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
	selects   func(*object) bool
	// events are those not sent yet, in order, under the lock of the store. ready has an element when there may be some.
	// sending is whether some were taken and are being sent.
	events  []watchEvent
	sending bool
	ready   chan struct{}
}

type watchEvent struct {
	Type   watch.EventType `json:"type"`
	Object map[string]any  `json:"object"`
}

// tell queues an event of an object for the watcher, if it watches it. The lock of the store is held: so events are in
// order. An object that its selectors no longer select, and did before, is gone for the watcher.
func (w *watcher) tell(at ref, event watch.EventType, before entry, o *object) {
	switch {
	case !w.covers(at):
		return
	case w.selects(o):
	case before.object != nil && !before.deleted && w.selects(before.object):
		event = watch.Deleted
	default:
		return
	}
	w.queue(event, o)
}

func (w *watcher) queue(event watch.EventType, o *object) {
	w.events = append(w.events, watchEvent{event, o.Object})
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// covers reports whether an object is of the resource and in the namespace that are watched.
func (w *watcher) covers(at ref) bool {
	return at.GroupVersionResource == w.resource && (w.namespace == "" || at.namespace == w.namespace)
}

// take returns the events to send. All that it returned before have been sent.
func (s *store) take(w *watcher) (events []watchEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	events, w.events = w.events, nil
	w.sending = len(events) > 0
	return events
}

// Selects returns a function that reports whether the selectors of a list or a watch select an object. Of its fields it
// knows those by which pods are selected.
func Selects(query url.Values) (func(*unstructured.Unstructured) bool, error) {
	byLabel, err1 := labels.Parse(query.Get("labelSelector"))
	byField, err2 := fields.ParseSelector(query.Get("fieldSelector"))
	if err := errors.Join(err1, err2); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return func(o *unstructured.Unstructured) bool {
		node, _, _ := unstructured.NestedString(o.Object, "spec", "nodeName")
		phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
		return byLabel.Matches(labels.Set(o.GetLabels())) && byField.Matches(fields.Set{
			"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace(), "spec.nodeName": node, "status.phase": phase,
		})
	}, nil
}

// replay queues what exists for a new watcher and, if it goes on from a resource version that was given here, what has
// gone since. The lock of the store is held.
func (s *store) replay(w *watcher, from string) {
	since, err := strconv.ParseInt(from, 10, 64)
	continues := err == nil && since > firstRevision
	for _, at := range s.order {
		switch e := s.entries[at]; {
		case !w.covers(at):
		case !e.deleted && w.selects(e.object):
			w.queue(watch.Added, e.object)
		case continues && e.revision > since:
			w.queue(watch.Deleted, e.object)
		}
	}
}

// watch sends what is made, changed and deleted here, until the caller is gone.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) {
	query := r.URL.Query()
	if query.Get("sendInitialEvents") == "true" {
		refuse(w, apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: "ListOptions"}, "", nil)) // it is to list
		return
	}
	selects, err := Selects(query)
	if err != nil {
		refuse(w, err)
		return
	}
	one := &watcher{
		resource: refOf(info).GroupVersionResource, namespace: info.Namespace, selects: selects,
		ready: make(chan struct{}, 1),
	}
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
