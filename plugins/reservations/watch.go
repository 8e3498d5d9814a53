package reservations

import (
	"context"
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	"github.com/lockstep-sh/lockstep/plugins/watches"
)

// watch learns the Reservations and the pods that use them, and begins to work for them. The API server may not serve
// them yet.
func (r *Registry) watch(ctx context.Context, handle fwk.Handle) error {
	factory := handle.SharedInformerFactory()
	r.client, r.nodes = handle.ClientSet(), factory.Core().V1().Nodes().Lister()
	pods := factory.Core().V1().Pods().Informer()
	if _, err := pods.AddEventHandler(r.watches.Shared("pods that use Reservations", pods, cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { r.podSeen(object.(*v1.Pod)) },
		UpdateFunc: func(before, object any) { r.podChanged(before.(*v1.Pod), object.(*v1.Pod)) },
		DeleteFunc: watches.Deleted(r.ended),
	})); err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	client, err := dynamic.NewForConfig(handle.KubeConfig())
	if err != nil {
		return fmt.Errorf("making a client for Reservations: %w", err)
	}
	r.statuses = client.Resource(v1alpha1.ReservationResource)
	informer := dynamicinformer.NewDynamicSharedInformerFactory(client, 0).ForResource(v1alpha1.ReservationResource).Informer()
	if err := informer.SetTransform(slim); err != nil {
		return fmt.Errorf("watching Reservations: %w", err)
	}
	handler := r.watches.Own("Reservations", v1alpha1.ReservationResource, "", informer, cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { r.seen(ctx, object) },
		UpdateFunc: func(_, object any) { r.seen(ctx, object) }, // it may be another one of the name
		DeleteFunc: watches.Deleted(func(gone metav1.Object) { r.gone(gone.GetName()) }),
	})
	crd.WhenServed(ctx, handle.ClientSet().Discovery(), v1alpha1.ReservationResource, informer, handler)
	go r.run(ctx)
	return nil
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

// slim turns what is listed into the typed object, without managed fields, which are not read: the maps that it comes in
// would be kept beside it. What cannot be read stays as it is.
func slim(object any) (any, error) {
	now, err := typed(object)
	if err != nil {
		return object, nil //nolint:nilerr // the handler reports it
	}
	now.ManagedFields = nil
	return now, nil
}

func typed(object any) (*v1alpha1.Reservation, error) {
	if now, ok := object.(*v1alpha1.Reservation); ok {
		return now, nil
	}
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

// podChanged takes in a new version of a pod.
func (r *Registry) podChanged(before, now *v1.Pod) {
	if now.Spec.NodeName == "" && (before.Annotations[v1alpha1.ReservationAnnotation] != now.Annotations[v1alpha1.ReservationAnnotation] ||
		!maps.Equal(before.Labels, now.Labels) && !r.Empty()) {
		r.holds.NoteFreed("") // it may use something else now
	}
	r.podSeen(now)
}

// ended takes in that a pod is gone, or will never run again. A pod that is being bound gives back what it uses when it
// is known what came of its binding.
func (r *Registry) ended(pod *v1.Pod) {
	if reservepods.IsReservePod(pod) {
		return
	}
	r.mu.Lock()
	u := r.users[pod.UID]
	wait := u != nil && !u.bound
	if wait {
		u.gone = true
	}
	r.mu.Unlock()
	if !wait {
		r.Return(pod)
	}
}

// podSeen takes in a pod that may be recorded to use a placement.
func (r *Registry) podSeen(pod *v1.Pod) {
	if podutil.IsPodTerminal(pod) {
		r.ended(pod)
		return
	}
	a, ok := reservation.AllocationOf(pod)
	if !ok || pod.Spec.NodeName == "" || reservepods.IsReservePod(pod) {
		return
	}
	r.runs(&user{Allocation: a, pod: pod.UID, node: pod.Spec.NodeName, demand: holds.DemandOf(&framework.PodInfo{Pod: pod}), bound: true}, nil)
}

// runs takes in that a pod is on its node, and what it uses there. With was, the user before, it does so only if the pod
// still is that user.
func (r *Registry) runs(u, was *user) {
	r.acting.Lock()
	defer r.acting.Unlock()
	id := u.place()
	r.mu.Lock()
	known := r.users[u.pod]
	same := known != nil && maps.Equal(known.demand.Request, u.demand.Request)
	if same && known.bound && known.Allocation == u.Allocation || was != nil && known != was {
		r.mu.Unlock()
		return
	}
	r.note(u)
	p := r.places[id]
	spent := p != nil && p.node == u.node && reservation.Once(p.entry.object) && (p.by == "" || p.by == u.pod)
	if spent {
		p.by = u.pod
		p.entry.use(p.index, p.node, r.clock.Now())
		delete(p.entry.places, p.index)
		r.remove(id)
		r.held.Store(int64(len(r.places)))
	}
	r.mu.Unlock()
	switch {
	case spent:
		r.release(id) // what the pod leaves is free
		r.work.AddAfter(u.Name, untold)
	case p != nil:
		if known != nil && !same {
			r.take(u) // it was resized: another part, in place of the one it had
		}
		r.consume(p)
		r.dues.Add(u.Name)
	}
}
