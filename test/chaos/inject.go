package main

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/test/chaos/workload"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// injector makes the faults of a plan happen.
type injector struct {
	*stage
	users *driver

	mu     sync.Mutex
	counts map[string]int
	// missed counts moments that did not come in time: the fault hit all the same.
	missed map[string]int
	errs   []error
}

func newInjector(s *stage, users *driver) *injector {
	return &injector{stage: s, users: users, counts: map[string]int{}, missed: map[string]int{}}
}

// momentWithin is how long a fault waits for its moment.
const momentWithin = 10 * time.Second

// run makes faults happen one after the other, each when all is well, until ctx ends. What is broken then is
// mended before it returns.
func (i *injector) run(ctx context.Context, faults []workload.Fault) {
	for _, f := range faults {
		if f.Target != workload.Node && i.health.waitWell(ctx) != nil || await.Pause(ctx, f.Calm) != nil {
			return
		}
		if !i.waitMoment(ctx, f) {
			return
		}
		i.mu.Lock()
		i.counts[f.Kind()]++
		i.mu.Unlock()
		if err := i.hit(ctx, f); err != nil {
			i.mu.Lock()
			i.errs = append(i.errs, fmt.Errorf("making a fault (%s): %w", f.Kind(), err))
			i.mu.Unlock()
			return
		}
	}
}

// waitMoment waits for the moment of a fault; false when ctx ended first.
func (i *injector) waitMoment(ctx context.Context, f workload.Fault) bool {
	if f.When == workload.AtOnce {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(momentWithin)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-i.seen.next(f.When):
	case <-timer.C:
		i.mu.Lock()
		i.missed[f.Kind()]++
		i.mu.Unlock()
	}
	return true
}

// mendTimeout bounds the mending of what is broken when the faults end. On a busy machine an API server takes a minute
// to start.
const mendTimeout = 3 * time.Minute

// hit makes one fault, and mends it.
func (i *injector) hit(ctx context.Context, f workload.Fault) error {
	mend, cancel := context.WithTimeout(context.WithoutCancel(ctx), mendTimeout)
	defer cancel()
	switch f.Target {
	case workload.Scheduler, workload.Controller:
		return i.hitLeader(ctx, mend, f)
	case workload.APIServer:
		return i.hitAPIServer(ctx, mend, f)
	default:
		return i.hitNode(ctx, mend, f)
	}
}

func (i *injector) hitLeader(ctx, mend context.Context, f workload.Fault) error {
	leader, err := i.health.waitLeader(ctx, f.Target)
	if err != nil {
		return nil // ctx ended
	}
	i.seen.fault("%s: %s, for %s", f.Kind(), leader.name, f.Lasts)
	i.health.touches(f.Kind())
	defer i.health.touches(f.Kind())
	if f.Target == workload.Scheduler {
		i.health.strikes(leader)
		i.health.breaks(leader.name, f.Kind())
		defer i.health.mends(leader.name)
	}
	if f.Blow == workload.Kill {
		if err := leader.kill(); err != nil {
			return err
		}
		_ = await.Pause(ctx, f.Lasts)
		if err := leader.start(); err != nil {
			return err
		}
		return leader.waitReady(mend)
	}
	if err := leader.freeze(true); err != nil {
		return err
	}
	_ = await.Pause(ctx, f.Lasts)
	i.seen.fault("%s goes on", leader.name)
	return leader.freeze(false)
}

func (i *injector) hitAPIServer(ctx, mend context.Context, f workload.Fault) error {
	i.seen.fault("%s, for %s", f.Kind(), f.Lasts)
	i.health.breaks(string(f.Target), f.Kind())
	defer i.health.mends(string(f.Target))
	if f.Blow == workload.Kill {
		i.health.cuts()
		if err := i.cluster.KillAPIServer(mend); err != nil {
			return err
		}
		_ = await.Pause(ctx, f.Lasts)
		err := i.cluster.StartAPIServer(mend)
		i.seen.fault("the API server serves again")
		return err
	}
	if err := i.cluster.SignalAPIServer(syscall.SIGSTOP); err != nil {
		return err
	}
	_ = await.Pause(ctx, f.Lasts)
	i.seen.fault("the API server goes on")
	return i.cluster.SignalAPIServer(syscall.SIGCONT)
}

// hitNode makes a fault of a node. The API server may be hit at the same time, so that calls are tried again.
func (i *injector) hitNode(ctx, mend context.Context, f workload.Fault) error {
	name, nodes := nodeName(f.Node), i.cluster.Clientset().CoreV1().Nodes()
	i.seen.fault("%s: %s, for %s", f.Kind(), name, f.Lasts)
	if f.Blow == workload.Cordon {
		i.cordon(mend, name, true)
		_ = await.Pause(ctx, f.Lasts)
		i.cordon(mend, name, false)
		return nil
	}
	var node *v1.Node
	i.users.try(mend, func(ctx context.Context) (err error) {
		node, err = nodes.Get(ctx, name, metav1.GetOptions{})
		return err
	})
	if node == nil || node.Name == "" {
		return fmt.Errorf("reading node %s: it is not there", name)
	}
	i.users.deleteObject(mend, node, metav1.DeleteOptions{})
	_ = await.Pause(ctx, f.Lasts/2)
	if f.Blow == workload.Remove {
		i.buryPods(mend, name)
	}
	_ = await.Pause(ctx, f.Lasts/2)
	if f.Blow == workload.Remove {
		i.buryPods(mend, name) // pods that were bound to it late
	}
	i.users.createObject(mend, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: node.Labels, Annotations: node.Annotations}, Status: node.Status})
	return nil
}

func (i *injector) cordon(ctx context.Context, name string, cordoned bool) {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	i.users.patchObject(ctx, node, fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, cordoned))
}

// buryPods ends the pods of a node that is gone, as the garbage collector of pods does after 40 seconds.
func (i *injector) buryPods(ctx context.Context, node string) {
	client := i.cluster.Clientset().CoreV1()
	var list *v1.PodList
	i.users.try(ctx, func(ctx context.Context) (err error) {
		list, err = client.Pods(v1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()})
		return err
	})
	if list == nil {
		return
	}
	failed := []byte(`{"status":{"phase":"Failed","reason":"NodeLost"}}`)
	for n := range list.Items {
		pod := &list.Items[n]
		if !podutil.IsPodTerminal(pod) {
			i.users.patchObject(ctx, pod, failed, "status")
		}
		i.users.deleteObject(ctx, pod, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	}
}
