package watches

import (
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// Stage orders the listeners to pods.
type Stage int

// The stages, in the order in which a change of a pod is passed on: who uses capacity, then who waits for it. A gang is
// known before its queue counts it.
const (
	Cards        Stage = iota // which GPU cards pods have
	Reservations              // which pods use Reservations
	Gangs                     // which pods are members of gangs
	Shares                    // what queues use and ask for
	Nominations               // which nodes are kept for preemptors, and which pods they evict
)

// PodListener derives something from the pods of the cluster. Its functions must not block.
type PodListener struct {
	// Seen is called with each version of a pod; before is nil for the first one.
	Seen func(before, now *v1.Pod)
	// Gone is called with the last version of a pod that was deleted.
	Gone func(last *v1.Pod)
}

// podListeners are the listeners to the pods of a process, behind one handler.
type podListeners struct {
	handler cache.ResourceEventHandlerRegistration
	stages  []Stage
	all     []PodListener
	// begun: the handler has had an event.
	begun bool
}

// ListenToPods adds a listener to the pods that the scheduler watches. All listeners of a process share one handler,
// which calls them by stage, one after the other. It returns a function that reports whether all listeners have had
// every pod of the first list. It fails once the handler has had an event.
func (w *Watches) ListenToPods(factory informers.SharedInformerFactory, at Stage,
	l PodListener) (cache.InformerSynced, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pods.begun {
		return nil, errors.New("watching pods: the informer runs already")
	}
	i, _ := slices.BinarySearch(w.pods.stages, at+1) // behind those of its stage
	w.pods.stages, w.pods.all = slices.Insert(w.pods.stages, i, at), slices.Insert(w.pods.all, i, l)
	if w.pods.handler != nil {
		return w.pods.handler.HasSynced, nil
	}
	informer := factory.Core().V1().Pods().Informer()
	watch := &Watch{name: "pods", synced: informer.HasSynced, store: informer.GetStore(), handler: w.podHandler(),
		handled: map[string]string{}}
	handler, err := informer.AddEventHandler(watch)
	if err != nil {
		return nil, fmt.Errorf("watching pods: %w", err)
	}
	w.all, w.pods.handler = append(w.all, watch), handler
	return handler.HasSynced, nil
}

func (w *Watches) podHandler() cache.ResourceEventHandler {
	seen := func(before, now *v1.Pod) {
		for _, l := range w.podListeners() {
			l.Seen(before, now)
		}
	}
	gone := func(last *v1.Pod) {
		for _, l := range w.podListeners() {
			l.Gone(last)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { seen(nil, object.(*v1.Pod)) },
		UpdateFunc: func(old, object any) {
			before, now := old.(*v1.Pod), object.(*v1.Pod)
			if before.UID != now.UID { // it was deleted, and made again, while the watch was broken
				gone(before)
				before = nil
			}
			seen(before, now)
		},
		DeleteFunc: Deleted(gone),
	}
}

// podListeners returns the listeners to pods; from then on there are no others.
func (w *Watches) podListeners() []PodListener {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods.begun = true
	return w.pods.all
}
