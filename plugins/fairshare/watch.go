package fairshare

import (
	"context"
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/framework/watches"
	"github.com/lockstep-sh/lockstep/pkg/kube/crds"
	"github.com/lockstep-sh/lockstep/pkg/kube/leadership"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate/evictionrecord"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/pools"
)

// watch starts the watches of nodes and other capacity, of pods, and of queues.
func (d *Dispatcher) watch(ctx context.Context, handle fwk.Handle) error {
	factory := handle.SharedInformerFactory()
	d.namespaces = factory.Core().V1().Namespaces().Lister()
	d.pods = factory.Core().V1().Pods().Lister()
	d.nodeLister = factory.Core().V1().Nodes().Lister()
	d.gangs.OnMove(d.gangMoved)
	namespaces, err := d.listen("namespaces", factory.Core().V1().Namespaces().Informer(), cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { d.namespaceSeen(&v1.Namespace{}, object.(*v1.Namespace)) },
		UpdateFunc: func(before, object any) { d.namespaceSeen(before.(*v1.Namespace), object.(*v1.Namespace)) },
	})
	if err != nil {
		return fmt.Errorf("watching namespaces: %w", err)
	}
	pods, err := d.watches.ListenToPods(factory, watches.Shares, watches.PodListener{
		Seen: func(_, pod *v1.Pod) { d.podSeen(pod) },
		Gone: d.podEnded,
	})
	if err != nil {
		return err
	}
	nodes, err := d.listen("nodes", factory.Core().V1().Nodes().Informer(), handlerOf(d.nodeSeen, d.nodeGone))
	if err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	ofDevices, err := d.watchDevices(factory)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(handle.KubeConfig())
	if err != nil {
		return fmt.Errorf("making a client for queues: %w", err)
	}
	queues := dynamicinformer.NewDynamicSharedInformerFactory(client, 0).ForResource(v1alpha1.QueueResource).Informer()
	handler := d.watches.Own("queues", v1alpha1.QueueResource, "", queues, handlerOf(
		func(queue *unstructured.Unstructured) { d.queueSeen(ctx, queue) },
		func(queue *unstructured.Unstructured) { d.change(func() { d.queueGone(queue.GetName()) }) },
	))
	served := crds.WhenServed(ctx, handle.ClientSet().Discovery(), v1alpha1.QueueResource, queues, handler)
	go d.open(ctx, append(ofDevices, pods, nodes.HasSynced, namespaces.HasSynced, d.gangs.Synced, served)...)
	return nil
}

// listen registers a handler at an informer that the whole scheduler shares.
func (d *Dispatcher) listen(what string, informer cache.SharedIndexInformer,
	handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return informer.AddEventHandler(d.watches.Shared(what+" in the shares of queues", informer, handler))
}

// Open makes turns begin once everything that exists has been seen. It returns true when they may, and false when ctx
// is done: they begin later then. Where no profile has queues, it waits for nothing.
//
// The leading process calls it once, when all other waiting pods are known and before it takes the first pod.
func (d *Dispatcher) Open(ctx context.Context) bool {
	close(d.mayOpen)
	d.mu.Lock()
	served := len(d.served) > 0
	d.mu.Unlock()
	if !served {
		return true
	}
	select {
	case <-d.begun:
		return true
	case <-ctx.Done():
		return false
	}
}

// open begins to admit once everything that exists has been seen: with half of the queues, the
// shares would be wrong.
func (d *Dispatcher) open(ctx context.Context, synced ...cache.InformerSynced) {
	// In a standby process, turns would pass without effect.
	if leadership.Signal(d.mayOpen).Wait(ctx) && cache.WaitForCacheSync(ctx.Done(), synced...) {
		d.change(func() { d.opened = true })
		close(d.begun)
	}
}

// change changes the capacity, or the queues, and makes somebody ask whose turn it is then.
func (d *Dispatcher) change(do func()) {
	defer d.lock()()
	do()
	d.book.SetTotal(d.nodes.Total())
	d.changed()
}

func (d *Dispatcher) nodeSeen(node *v1.Node) {
	d.change(func() { d.setNode(node) })
}

// setNode adds or updates a node. What runs there is in its pool.
func (d *Dispatcher) setNode(node *v1.Node) {
	d.moveAll(d.usage.SetNode(d.devices.WithDevices(node)))
}

func (d *Dispatcher) nodeGone(node *v1.Node) {
	d.change(func() { d.moveAll(d.usage.DropNode(node.Name)) })
}

