package reservepods

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// listWatch lists and watches the pods of the API server and those of a store, for one reflector.
//
// It delivers the changes of the store in one sequence of events, and goes on where it was: after a
// watch was cut the next one begins with what the reflector has not had. A list holds what the
// reflector has had, so that it takes nothing back and leaves nothing out, and what happened
// meanwhile comes by the watch that follows.
//
// The reflector takes the resourceVersion of each event for where the watch is, and asks the API
// server to go on from there. The resourceVersion of a reserve pod means nothing to the API server.
// So a bookmark with the API server's own follows, and what is asked from the API server is always
// from its own.
type listWatch struct {
	inner cache.ListerWatcherWithContext

	mu sync.Mutex
	// had are the pods of the store as the reflector has them; at first, as they were when the listWatch was made.
	had map[cache.ObjectName]*v1.Pod
	// queue are the events that it has not had.
	queue []watch.Event
	// ready has an element when there may be events in the queue.
	ready chan struct{}
	// version is the API server's own resourceVersion that the reflector has come to.
	version string
	// last is the last watch that was begun.
	last *merged
}

// NewListWatch adds the pods of a store to what inner lists and watches, which are pods.
func NewListWatch(inner cache.ListerWatcher, store *Store) cache.ListerWatcher {
	l := &listWatch{inner: cache.ToListerWatcherWithContext(inner), ready: make(chan struct{}, 1)}
	l.had = store.watch(l.push)
	both := &cache.ListWatch{ListWithContextFunc: l.list, WatchFuncWithContext: l.watch}
	return cache.ToListWatcherWithWatchListSemantics(both, inner)
}

// list lists pods. Those of the store are on the last page.
func (l *listWatch) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	l.end()
	object, err := l.inner.ListWithContext(ctx, l.fromOwn(options))
	if err != nil {
		return nil, err
	}
	list, ok := object.(*v1.PodList)
	if !ok {
		return nil, fmt.Errorf("listing pods: got a %T", object)
	}
	if options.Continue == "" {
		l.came(list.ResourceVersion) // what is on later pages may be newer; the watch is from the first
	}
	if list.Continue == "" {
		for _, pod := range l.known() {
			list.Items = append(list.Items, *pod)
		}
	}
	return list, nil
}

// watch watches pods. It ends the watch before, if that has not ended.
func (l *listWatch) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	l.end()
	options = l.fromOwn(options)
	inner, err := l.inner.WatchWithContext(ctx, options)
	if err != nil {
		return nil, err
	}
	streaming := options.SendInitialEvents != nil && *options.SendInitialEvents
	w := &merged{
		list: l, inner: inner, streaming: streaming, ordered: !streaming && isVersion(options.ResourceVersion),
		result: make(chan watch.Event), done: make(chan struct{}),
	}
	w.ProxyWatcher = watch.NewProxyWatcher(w.result)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = w
	l.signal()
	go w.run()
	return w, nil
}

// end ends the watch before. What it had sent is noted then.
func (l *listWatch) end() {
	l.mu.Lock()
	last := l.last
	l.last = nil
	l.mu.Unlock()
	if last != nil {
		last.Stop()
		<-last.done
	}
}

// fromOwn makes options ask for what comes after the API server's own resourceVersion. Options that
// ask for the newest, or for any, still do so.
func (l *listWatch) fromOwn(options metav1.ListOptions) metav1.ListOptions {
	l.mu.Lock()
	defer l.mu.Unlock()
	if isVersion(options.ResourceVersion) {
		options.ResourceVersion = l.version
	}
	return options
}

// isVersion reports whether a resourceVersion that a reflector asks with stands for a moment.
func isVersion(version string) bool { return version != "" && version != "0" }

// came notes the API server's own resourceVersion that the reflector has come to.
func (l *listWatch) came(version string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.version = version
}

// known returns the pods of the store as the reflector has them.
func (l *listWatch) known() []*v1.Pod {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.SortedFunc(maps.Values(l.had), func(a, b *v1.Pod) int {
		return strings.Compare(cache.MetaObjectToName(a).String(), cache.MetaObjectToName(b).String())
	})
}

// push takes in an event of the store.
func (l *listWatch) push(event watch.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append(l.queue, event)
	l.signal()
}

// next returns the oldest event that the reflector has not received.
func (l *listWatch) next() (watch.Event, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		return watch.Event{}, false
	}
	return l.queue[0], true
}

// sent notes that the reflector has had the next event. If that was the last, it returns the API
// server's own resourceVersion that the reflector must be put back to, if there is one.
func (l *listWatch) sent() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	take(l.had, l.queue[0])
	l.queue[0] = watch.Event{}
	l.queue = l.queue[1:]
	if len(l.queue) > 0 {
		l.signal()
		return ""
	}
	return l.version
}

// signal wakes the watch, since there may be events. l.mu is held.
func (l *listWatch) signal() {
	select {
	case l.ready <- struct{}{}:
	default:
	}
}
