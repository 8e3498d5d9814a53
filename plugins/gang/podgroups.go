package gang

import (
	"context"
	"fmt"
	"time"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	pgclientset "sigs.k8s.io/scheduler-plugins/pkg/generated/clientset/versioned"
	pginformers "sigs.k8s.io/scheduler-plugins/pkg/generated/informers/externalversions"

	lockstepv1alpha1 "github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/crd"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
)

// watchGroups watches the PodGroups of both kinds, each from when the API server
// serves it. Gangs by annotation need neither.
func (pl *Gang) watchGroups(ctx context.Context) error {
	client, err := pgclientset.NewForConfig(pl.handle.KubeConfig())
	if err != nil {
		return fmt.Errorf("making a client for PodGroups: %w", err)
	}
	pl.tell.groups = client
	pl.whenServed(ctx, v1alpha1.SchemeGroupVersion.WithResource("podgroups"), gang.Community,
		pginformers.NewSharedInformerFactory(client, 0).Scheduling().V1alpha1().PodGroups().Informer())
	if !pl.leaveNative {
		pl.whenServed(ctx, schedulingv1beta1.SchemeGroupVersion.WithResource("podgroups"), gang.Native,
			informers.NewSharedInformerFactory(pl.handle.ClientSet(), 0).Scheduling().V1beta1().PodGroups().Informer())
	}
	return nil
}

// whenServed watches a kind of PodGroup. What is there when the scheduler starts is seen
// before any member is let through.
func (pl *Gang) whenServed(ctx context.Context, resource schema.GroupVersionResource, kind gang.Kind, informer cache.SharedIndexInformer) {
	handler := pl.watches.Own(pl.watchName(resource.GroupResource().String()), resource, "", informer, cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { pl.groupSeen(ctx, kind, object) },
		UpdateFunc: func(_, object any) { pl.groupSeen(ctx, kind, object) },
		DeleteFunc: func(object any) { pl.groupGone(ctx, kind, object) },
	})
	pl.synced = append(pl.synced, crd.WhenServed(ctx, pl.handle.ClientSet().Discovery(), resource, informer, handler))
}

func (pl *Gang) groupSeen(ctx context.Context, kind gang.Kind, object any) {
	meta, ok := object.(metav1.Object)
	if !ok {
		return
	}
	said := &gang.Object{UID: meta.GetUID(), Annotations: meta.GetAnnotations(), Queue: meta.GetLabels()[lockstepv1alpha1.QueueLabel]}
	switch group := object.(type) {
	case *v1alpha1.PodGroup:
		said.Min, said.RoundSeconds, said.MinResources = group.Spec.MinMember, group.Spec.ScheduleTimeoutSeconds, group.Spec.MinResources
	case *schedulingv1beta1.PodGroup:
		if policy := group.Spec.SchedulingPolicy.Gang; policy != nil {
			said.Min = policy.MinCount
		} else {
			said.Min = 1 // the basic policy: its pods need not start together
		}
	}
	key := gang.Key{Namespace: meta.GetNamespace(), Name: meta.GetName()}
	pl.describe(ctx, kind, key, said, meta.GetCreationTimestamp().Time)
}

// describe takes in what a PodGroup says of a gang; nil if it is gone.
func (pl *Gang) describe(ctx context.Context, kind gang.Kind, key gang.Key, said *gang.Object, created time.Time) {
	moved := false
	pl.input(ctx, func(s *gang.Gangs, now time.Time) gang.Effects {
		before := s.QueueOf(key)
		effects := s.Describe(kind, key, said, created, now)
		moved = s.QueueOf(key) != before
		return effects
	})
	if moved {
		pl.roster.Moved(pl.handle.ProfileName(), key)
	}
}

func (pl *Gang) groupGone(ctx context.Context, kind gang.Kind, object any) {
	name, err := cache.DeletionHandlingObjectToName(object)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to read which PodGroup was deleted")
		return
	}
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	if meta, ok := object.(metav1.Object); ok {
		pl.tell.problems.forget(meta.GetUID())
	}
	pl.describe(ctx, kind, gang.Key{Namespace: name.Namespace, Name: name.Name}, nil, time.Time{})
}
