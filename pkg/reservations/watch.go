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
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/framework/watches"
	"github.com/lockstep-sh/lockstep/pkg/kube/crds"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/reservations/reservepods"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate"
)

// watch watches the Reservations and the pods that use them, and starts the workers. The API server may not serve
// Reservations yet.
func (r *Registry) watch(ctx context.Context, handle fwk.Handle) error {
	factory := handle.SharedInformerFactory()
	r.client, r.nodes = handle.ClientSet(), factory.Core().V1().Nodes().Lister()
	if _, err := r.watches.ListenToPods(factory, watches.Reservations,
		watches.PodListener{Seen: r.podChanged, Gone: r.podEnded}); err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(handle.KubeConfig())
	if err != nil {
		return fmt.Errorf("making a client for Reservations: %w", err)
	}
	r.statuses = client.Resource(v1alpha1.ReservationResource)
	informer := dynamicinformer.NewDynamicSharedInformerFactory(client,
		0).ForResource(v1alpha1.ReservationResource).Informer()
	if err := informer.SetTransform(slim); err != nil {
		return fmt.Errorf("watching Reservations: %w", err)
	}
	handler := r.watches.Own("Reservations", v1alpha1.ReservationResource, "", informer, cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { r.reservationChanged(ctx, object) },
		UpdateFunc: func(_, object any) { r.reservationChanged(ctx, object) }, // it may be another one of the name
		DeleteFunc: watches.Deleted(func(gone metav1.Object) { r.reservationDeleted(gone.GetName()) }),
	})
	crds.WhenServed(ctx, handle.ClientSet().Discovery(), v1alpha1.ReservationResource, informer, handler)
	go r.run(ctx)
	return nil
}

// reservationChanged processes a Reservation.
func (r *Registry) reservationChanged(ctx context.Context, object any) {
	now, err := typed(object)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to read a Reservation; going on with what is known of it")
		return
	}
	r.Update(now)
	r.work.Add(now.Name)
}

// slim converts what is listed to the typed object, without managed fields, so that the unstructured maps are not kept.
// What cannot be converted stays as it is.
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

// podChanged processes a new version of a pod.
func (r *Registry) podChanged(before, now *v1.Pod) {
	if reservepods.IsReservePod(now) {
		r.reservePodChanged(now)
		return
	}
	if before != nil && now.Spec.NodeName == "" &&
		(before.Annotations[v1alpha1.ReservationAnnotation] != now.Annotations[v1alpha1.ReservationAnnotation] ||
			!maps.Equal(before.Labels, now.Labels) && !r.Empty()) {
		r.holds.ReportFreed("") // it may use something else now
	}
	r.userChanged(now)
}

// podEnded processes that a pod is gone, or will never run again. A pod that is being bound returns what it uses once
// the result of its binding is known.
func (r *Registry) podEnded(pod *v1.Pod) {
	if reservepods.IsReservePod(pod) {
		r.reservePodDeleted(pod)
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
		r.Release(pod)
	}
}

// userChanged processes a pod that may have an allocation annotation.
func (r *Registry) userChanged(pod *v1.Pod) {
	if objectstate.HasEnded(pod) {
		r.podEnded(pod)
		return
	}
	a, ok := reservationstate.AllocationOf(pod)
	if !ok || pod.Spec.NodeName == "" {
		return
	}
	r.podRuns(&user{Allocation: a, pod: pod.UID, namespace: pod.Namespace, node: pod.Spec.NodeName,
		demand: ledger.DemandOf(&framework.PodInfo{Pod: pod}), bound: true}, nil)
}

// podRuns records that a pod is on its node, and what it uses there; with was, the previous user, only if the pod still
// is that user.
func (r *Registry) podRuns(u, was *user) {
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
	r.addUser(u)
	p := r.places[id]
	if p != nil && !u.runsOn(p.entry.object, p.node) {
		p = nil // another's: anyone may write the annotation
	}
	spent := p != nil && reservationstate.IsSingleUse(p.entry.object) && (p.by == "" || p.by == u.pod)
	if spent {
		p.by = u.pod
		p.entry.recordUse(p.index, p.node, r.clock.Now())
		delete(p.entry.places, p.index)
		r.removePlace(id)
		r.held.Store(int64(len(r.places)))
	}
	r.mu.Unlock()
	switch {
	case spent:
		r.releasePlacement(id) // what the pod leaves is free
		r.work.AddAfter(u.Name, writeDelay)
	case p != nil:
		if known != nil && !same {
			r.takePart(u) // it was resized: another part replaces its part
		}
		r.consumePlace(p)
		r.toCharge.Add(u.Name)
	}
}
