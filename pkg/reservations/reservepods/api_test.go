package reservepods

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// api is an API server with pods, as a reflector sees it: a log of events, lists of some moment in
// pages or streamed, and watches that are cut. It answers nothing about a revision that it has not
// given out.
type api struct {
	mu     sync.Mutex
	random *rand.Rand
	// first and revision are the revisions before the first event and of the last.
	first, revision int64
	pods            map[string]*v1.Pod
	log             []watch.Event
	// compacted is the last revision that watches cannot go on from any more.
	compacted int64
	watches   map[*stream]bool
	// given are the revisions that a client may ask from.
	given map[string]bool
	// pageSize is the page size of lists, 0 for all at once; pages are the lists that are under way.
	pageSize int
	pages    map[string][]*v1.Pod
	// unstreamed and refuses are how a list that is to be streamed is answered; listsFail and
	// watchesFail are how many of the next calls fail.
	unstreamed, refuses bool
	listsFail           int
	watchesFail         int
	problems            []string
}

func newAPI(random *rand.Rand, first int64) *api {
	return &api{
		random: random, first: first, revision: first, compacted: first, pods: map[string]*v1.Pod{}, watches: map[*stream]bool{},
		given: map[string]bool{}, pages: map[string][]*v1.Pod{},
	}
}

// IsWatchListSemanticsUnSupported has the name that client-go looks for.
func (a *api) IsWatchListSemanticsUnSupported() bool { return a.unstreamed }

func (a *api) List(options metav1.ListOptions) (runtime.Object, error) {
	return a.ListWithContext(context.Background(), options)
}

func (a *api) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return a.WatchWithContext(context.Background(), options)
}

// put creates or changes a pod, and deletes it where change returns nil.
func (a *api) put(name string, change func(*v1.Pod) *v1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.pods[name]
	now := change(before)
	if before == nil && now == nil {
		return
	}
	a.revision += 1 + a.random.Int64N(3) // other kinds change, too
	event := watch.Event{Type: watch.Modified, Object: now}
	switch {
	case now == nil:
		now = before.DeepCopy()
		event = watch.Event{Type: watch.Deleted, Object: now}
		delete(a.pods, name)
	case before == nil:
		event.Type = watch.Added
	}
	now.ResourceVersion = a.at(a.revision)
	if event.Type != watch.Deleted {
		a.pods[name] = now
	}
	a.log = append(a.log, event)
	for w := range a.watches {
		w.add(event)
	}
}

// at returns a revision, which counts as given out.
func (a *api) at(revision int64) string {
	version := strconv.FormatInt(revision, 10)
	a.given[version] = true
	return version
}

// ask checks a revision that a client asks from.
func (a *api) ask(what string, options metav1.ListOptions) int64 {
	if options.ResourceVersion == "" || options.ResourceVersion == "0" {
		return 0
	}
	revision, err := strconv.ParseInt(options.ResourceVersion, 10, 64)
	if err != nil || !a.given[options.ResourceVersion] {
		a.problems = append(a.problems, fmt.Sprintf("%s asks from %q, which is no revision of the API server's", what, options.ResourceVersion))
	}
	return revision
}

// all returns the pods, in some order.
func (a *api) all() []*v1.Pod {
	pods := slices.Collect(maps.Values(a.pods))
	slices.SortFunc(pods, func(a, b *v1.Pod) int { return strings.Compare(a.Name, b.Name) })
	a.random.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
	return pods
}

func (a *api) ListWithContext(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.listsFail > 0 {
		a.listsFail--
		return nil, []error{apierrors.NewResourceExpired("gone"), apierrors.NewInternalError(fmt.Errorf("in trouble"))}[a.random.IntN(2)]
	}
	list := &v1.PodList{}
	var rest []*v1.Pod
	if options.Continue == "" {
		a.ask("a list", options)
		list.ResourceVersion = a.at(a.revision)
		rest = a.all()
	} else {
		list.ResourceVersion, _, _ = strings.Cut(options.Continue, "/")
		var ok bool
		if rest, ok = a.pages[options.Continue]; !ok {
			return nil, apierrors.NewResourceExpired("the rest of the list is gone")
		}
		delete(a.pages, options.Continue)
	}
	if size := a.pageSize; size > 0 && options.Limit > 0 && len(rest) > size {
		list.Continue = fmt.Sprint(list.ResourceVersion, "/", len(rest))
		a.pages[list.Continue] = rest[size:]
		rest = rest[:size]
	}
	for _, pod := range rest {
		list.Items = append(list.Items, *pod)
	}
	return list, nil
}

