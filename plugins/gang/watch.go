package gang

import (
	"context"
	"fmt"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/features"

	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
)

// watch registers what the plugin learns from the cluster: its members, what
// describes them, and whatever may help a gang that does not fit.
func (pl *Gang) watch(ctx context.Context) error {
	factory := pl.handle.SharedInformerFactory()
	pods := factory.Core().V1().Pods().Informer()
	registration, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { pl.podSeen(ctx, nil, object.(*v1.Pod)) },
		UpdateFunc: func(old, object any) { pl.podSeen(ctx, old.(*v1.Pod), object.(*v1.Pod)) },
		DeleteFunc: func(object any) { pl.podGone(ctx, object) },
	})
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	pl.synced = append(pl.synced, registration.HasSynced)
	if _, err := factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { pl.changed() },
		UpdateFunc: func(old, object any) {
			if helps(old.(*v1.Node), object.(*v1.Node)) {
				pl.changed()
			}
		},
		DeleteFunc: func(any) { pl.changed() },
	}); err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	rare := []cache.SharedIndexInformer{
		factory.Core().V1().PersistentVolumeClaims().Informer(), factory.Core().V1().PersistentVolumes().Informer(),
		factory.Storage().V1().StorageClasses().Informer(), factory.Storage().V1().CSINodes().Informer(),
	}
	if utilfeature.DefaultFeatureGate.Enabled(features.DynamicResourceAllocation) {
		rare = append(rare, factory.Resource().V1().ResourceClaims().Informer(), factory.Resource().V1().ResourceSlices().Informer())
	}
	for _, informer := range rare {
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { pl.changed() }, UpdateFunc: func(any, any) { pl.changed() }, DeleteFunc: func(any) { pl.changed() },
		}); err != nil {
			return fmt.Errorf("watching volumes and devices: %w", err)
		}
	}
	if err := pl.watchSucceeded(ctx); err != nil {
		return err
	}
	return pl.watchGroups(ctx)
}

// changed notes something that may help a gang that does not fit. It is noted
// again a little later: the scheduler's cache hears of it on a goroutine of its
// own, and an attempt in between counts it as seen without having seen it.
func (pl *Gang) changed() {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	pl.noteChange()
}

// noteChange is changed for callers that have the lock.
func (pl *Gang) noteChange() {
	pl.gangs.Changed()
	if pl.echoAt.IsZero() {
		pl.echoAt = pl.clock.Now().Add(echoAfter)
	}
}

// echoAfter is much longer than the scheduler's cache is behind the informers.
const echoAfter = 500 * time.Millisecond

// echo notes changes again. It runs under the lock.
func (pl *Gang) echo(now time.Time) {
	if !pl.echoAt.IsZero() && !now.Before(pl.echoAt) {
		pl.echoAt = time.Time{}
		pl.gangs.Changed()
	}
}

// helps tells whether a change of a node may let a pod fit that did not.
func helps(old, node *v1.Node) bool {
	return old.Spec.Unschedulable != node.Spec.Unschedulable ||
		!maps.Equal(old.Labels, node.Labels) ||
		!equality.Semantic.DeepEqual(old.Spec.Taints, node.Spec.Taints) ||
		!equality.Semantic.DeepEqual(old.Status.Allocatable, node.Status.Allocatable)
}

func (pl *Gang) podSeen(ctx context.Context, old, pod *v1.Pod) {
	assigned := pod.Spec.NodeName != ""
	switch {
	case assigned && pl.affine.Load() && (old == nil || old.Spec.NodeName == "" || !maps.Equal(old.Labels, pod.Labels)):
		pl.changed()
	case assigned && old != nil && resized(old, pod):
		pl.changed()
	}
	if pod.Spec.SchedulerName != pl.handle.ProfileName() {
		return
	}
	if pl.outside(pod) && (old == nil || pl.outside(old)) {
		return
	}
	pl.input(ctx, func(s *gang.Gangs, now time.Time) gang.Effects { return s.See(pod, now) })
}

// resized tells whether the containers of a running pod may take less now.
func resized(old, pod *v1.Pod) bool {
	if old.Generation == pod.Generation && old.Status.ObservedGeneration == pod.Status.ObservedGeneration {
		return false
	}
	for i := range pod.Spec.Containers {
		if i >= len(old.Spec.Containers) || !equality.Semantic.DeepEqual(old.Spec.Containers[i].Resources, pod.Spec.Containers[i].Resources) {
			return true
		}
	}
	return false
}

func (pl *Gang) podGone(ctx context.Context, object any) {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	pod, ok := object.(*v1.Pod)
	if !ok {
		return
	}
	if pod.Spec.NodeName != "" {
		pl.changed()
	}
	if pod.Spec.SchedulerName != pl.handle.ProfileName() {
		return
	}
	pl.tell.forgetPod(pod.UID)
	if pl.outside(pod) {
		return
	}
	pl.input(ctx, func(s *gang.Gangs, now time.Time) gang.Effects { return s.Gone(pod.UID, now) })
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
	mine := func(object any) (*v1.Pod, bool) {
		if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = unknown.Obj
		}
		pod, ok := object.(*v1.Pod)
		return pod, ok && pod.Spec.SchedulerName == pl.handle.ProfileName() && !pl.outside(pod)
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			if pod, ok := mine(object); ok {
				pl.input(ctx, func(s *gang.Gangs, now time.Time) gang.Effects { return s.Succeeded(pod, now) })
			}
		},
		DeleteFunc: func(object any) {
			if pod, ok := mine(object); ok {
				pl.input(ctx, func(s *gang.Gangs, now time.Time) gang.Effects { return s.ForgetSucceeded(pod, now) })
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watching pods that succeeded: %w", err)
	}
	pl.synced = append(pl.synced, registration.HasSynced)
	go informer.RunWithContext(ctx)
	return nil
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
