package gang

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
)

// watch registers what the plugin learns from the cluster: its members, and what
// describes them.
func (pl *Gang) watch(ctx context.Context) error {
	factory := pl.handle.SharedInformerFactory()
	pods := factory.Core().V1().Pods().Informer()
	registration, err := pods.AddEventHandler(pl.watches.Shared(pl.watchName("pods"), pods, pl.podHandlers(ctx)))
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	pl.synced = append(pl.synced, registration.HasSynced)
	if err := pl.watchSucceeded(ctx); err != nil {
		return err
	}
	return pl.watchGroups(ctx)
}

// watchName is what a watch is called before those who run the scheduler.
func (pl *Gang) watchName(what string) string {
	return what + " in the gangs of profile " + pl.handle.ProfileName()
}

func (pl *Gang) podHandlers(ctx context.Context) cache.ResourceEventHandlerFuncs {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { pl.podSeen(ctx, nil, object.(*v1.Pod)) },
		UpdateFunc: func(old, object any) { pl.podChanged(ctx, old.(*v1.Pod), object.(*v1.Pod)) },
		DeleteFunc: func(object any) { pl.podGone(ctx, object) },
	}
}

// podChanged takes in a new version of a pod, or another pod of its name: a watch that was
// interrupted does not tell of the end of the one before.
func (pl *Gang) podChanged(ctx context.Context, old, pod *v1.Pod) {
	if old.UID != pod.UID {
		pl.podGone(ctx, old)
		old = nil
	}
	pl.podSeen(ctx, old, pod)
}

func (pl *Gang) podSeen(ctx context.Context, old, pod *v1.Pod) {
	if pod.Spec.SchedulerName != pl.handle.ProfileName() {
		pl.Explain(pl.strangers.see(pod))
		return
	}
	if pl.outside(pod) && (old == nil || pl.outside(old)) {
		return
	}
	pl.input(ctx, func(s *gang.Gangs, now time.Time) gang.Effects { return s.See(pod, now) })
	if pod.Spec.NodeName != "" {
		pl.holds.Bound(pod.UID, pod.Spec.NodeName) // also what its plan gave back just now
	}
}

func (pl *Gang) podGone(ctx context.Context, object any) {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	pod, ok := object.(*v1.Pod)
	if !ok {
		return
	}
	if pod.Spec.SchedulerName != pl.handle.ProfileName() {
		pl.Explain(pl.strangers.gone(pod.UID))
		return
	}
	pl.tell.problems.forget(pod.UID)
	if pl.outside(pod) {
		return
	}
	pl.input(ctx, func(s *gang.Gangs, now time.Time) gang.Effects { return s.Gone(pod.UID, now) })
	pl.holds.DropNomination(pod.UID) // also what its plan gave back just now
}

// watchSucceeded watches members that ran to success: kube-scheduler's own
// informer leaves out pods that have ended, and does not say how they did. Only
// what tells the gang is kept of them.
func (pl *Gang) watchSucceeded(ctx context.Context) error {
	selector := fields.OneTermEqualSelector("status.phase", string(v1.PodSucceeded)).String()
	informer := coreinformers.NewFilteredPodInformer(pl.handle.ClientSet(), metav1.NamespaceAll, 0, cache.Indexers{},
		func(options *metav1.ListOptions) { options.FieldSelector = selector })
	if err := informer.SetTransform(keepMembership); err != nil {
		return fmt.Errorf("watching pods that succeeded: %w", err)
	}
	registration, err := informer.AddEventHandler(pl.watches.Own(pl.watchName("pods that succeeded"), v1.SchemeGroupVersion.WithResource("pods"), selector, informer, pl.succeeded(ctx)))
	if err != nil {
		return fmt.Errorf("watching pods that succeeded: %w", err)
	}
	pl.synced = append(pl.synced, registration.HasSynced)
	go informer.RunWithContext(ctx)
	return nil
}

// succeeded takes in members that ran to success.
func (pl *Gang) succeeded(ctx context.Context) cache.ResourceEventHandlerFuncs {
	mine := func(object any) (*v1.Pod, bool) {
		if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = unknown.Obj
		}
		pod, ok := object.(*v1.Pod)
		return pod, ok && pod.Spec.SchedulerName == pl.handle.ProfileName() && !pl.outside(pod)
	}
	add := func(object any) {
		if pod, ok := mine(object); ok {
			pl.input(ctx, func(s *gang.Gangs, now time.Time) gang.Effects { return s.Succeeded(pod, now) })
		}
	}
	forget := func(object any) {
		if pod, ok := mine(object); ok {
			pl.input(ctx, func(s *gang.Gangs, now time.Time) gang.Effects { return s.ForgetSucceeded(pod, now) })
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: add, DeleteFunc: forget,
		UpdateFunc: func(old, object any) {
			if before, ok := mine(old); ok && !isSame(before, object) {
				forget(old) // another pod of its name
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
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, OwnerReferences: pod.OwnerReferences},
		Spec:       v1.PodSpec{NodeName: pod.Spec.NodeName, SchedulerName: pod.Spec.SchedulerName, SchedulingGroup: pod.Spec.SchedulingGroup},
		Status:     v1.PodStatus{Phase: pod.Status.Phase},
	}
	if _, _, member := gang.KeyOf(pod); member {
		kept.Labels, kept.Annotations = pod.Labels, pod.Annotations
		if end := gang.EndOf(pod); !end.IsZero() {
			kept.Status.ContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: metav1.NewTime(end)}}}}
		}
	}
	return kept, nil
}
