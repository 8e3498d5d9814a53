// Package cacheevents tells plugins what the scheduler's cache has taken in, and when a
// scheduling cycle begins and fails.
//
// kube-scheduler's informer handlers and those of a plugin run beside each other: a
// plugin that acts on what its own handler hears may have a cycle run on a snapshot that
// does not know of it yet, and whoever comes next gets what was meant for the first. What
// is told here the next snapshot has.
//
// It keeps nothing but the listeners, and decides nothing but whether an event may help a pod.
package cacheevents

import (
	"context"
	"sync"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// Listener is told. It must not block: it is called on the goroutines of
// kube-scheduler's informers, and on the scheduling goroutine.
type Listener interface {
	// Heard tells of an event that the cache has taken in; the object before and after, nil
	// where there is none. One change may be several events.
	Heard(event fwk.ClusterEvent, before, after any)
	// Begin tells that a cycle begins: what is heard from now on, its snapshot may not have.
	Begin()
	// Failed tells that the cycle of a pod, or its binding, came to nothing, and why. The queue
	// does not have it back yet.
	Failed(ctx context.Context, pod *v1.Pod, why error)
}

// Events is the listeners of a process. It is safe for concurrent use.
type Events struct {
	mu        sync.RWMutex
	listeners []Listener
}

// New makes one without listeners.
func New() *Events { return &Events{} }

// Listen adds a listener.
func (e *Events) Listen(l Listener) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.listeners = append(e.listeners, l)
}

// Heard tells all listeners.
func (e *Events) Heard(event fwk.ClusterEvent, before, after any) {
	for _, l := range e.all() {
		l.Heard(event, before, after)
	}
}

// Begin tells all listeners.
func (e *Events) Begin() {
	for _, l := range e.all() {
		l.Begin()
	}
}

// Failed tells all listeners.
func (e *Events) Failed(ctx context.Context, pod *v1.Pod, why error) {
	for _, l := range e.all() {
		l.Failed(ctx, pod, why)
	}
}

func (e *Events) all() []Listener {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.listeners // it only grows
}