func (a *api) WatchWithContext(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	streaming := options.SendInitialEvents != nil && *options.SendInitialEvents
	from := a.ask("a watch", options)
	switch {
	case a.watchesFail > 0:
		a.watchesFail--
		return nil, []error{apierrors.NewTooManyRequestsError("later"), apierrors.NewInternalError(fmt.Errorf("in trouble"))}[a.random.IntN(2)]
	case streaming && a.refuses:
		return nil, apierrors.NewInvalid(v1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "", nil)
	case !streaming && from < a.compacted && a.random.IntN(2) == 0:
		return nil, apierrors.NewResourceExpired("gone")
	}
	w := newStream(func(w *stream) {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.watches, w)
	})
	a.watches[w] = true
	switch {
	case streaming:
		for _, pod := range a.all() {
			w.add(watch.Event{Type: watch.Added, Object: pod})
		}
		w.add(a.bookmark(map[string]string{metav1.InitialEventsAnnotationKey: "true"}))
	case from == 0:
		a.problems = append(a.problems, "a watch begins from nowhere")
	case from < a.compacted:
		w.add(watch.Event{Type: watch.Error, Object: &apierrors.NewResourceExpired("gone").ErrStatus})
	default:
		for _, event := range a.log {
			if revisionOf(event) > from {
				w.add(event)
			}
		}
	}
	return w, nil
}

func (a *api) bookmark(annotations map[string]string) watch.Event {
	return watch.Event{Type: watch.Bookmark, Object: &v1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: a.at(a.revision), Annotations: annotations}}}
}

func revisionOf(event watch.Event) int64 {
	revision, _ := strconv.ParseInt(event.Object.(*v1.Pod).ResourceVersion, 10, 64)
	return revision
}

// cut ends all watches, where the reflector may not have had their last events.
func (a *api) cut() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.cutOrder() {
		w.cut(a.random.IntN(4))
	}
}

// fail ends all watches with an error.
func (a *api) fail(err *apierrors.StatusError) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.cutOrder() {
		w.add(watch.Event{Type: watch.Error, Object: &err.ErrStatus})
	}
}

// cutOrder returns the watches; there is one at most, except for a moment.
func (a *api) cutOrder() []*stream { return slices.Collect(maps.Keys(a.watches)) }

// mark sends a bookmark.
func (a *api) mark() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.cutOrder() {
		w.add(a.bookmark(nil))
	}
}

// compact makes the watches and the pages of lists of before now expire.
func (a *api) compact() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.compacted = a.revision
	clear(a.pages)
}

// set changes how it answers.
func (a *api) set(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

// stream is one watch: it keeps events until they are taken.
type stream struct {
	gone   func(*stream)
	mu     sync.Mutex
	events []watch.Event
	ended  bool
	wake   chan struct{}
	result chan watch.Event
	stop   chan struct{}
	once   sync.Once
}

func newStream(gone func(*stream)) *stream {
	w := &stream{gone: gone, wake: make(chan struct{}, 1), result: make(chan watch.Event), stop: make(chan struct{})}
	go w.run()
	return w
}

func (w *stream) ResultChan() <-chan watch.Event { return w.result }

func (w *stream) Stop() { w.once.Do(func() { close(w.stop) }) }

func (w *stream) add(event watch.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		w.events = append(w.events, event)
		w.wakeUp()
	}
}

// cut ends the watch after so many of the events that were not taken.
func (w *stream) cut(after int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.events = w.events[:min(after, len(w.events))]
	w.wakeUp()
}

func (w *stream) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// take takes the next event; false if there is none, with true if there will be none.
func (w *stream) take() (event watch.Event, ok, ended bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.events) == 0 {
		return watch.Event{}, false, w.ended
	}
	event, w.events = w.events[0], w.events[1:]
	return event, true, false
}

func (w *stream) run() {
	defer w.gone(w)
	defer close(w.result)
	for {
		event, ok, ended := w.take()
		switch {
		case ok:
			select {
			case w.result <- event:
			case <-w.stop:
				return
			}
		case ended:
			return
		default:
			select {
			case <-w.wake:
			case <-w.stop:
				return
			}
		}
	}
}
