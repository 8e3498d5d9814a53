package reservepods

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// merged is a watch of the API server's pods and of a store's.
type merged struct {
	*watch.ProxyWatcher
	list  *listWatch
	inner watch.Interface
	// streaming is set while the API server sends the existing objects. Those in the store come
	// before the bookmark that ends this.
	streaming bool
	// ordered is set once the API server's events come in the order of their resourceVersions.
	ordered bool

	// result has no buffer: once an event was sent, the reflector has it.
	result chan watch.Event
	done   chan struct{}
}

func (m *merged) run() {
	defer close(m.done)
	defer close(m.result)
	defer m.inner.Stop()
	for {
		ready := m.list.ready
		if m.streaming {
			ready = nil
		}
		select {
		case <-m.StopChan():
			return
		case event, ok := <-m.inner.ResultChan():
			if !ok || !m.forward(event) {
				return
			}
		case <-ready:
			if !m.tell() {
				return
			}
		}
	}
}

// forward sends an event of the API server. It reports whether the watch goes on.
func (m *merged) forward(event watch.Event) bool {
	object, err := meta.Accessor(event.Object)
	known := err == nil // an error has no metadata
	if m.streaming && event.Type == watch.Bookmark && known &&
		object.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
		for _, pod := range m.list.known() {
			if !m.send(watch.Event{Type: watch.Added, Object: pod}) {
				return false
			}
		}
		m.streaming = false
	}
	if !m.send(event) {
		return false
	}
	// Until an event other than Added arrives, the existing objects may be coming, in no order.
	m.ordered = m.ordered || event.Type != watch.Added
	if known && m.ordered {
		m.list.came(object.GetResourceVersion())
	}
	return true
}

// tell sends the next event of the store. It reports whether the watch goes on.
func (m *merged) tell() bool {
	event, ok := m.list.next()
	if !ok {
		return true
	}
	if !m.send(event) {
		return false
	}
	version := m.list.sent()
	if version == "" {
		return true
	}
	bookmark := &v1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}}
	return m.send(watch.Event{Type: watch.Bookmark, Object: bookmark})
}

// send reports whether the reflector took the event; it did not if it ended the watch.
func (m *merged) send(event watch.Event) bool {
	select {
	case m.result <- event:
		return true
	case <-m.StopChan():
		return false
	}
}
