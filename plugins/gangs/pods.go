package gangs

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/watches"
)

// watch starts the watches of members, and of what describes them.
func (r *Registry) watch(ctx context.Context, handle fwk.Handle) error {
	pods := handle.SharedInformerFactory().Core().V1().Pods().Informer()
	registration, err := pods.AddEventHandler(r.watches.Shared("pods in gangs", pods, r.podHandlers(ctx)))
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	r.synced = append(r.synced, registration.HasSynced)
	if err := r.watchSucceeded(ctx, handle); err != nil {
		return err
	}
	return r.watchGroups(ctx, handle)
}

func (r *Registry) podHandlers(ctx context.Context) cache.ResourceEventHandlerFuncs {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { r.podSeen(ctx, nil, object.(*v1.Pod)) },
		UpdateFunc: func(old, object any) { r.podSeen(ctx, old.(*v1.Pod), object.(*v1.Pod)) },
		DeleteFunc: watches.Deleted(func(pod *v1.Pod) { r.podGone(ctx, pod) }),
	}
}

func (r *Registry) podSeen(ctx context.Context, old, pod *v1.Pod) {
	r.explainToOthers(ctx, pod, r.strangers.see(pod))
	p := r.all()[pod.Spec.SchedulerName]
	if p == nil {
		return
	}
	if r.Outside(pod) && (old == nil || r.Outside(old)) {
		p.tellNative(ctx, pod)
		p.tellInVain(ctx, old, pod)
		return
	}
	p.Input(ctx, func(s *gang.Gangs, now time.Time) gang.Effects { return s.See(pod, now) })
	if pod.Spec.NodeName != "" {
		r.holds.Bound(pod.UID, pod.Spec.NodeName) // also what its plan has just given back
	}
}

// tellInVain reports a pod that asks to be in the gang of its owner, and is in none.
func (p *Profile) tellInVain(ctx context.Context, old, pod *v1.Pod) {
	if pod.Spec.NodeName != "" || old != nil && old.Annotations[v1alpha1.GangAnnotation] == pod.Annotations[v1alpha1.GangAnnotation] {
		return
	}
	if problem := gang.AskedInVain(pod); problem != nil {
		p.adapter.Act(ctx, gang.Effects{Problems: []gang.Report{{Pod: pod, Problem: *problem}}})
	}
}

func (r *Registry) podGone(ctx context.Context, pod *v1.Pod) {
	r.explainToOthers(ctx, pod, r.strangers.gone(pod.UID))
	p := r.all()[pod.Spec.SchedulerName]
	if p == nil {
		return
	}
	p.adapter.Gone(pod.UID)
	if r.Outside(pod) {
		return
	}
	p.Input(ctx, func(s *gang.Gangs, now time.Time) gang.Effects { return s.Gone(pod.UID, now) })
	r.holds.DropNomination(pod.UID) // also what its plan has just given back
}

// explainToOthers makes the other profiles report to the users of gangs that they have more or fewer
// pods which name another scheduler.
func (r *Registry) explainToOthers(ctx context.Context, pod *v1.Pod, changed []gang.Key) {
	for name := range r.all() {
		if len(changed) > 0 && name != pod.Spec.SchedulerName {
			r.Explain(ctx, name, changed)
		}
	}
}

// watchSucceeded watches members with phase Succeeded: kube-scheduler's own
// informer leaves out pods that have ended, and does not show how they did. Only
// what matters to the gang is kept of them.
func (r *Registry) watchSucceeded(ctx context.Context, handle fwk.Handle) error {
	selector := fields.OneTermEqualSelector("status.phase", string(v1.PodSucceeded)).String()
	informer := coreinformers.NewFilteredPodInformer(handle.ClientSet(), metav1.NamespaceAll, 0, cache.Indexers{},
		func(options *metav1.ListOptions) { options.FieldSelector = selector })
	if err := informer.SetTransform(keepMembership); err != nil {
		return fmt.Errorf("watching pods that succeeded: %w", err)
	}
	registration, err := informer.AddEventHandler(r.watches.Own("pods that succeeded", v1.SchemeGroupVersion.WithResource("pods"), selector, informer, r.succeeded(ctx)))
	if err != nil {
		return fmt.Errorf("watching pods that succeeded: %w", err)
	}
	r.synced = append(r.synced, registration.HasSynced)
	go informer.RunWithContext(ctx)
	return nil
}

// succeeded returns handlers that pass on members with phase Succeeded.
func (r *Registry) succeeded(ctx context.Context) cache.ResourceEventHandlerFuncs {
	member := func(object any) (*Profile, *v1.Pod) {
		if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = unknown.Obj
		}
		pod, ok := object.(*v1.Pod)
		if !ok || r.Outside(pod) {
			return nil, nil
		}
		return r.all()[pod.Spec.SchedulerName], pod
	}
	add := func(object any) {
		if p, pod := member(object); p != nil {
			p.Input(ctx, func(s *gang.Gangs, now time.Time) gang.Effects { return s.Succeeded(pod, now) })
		}
	}
	forget := func(object any) {
		if p, pod := member(object); p != nil {
			p.Input(ctx, func(s *gang.Gangs, now time.Time) gang.Effects { return s.ForgetSucceeded(pod, now) })
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: add, DeleteFunc: forget,
		UpdateFunc: func(old, object any) {
			if before, ok := old.(*v1.Pod); ok && !isSame(before, object) {
				forget(old) // it was another pod of its name
			}
			add(object) // it may have changed its gang
		},
	}
}

func isSame(pod *v1.Pod, object any) bool {
	other, ok := object.(*v1.Pod)
	return ok && other.UID == pod.UID
}

func keepMembership(object any) (any, error) {
	pod, ok := object.(*v1.Pod)
	if !ok {
		return object, nil
	}
	kept := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, OwnerReferences: pod.OwnerReferences,
			CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp, Finalizers: pod.Finalizers,
		},
		Spec:   v1.PodSpec{NodeName: pod.Spec.NodeName, SchedulerName: pod.Spec.SchedulerName, SchedulingGroup: pod.Spec.SchedulingGroup},
		Status: v1.PodStatus{Phase: pod.Status.Phase},
	}
	if _, _, member := gang.KeyOf(pod); member {
		kept.Labels, kept.Annotations = pod.Labels, pod.Annotations
		if end := gang.EndOf(pod); !end.IsZero() {
			kept.Status.ContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: metav1.NewTime(end)}}}}
		}
	}
	return kept, nil
}
