package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// bound is where a pod is, and when the harness saw it there.
type bound struct {
	node   string
	at     time.Time
	ending bool // it is being deleted
}

// bindings is the pods that have a node, as a watch tells.
type bindings struct {
	client kubernetes.Interface

	mu    sync.Mutex
	pods  map[string]bound
	gangs map[string]int // bound members
	// history is what has changed since record was called; nil before.
	history []change
	// first and last are of all bindings seen, pods that are gone included.
	first, last time.Time
	// lastEnding is when a pod was last seen to be ending for the first time, lastGone when one went.
	lastEnding, lastGone time.Time
	// cuts is how often the watch broke, and times were lost.
	cuts    int
	err     error
	changed chan struct{} // closed at a change, and made anew
}

// assigned selects pods with a node: the API server then sends a pod when it is bound, not before.
var assigned = fields.OneTermNotEqualSelector("spec.nodeName", "").String()

// watchBindings watches until ctx is over.
func watchBindings(ctx context.Context, client kubernetes.Interface) (*bindings, error) {
	b := &bindings{client: client, pods: map[string]bound{}, gangs: map[string]int{}, changed: make(chan struct{})}
	version, err := b.list(ctx)
	if err != nil {
		return nil, err
	}
	go b.follow(ctx, version)
	return b, nil
}

func (b *bindings) list(ctx context.Context) (version string, err error) {
	list, err := b.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: assigned})
	if err != nil {
		return "", fmt.Errorf("listing bound pods: %w", err)
	}
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	there := map[string]bool{}
	for i := range list.Items {
		b.see(&list.Items[i], now)
		there[list.Items[i].Name] = true
	}
	for name := range b.pods {
		if !there[name] {
			b.lose(name)
		}
	}
	b.signal()
	return list.ResourceVersion, nil
}

// follow watches, and lists again when the watch breaks.
func (b *bindings) follow(ctx context.Context, version string) {
	for ctx.Err() == nil {
		err := b.watch(ctx, &version)
		if err != nil && ctx.Err() == nil {
			version, err = b.list(ctx)
		}
		b.mu.Lock()
		b.cuts++
		if err != nil {
			b.err = err
			b.signal()
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
	}
}

// watch takes in events until the watch ends. It returns an error where it cannot go on from version.
func (b *bindings) watch(ctx context.Context, version *string) error {
	w, err := b.client.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{
		FieldSelector: assigned, ResourceVersion: *version, AllowWatchBookmarks: true,
	})
	if err != nil {
		return fmt.Errorf("watching bound pods: %w", err)
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		pod, ok := event.Object.(*v1.Pod)
		if !ok {
			return errors.New("watching bound pods: the watch ended with an error")
		}
		*version = pod.ResourceVersion
		if event.Type == watch.Bookmark {
			continue
		}
		b.mu.Lock()
		if event.Type == watch.Deleted {
			b.lose(pod.Name)
		} else {
			b.see(pod, time.Now())
		}
		b.signal()
		b.mu.Unlock()
	}
	return nil
}

func (b *bindings) see(pod *v1.Pod, now time.Time) {
	if was, known := b.pods[pod.Name]; known {
		if pod.DeletionTimestamp != nil && !was.ending {
			was.ending = true
			b.pods[pod.Name], b.lastEnding = was, now
		}
		return
	}
	if pod.Spec.NodeName == "" {
		return
	}
	b.note(change{at: now, pod: pod.Name, bound: true})
	b.pods[pod.Name] = bound{node: pod.Spec.NodeName, at: now}
	b.gangs[gangOf(pod.Name)]++
	if b.first.IsZero() {
		b.first = now
	}
	b.last = now
}

func (b *bindings) lose(name string) {
	if _, known := b.pods[name]; !known {
		return
	}
	b.lastGone = time.Now()
	b.note(change{at: b.lastGone, pod: name})
	delete(b.pods, name)
	if b.gangs[gangOf(name)]--; b.gangs[gangOf(name)] == 0 {
		delete(b.gangs, gangOf(name))
	}
}

func (b *bindings) note(c change) {
	if b.history != nil {
		b.history = append(b.history, c)
	}
}

// record keeps what changes from now on. The history is what was kept so far, in its order.
func (b *bindings) record() (history func() []change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.history = []change{}
	return func() []change {
		b.mu.Lock()
		defer b.mu.Unlock()
		return slices.Clone(b.history)
	}
}

func (b *bindings) signal() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// until waits until the test, which is called with the lock held, holds.
func (b *bindings) until(ctx context.Context, test func() bool) error {
	for {
		b.mu.Lock()
		ok, err, changed := test(), b.err, b.changed
		b.mu.Unlock()
		switch {
		case err != nil:
			return err
		case ok:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// whole counts the gangs that have size members bound, or more; partial those that have fewer.
// The caller holds the lock.
func (b *bindings) whole(size int) (whole, partial int) {
	for _, n := range b.gangs {
		if n >= size {
			whole++
		} else {
			partial++
		}
	}
	return whole, partial
}

// overfull counts the nodes with more pods than GPUs.
func (b *bindings) overfull() int {
	on := map[string]int{}
	for _, pod := range b.pods {
		on[pod.node]++
	}
	n := 0
	for _, pods := range on {
		if pods > gpusOnNode {
			n++
		}
	}
	return n
}

// spreads is, gang by gang, the time from the first to the last member that was bound.
func (b *bindings) spreads() []time.Duration {
	type span struct{ first, last time.Time }
	spans := map[string]*span{}
	for name, pod := range b.pods {
		s := spans[gangOf(name)]
		if s == nil {
			spans[gangOf(name)] = &span{pod.at, pod.at}
			continue
		}
		if pod.at.Before(s.first) {
			s.first = pod.at
		}
		if pod.at.After(s.last) {
			s.last = pod.at
		}
	}
	spreads := make([]time.Duration, 0, len(spans))
	for _, s := range spans {
		spreads = append(spreads, s.last.Sub(s.first))
	}
	return spreads
}

func (b *bindings) lastBind() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last
}

// oldest is the gang of the pod that was bound first, of those that are left.
func (b *bindings) oldest() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var name string
	for pod, bound := range b.pods {
		if name == "" || bound.at.Before(b.pods[name].at) {
			name = pod
		}
	}
	return gangOf(name)
}
