// Package cacheevents tells plugins what the scheduler's cache has taken in, and when a
// scheduling cycle begins and fails.
//
// kube-scheduler's informer handlers and those of a plugin run concurrently: if a plugin
// acts on an event of its own handler, a cycle may run on a snapshot that does not have
// the event yet, and another pod takes what was meant for the first. An event that this
// package passes on is in the next snapshot.
//
// It keeps nothing but the listeners, and decides nothing but whether an event may help a pod.
package cacheevents

import (
	"context"
	"sync"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// Listener gets the events. It must not block: it is called on the goroutines of
// kube-scheduler's informers, and on the scheduling goroutine.
type Listener interface {
	// HandleEvent is called for an event that the cache has taken in, with the object before and after, nil
	// where there is none. One change may be several events.
	HandleEvent(event fwk.ClusterEvent, before, after any)
	// HandleCycleStart is called when a cycle begins: its snapshot may not have what is heard from now on. It is the cycle
	// of a pod; nil for a native pod group, or none.
	HandleCycleStart(pod *v1.Pod)
	// HandleFailedCycle is called when the cycle of a pod, or its binding, failed, with the reason. The pod is not
	// back in the queue yet.
	HandleFailedCycle(ctx context.Context, pod *v1.Pod, why error)
}

// Events has the listeners of a process. It is safe for concurrent use.
type Events struct {
	mu        sync.RWMutex
	listeners []Listener
}

// New returns Events without listeners.
func New() *Events { return &Events{} }

// Listen adds a listener.
func (e *Events) Listen(l Listener) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.listeners = append(e.listeners, l)
}

// HandleEvent calls HandleEvent of all listeners.
func (e *Events) HandleEvent(event fwk.ClusterEvent, before, after any) {
	for _, l := range e.all() {
		l.HandleEvent(event, before, after)
	}
}

// HandleCycleStart calls HandleCycleStart of all listeners.
func (e *Events) HandleCycleStart(pod *v1.Pod) {
	for _, l := range e.all() {
		l.HandleCycleStart(pod)
	}
}

// HandleFailedCycle calls HandleFailedCycle of all listeners.
func (e *Events) HandleFailedCycle(ctx context.Context, pod *v1.Pod, why error) {
	for _, l := range e.all() {
		l.HandleFailedCycle(ctx, pod, why)
	}
}

func (e *Events) all() []Listener {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.listeners // it only grows
}
