package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"

	"github.com/lockstep-sh/lockstep/test/harness/observe"
)

// bound is where a pod is, and when the harness saw it there.
type bound struct {
	node   string
	at     time.Time
	ending bool // it is being deleted
}

// bindings is the pods that have a node, as a watch delivers them.
type bindings struct {
	observe.Board
	pods  map[string]bound
	gangs map[string]int // bound members
	// history is what has changed since record was called; nil before.
	history []change
	// first and last are of all bindings seen, pods that are gone included.
	first, last time.Time
	// lastEnding is when a pod was last seen to be ending for the first time, lastGone when one went.
	lastEnding, lastGone time.Time
	// running are the pods that have been seen to run, lastRun is when the last of them was for the first time.
	running sets.Set[string]
	lastRun time.Time
	// lists is how often all was listed: more than once means that the watch broke, and times were
	// lost.
	lists int
}

// assigned selects pods with a node: the API server then sends a pod when it is bound, not before.
var assigned = fields.OneTermNotEqualSelector("spec.nodeName", "")

// watchBindings watches until ctx is over.
func watchBindings(ctx context.Context, client kubernetes.Interface) (*bindings, error) {
	b := &bindings{pods: map[string]bound{}, gangs: map[string]int{}, running: sets.New[string]()}
	go observe.Follower[*v1.Pod]{From: observe.Core(client, "pods", namespace, assigned), See: b.change, Listed: b.listed}.Run(ctx)
	if err := b.Wait(ctx, func() bool { return b.lists > 0 }); err != nil {
		return nil, fmt.Errorf("waiting to see which pods are bound: %w", err)
	}
	return b, nil
}

func (b *bindings) change(before, after *v1.Pod) {
	b.Lock()
	defer b.Unlock()
	defer b.Changed()
	if after == nil {
		b.lose(before.Name)
		return
	}
	b.see(after, time.Now())
}

func (b *bindings) listed() {
	b.Lock()
	defer b.Unlock()
	b.lists++
	b.Changed()
}

func (b *bindings) see(pod *v1.Pod, now time.Time) {
	if pod.Status.Phase == v1.PodRunning && !b.running.Has(pod.Name) {
		b.running.Insert(pod.Name)
		b.lastRun = now
	}
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
	b.running.Delete(name)
	if b.gangs[gangOf(name)]--; b.gangs[gangOf(name)] == 0 {
		delete(b.gangs, gangOf(name))
	}
}

func (b *bindings) note(c change) {
	if b.history != nil {
		b.history = append(b.history, c)
	}
}

// record keeps what changes from now on. history returns what was kept so far, in its order.
func (b *bindings) record() (history func() []change) {
	b.Lock()
	defer b.Unlock()
	b.history = []change{}
	return func() []change {
		b.Lock()
		defer b.Unlock()
		return slices.Clone(b.history)
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

// spreads returns, gang by gang, the time from the first to the last member that was bound.
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
	b.Lock()
	defer b.Unlock()
	return b.last
}

func (b *bindings) lastLoss() time.Time {
	b.Lock()
	defer b.Unlock()
	return b.lastGone
}

// oldest returns the gang of the pod that was bound first, of those that are left.
func (b *bindings) oldest() string {
	b.Lock()
	defer b.Unlock()
	var name string
	for pod, bound := range b.pods {
		if name == "" || bound.at.Before(b.pods[name].at) {
			name = pod
		}
	}
	return gangOf(name)
}
