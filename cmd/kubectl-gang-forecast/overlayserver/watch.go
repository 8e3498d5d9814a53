package overlayserver

import (
	"encoding/json"
	"net/http"

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
	case at.GroupVersionResource != w.resource || w.namespace != "" && at.namespace != w.namespace:
		return
	case w.selects(o):
	case old != nil && w.selects(old):
		event = watch.Deleted
	default:
		return
	}
	w.events = append(w.events, watchEvent{event, clone(o)})
	select {
	case w.ready <- struct{}{}:
	default:
	}
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
	for _, at := range s.store.order {
		if o := s.store.objects[at]; o != nil {
			one.tell(at, watch.Added, nil, o)
		}
	}
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
