package reservations

import (
	"context"
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/crd"
	"github.com/lockstep-sh/lockstep/plugins/holds"
	"github.com/lockstep-sh/lockstep/plugins/internal/reservation"
	"github.com/lockstep-sh/lockstep/plugins/reservepods"
)

// watch learns the Reservations and who uses them, and begins to work for them. The API server
// may not serve them yet.
func (r *Registry) watch(ctx context.Context, handle fwk.Handle) error {
	factory := handle.SharedInformerFactory()
	r.client, r.nodes = handle.ClientSet(), factory.Core().V1().Nodes().Lister()
	pods := factory.Core().V1().Pods().Informer()
	if _, err := pods.AddEventHandler(r.watches.Shared("pods that use Reservations", pods, cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { r.podSeen(object.(*v1.Pod)) },
		UpdateFunc: func(before, object any) { r.podChanged(before.(*v1.Pod), object.(*v1.Pod)) },
		DeleteFunc: func(object any) { withDeleted(object, r.ended) },
	})); err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	client, err := dynamic.NewForConfig(handle.KubeConfig())
	if err != nil {
		return fmt.Errorf("making a client for Reservations: %w", err)
	}
	r.statuses = client.Resource(v1alpha1.ReservationResource)
	informer := dynamicinformer.NewDynamicSharedInformerFactory(client, 0).ForResource(v1alpha1.ReservationResource).Informer()
	r.objects = informer.GetStore()
	handler := r.watches.Own("Reservations", v1alpha1.ReservationResource, "", informer, cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { r.seen(ctx, object) },
		UpdateFunc: func(before, object any) {
			withDeleted(before, func(old *unstructured.Unstructured) {
				if now, ok := object.(*unstructured.Unstructured); ok && now.GetUID() != old.GetUID() {
					r.gone(old.GetName()) // a watch that was interrupted does not tell of its end
				}
			})
			r.seen(ctx, object)
		},
		DeleteFunc: func(object any) {
			withDeleted(object, func(gone *unstructured.Unstructured) { r.gone(gone.GetName()) })
		},
	})
	crd.WhenServed(ctx, handle.ClientSet().Discovery(), v1alpha1.ReservationResource, informer, handler)
	go r.run(ctx)
	return nil
}

// withDeleted calls with the object that was deleted.
func withDeleted[T any](object any, do func(T)) {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	if typed, ok := object.(T); ok {
		do(typed)
	}
}

// seen takes in a Reservation.
func (r *Registry) seen(ctx context.Context, object any) {
	now, err := typed(object)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to read a Reservation; going on with what is known of it")
		return
	}
	r.Learn(now)
	r.work.Add(now.Name)
}

func typed(object any) (*v1alpha1.Reservation, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("reading a Reservation: got a %T", object)
	}
	now := &v1alpha1.Reservation{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, now); err != nil {
		return nil, fmt.Errorf("reading Reservation %q: %w", u.GetName(), err)
	}
	return now, nil
}

// podChanged takes in a new version of a pod, or another pod of its name.
func (r *Registry) podChanged(before, now *v1.Pod) {
	if before.UID != now.UID {
		r.ended(before)
	}
	if now.Spec.NodeName == "" && (before.Annotations[v1alpha1.ReservationAnnotation] != now.Annotations[v1alpha1.ReservationAnnotation] ||
		!maps.Equal(before.Labels, now.Labels) && !r.Empty()) {
		r.holds.NoteFreed("") // it may use something else now
	}
	r.podSeen(now)
}

// ended takes in that a pod is gone, or will never run again.
func (r *Registry) ended(pod *v1.Pod) {
	if !reservepods.IsReservePod(pod) {
		r.Return(pod)
	}
}

// podSeen takes in a pod that says it uses a placement.
func (r *Registry) podSeen(pod *v1.Pod) {
	if podutil.IsPodTerminal(pod) {
		r.ended(pod)
		return
	}
	a, ok := reservation.AllocationOf(pod)
	if !ok || pod.Spec.NodeName == "" || reservepods.IsReservePod(pod) {
		return
	}
	r.acting.Lock()
	defer r.acting.Unlock()
	id := idOf(a.UID, a.Index)
	r.mu.Lock()
	if u := r.users[pod.UID]; u != nil && u.bound && u.Allocation == a {
		r.mu.Unlock()
		return
	}
	r.note(&user{Allocation: a, pod: pod.UID, node: pod.Spec.NodeName, demand: holds.DemandOf(&framework.PodInfo{Pod: pod}), bound: true})
	p := r.places[id]
	spent := p != nil && p.node == pod.Spec.NodeName && reservation.Once(p.entry.object) && (p.by == "" || p.by == pod.UID)
	if spent {
		p.by = pod.UID
		if p.entry.used == nil {
			p.entry.used = map[int32]string{}
		}
		p.entry.used[p.index] = p.node
		delete(p.entry.places, p.index)
		delete(r.places, id)
		r.held.Store(int64(len(r.places)))
	}
	r.mu.Unlock()
	switch {
	case spent:
		r.release(id) // what the pod leaves is free
		r.work.AddAfter(a.Name, untold)
	case p != nil:
		r.consume(p)
		r.dues.Add(a.Name)
	}
}