func (d *Dispatcher) podSeen(pod *v1.Pod) {
	if objectstate.HasEnded(pod) {
		d.podEnded(pod)
		return
	}
	defer d.lock()()
	switch {
	case !d.served[pod.Spec.SchedulerName]:
		if pod.Spec.NodeName != "" && d.usage.SetForeign(pod) { // what it has is not there to be shared
			d.changed()
		}
		return
	case d.isWithdrawn(pod):
		d.drop(pod.UID)
		d.changed()
		return
	case len(pod.Spec.SchedulingGates) > 0:
		return // it asks for nothing yet
	case gangspec.CheckPod(pod) != nil:
		d.podRefused(pod) // it may have been resized
		return
	}
	now := d.schedulablePod(pod)
	if now == nil {
		return // the event that removes it follows
	}
	if now.Spec.NodeName != "" {
		delete(d.assumed, pod.UID)
	}
	before, known := d.book.Counted(string(pod.UID))
	d.recount(now)
	after, _ := d.book.Counted(string(pod.UID))
	if known && !after.Equal(before) {
		d.reenter(after.Job) // in another queue, or with another request, or elsewhere
	}
	if known && after.Queue != before.Queue || after.Promised && !before.Promised {
		d.changed() // it may wait
	}
}

func (d *Dispatcher) podGone(pod *v1.Pod) {
	defer d.lock()()
	d.drop(pod.UID)
	d.changed()
}

// podEnded counts a pod no more that has ended. One that has a node counts until the scheduler's cache no longer has it
// there, see Left: otherwise a job could be let in for its room before those that come first have heard of it.
func (d *Dispatcher) podEnded(pod *v1.Pod) {
	if pod.Spec.NodeName == "" {
		d.podGone(pod)
		return
	}
	defer d.lock()()
	d.ended = append(d.ended, pod)
}

// dropEnded stops counting pods that had ended when it was last called, and of which the scheduler's cache has said
// nothing since.
func (d *Dispatcher) dropEnded() {
	defer d.lock()()
	for _, pod := range d.overdue {
		if d.existingPod(pod) == nil {
			d.drop(pod.UID)
		}
	}
	d.overdue, d.ended = d.ended, nil
}

// Left stops counting a pod that has ended, once the scheduler's cache has taken it off its node.
func (d *Dispatcher) Left(pod *v1.Pod) {
	if d.pods == nil {
		return // no profile has queues
	}
	unlock := d.lock()
	gone := d.existingPod(pod) == nil
	unlock()
	if gone {
		d.podGone(pod)
	}
}

// podRefused counts a pod no more that has come to ask for what no pod can have. If it has a node it counts there once
// it is bound, or asks for less. The lock is held.
func (d *Dispatcher) podRefused(pod *v1.Pod) {
	node, reserved := d.assumed[pod.UID]
	if d.drop(pod.UID); reserved {
		d.assumed[pod.UID] = node
	}
}

// drop ends all that is known of a pod. The lock is held.
func (d *Dispatcher) drop(uid types.UID) {
	delete(d.assumed, uid)
	delete(d.places, uid)
	before, _ := d.usage.Pod(uid)
	d.naming.Move(uid, nameOf(before.Object), "")
	d.usage.Drop(uid)
	d.do(d.book.PodEnded(string(uid), d.moment()))
}

// gangMoved counts the pods that name a gang again whose PodGroup says something else, and notes what the gang had if
// it was evicted.
func (d *Dispatcher) gangMoved(profile string, key gangspec.Key) {
	evicted := evictionrecord.Read(d.gangs.PodGroups(profile, key).Facts().Evicted)
	if evicted.Scheduler != profile {
		evicted = evictionrecord.Record{}
	}
	d.change(func() {
		d.moveAll(maps.Clone(d.naming[key.In(profile)]))
		d.book.SetEvicted(key.In(profile), evicted, d.clock.Now())
	})
}

// namespaceSeen moves the pods of a namespace that names another queue than before.
func (d *Dispatcher) namespaceSeen(before, now *v1.Namespace) {
	if before.Annotations[v1alpha1.QueueLabel] == now.Annotations[v1alpha1.QueueLabel] {
		return
	}
	d.change(func() {
		pods, _ := d.pods.Pods(now.Name).List(labels.Everything()) // it never fails
		uids := map[types.UID]bool{}
		for _, pod := range pods {
			uids[pod.UID] = true
		}
		d.moveAll(uids)
		d.usage.RecountHeld(now.Name)
	})
}

func (d *Dispatcher) queueSeen(ctx context.Context, raw *unstructured.Unstructured) {
	q := &v1alpha1.Queue{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, q); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to read a queue; what was known of it stays", "queue", raw.GetName())
		return
	}
	d.change(func() { d.setQueue(pools.Queue(q)) })
}

// setQueue describes a queue. One that is open now may have what its jobs ask for.
func (d *Dispatcher) setQueue(q queueing.Queue) {
	if d.book.SetQueues(q) {
		d.recheck()
	}
}

// queueGone removes a queue; the default queue is as if it had not been described.
func (d *Dispatcher) queueGone(name string) {
	if name == v1alpha1.DefaultQueue {
		d.setQueue(queueing.Queue{Name: name, Weight: 1})
		return
	}
	d.book.RemoveQueue(name)
}
