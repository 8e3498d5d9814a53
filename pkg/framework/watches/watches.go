// Package watches records what the plugins of a process watch, and how far each of them has come:
// a process that begins to lead has to know that they have taken in what is stored.
//
// The handlers of an informer run beside each other, and behind it. An object in its cache may
// not have reached a plugin yet. Pods have one handler, which all who derive something from them share.
//
// It decides nothing. It remembers a revision for each object until Forget is called.
package watches

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// Watches is the watches of a process. It is safe for concurrent use.
type Watches struct {
	mu   sync.Mutex
	all  []*Watch
	pods podListeners
}

// New makes one without watches.
func New() *Watches { return &Watches{} }

// All lists them.
func (w *Watches) All() []*Watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.all)
}

// Shared returns the handler to register at an informer that the scheduler watches by, too. The
// name is for readers who wonder what is waited for.
func (w *Watches) Shared(name string, informer cache.SharedInformer,
	handler cache.ResourceEventHandler) cache.ResourceEventHandler {
	return w.addWatch(&Watch{name: name, synced: informer.HasSynced, store: informer.GetStore(), handler: handler})
}

// Own returns the handler to register at an informer of the plugin's own. The selector is
// the field selector of its watch.
func (w *Watches) Own(name string, resource schema.GroupVersionResource, selector string, informer cache.SharedInformer,
	handler cache.ResourceEventHandler) cache.ResourceEventHandler {
	return w.addWatch(&Watch{name: name, resource: resource, selector: selector, synced: informer.HasSynced,
		store: informer.GetStore(), handler: handler})
}

func (w *Watches) addWatch(watch *Watch) cache.ResourceEventHandler {
	watch.handled = map[string]string{}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, watch)
	return watch
}

// Watch is a handler of a plugin's at an informer. It is registered there once.
type Watch struct {
	name     string
	resource schema.GroupVersionResource
	selector string
	synced   cache.InformerSynced
	store    cache.Store
	handler  cache.ResourceEventHandler

	mu sync.Mutex
	// handled are the revisions that the handler has taken in, by UID; nil once Forget is called.
	handled map[string]string
}

var _ cache.ResourceEventHandler = &Watch{}

// Name returns which plugin watches what.
func (w *Watch) Name() string { return w.name }

// Own returns what the plugin's own informer watches, and with what field selector; false
// where the informer is the scheduler's.
func (w *Watch) Own() (resource schema.GroupVersionResource, selector string, own bool) {
	return w.resource, w.selector, !w.resource.Empty()
}

// Synced reports whether the first list of the informer is complete.
func (w *Watch) Synced() bool { return w.synced() }

// Store returns the cache of the informer.
func (w *Watch) Store() cache.Store { return w.store }

// Handled returns the revisions of the objects that the handler has taken in and that have
// not gone, by UID.
func (w *Watch) Handled() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.handled)
}

// Forget drops the record of what the handler has taken in, once no caller needs it.
func (w *Watch) Forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handled = nil
}

// OnAdd passes the event on.
func (w *Watch) OnAdd(object any, isInInitialList bool) {
	w.handler.OnAdd(object, isInInitialList)
	w.recordRevision(nil, object)
}

// OnUpdate passes the event on.
func (w *Watch) OnUpdate(before, object any) {
	w.handler.OnUpdate(before, object)
	w.recordRevision(before, object)
}

// OnDelete passes the event on.
func (w *Watch) OnDelete(object any) {
	w.handler.OnDelete(object)
	Deleted(func(last any) { w.recordRevision(last, nil) })(object)
}

// Deleted makes a handler of deletions out of one that takes the object as it was last known,
// which includes the case that a watch has missed the deletion.
func Deleted[T any](do func(T)) func(object any) {
	return func(object any) {
		if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = unknown.Obj
		}
		if last, ok := object.(T); ok {
			do(last)
		}
	}
}

// recordRevision remembers the revision of the new object, and drops the one of the object before; they may
// be two objects of one name.
func (w *Watch) recordRevision(before, now any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.handled == nil {
		return
	}
	if accessor, err := meta.Accessor(before); err == nil {
		delete(w.handled, string(accessor.GetUID()))
	}
	if accessor, err := meta.Accessor(now); err == nil {
		w.handled[string(accessor.GetUID())] = accessor.GetResourceVersion()
	}
}
