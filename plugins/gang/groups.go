package gang

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	pgclientset "sigs.k8s.io/scheduler-plugins/pkg/generated/clientset/versioned"
	pginformers "sigs.k8s.io/scheduler-plugins/pkg/generated/informers/externalversions"

	lockstepv1alpha1 "github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
)

// lookForCRDs is how often a kind of PodGroup that the API server does not serve
// is looked for.
const lookForCRDs = 5 * time.Second

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

// whenServed runs an informer once the API server serves its resource. What is
// there when the scheduler starts is seen before any member is let through.
func (pl *Gang) whenServed(ctx context.Context, resource schema.GroupVersionResource, kind gang.Kind, informer cache.SharedIndexInformer) {
	var first, known atomic.Bool // asked once; nothing more to wait for
	var registration cache.ResourceEventHandlerRegistration
	pl.synced = append(pl.synced, func() bool { return known.Load() || first.Load() && registration.HasSynced() })
	go func() {
		logger := klog.FromContext(ctx)
		err := wait.PollUntilContextCancel(ctx, lookForCRDs, true, func(context.Context) (bool, error) {
			ok, err := served(pl.handle.ClientSet().Discovery(), resource)
			if err != nil {
				logger.Error(err, "Failed to ask whether a kind of PodGroup is served; asking again", "resource", resource)
				return false, nil
			}
			if !ok && known.CompareAndSwap(false, true) && kind == gang.Community {
				logger.Info("PodGroups are not served; gangs by annotation work, and PodGroups will be picked up when their CRD is installed", "resource", resource)
			}
			return ok, nil
		})
		if err != nil {
			return // the scheduler is going down
		}
		registration, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { pl.groupSeen(ctx, kind, object) },
			UpdateFunc: func(_, object any) { pl.groupSeen(ctx, kind, object) },
			DeleteFunc: func(object any) { pl.groupGone(ctx, kind, object) },
		})
		if err != nil {
			logger.Error(err, "Failed to watch PodGroups", "resource", resource)
			known.Store(true)
			return
		}
		first.Store(true)
		logger.Info("Watching PodGroups", "resource", resource, "profile", pl.handle.ProfileName())
		informer.RunWithContext(ctx)
	}()
}

func served(client discovery.DiscoveryInterface, resource schema.GroupVersionResource) (bool, error) {
	list, err := client.ServerResourcesForGroupVersion(resource.GroupVersion().String())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("discovering %s: %w", resource.GroupVersion(), err)
	}
	for _, r := range list.APIResources {
		if r.Name == resource.Resource {
			return true, nil
		}
	}
	return false, nil
}

func (pl *Gang) groupSeen(ctx context.Context, kind gang.Kind, object any) {
	meta, ok := object.(metav1.Object)
	if !ok {
		return
	}
	said := &gang.Object{UID: meta.GetUID(), Annotations: meta.GetAnnotations(), Queue: meta.GetLabels()[lockstepv1alpha1.QueueLabel]}
	switch group := object.(type) {
	case *v1alpha1.PodGroup:
		said.Min, said.WaitSeconds = group.Spec.MinMember, group.Spec.ScheduleTimeoutSeconds
	case *schedulingv1beta1.PodGroup:
		if policy := group.Spec.SchedulingPolicy.Gang; policy != nil {
			said.Min = policy.MinCount
		} else {
			said.Min = 1 // the basic policy: its pods need not start together
		}
	}
	key := gang.Key{Namespace: meta.GetNamespace(), Name: meta.GetName()}
	pl.input(ctx, func(s *gang.Gangs, now time.Time) gang.Effects {
		return s.Describe(kind, key, said, meta.GetCreationTimestamp().Time, now)
	})
}

func (pl *Gang) groupGone(ctx context.Context, kind gang.Kind, object any) {
	name, err := cache.DeletionHandlingObjectToName(object)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to read which PodGroup was deleted")
		return
	}
	key := gang.Key{Namespace: name.Namespace, Name: name.Name}
	pl.input(ctx, func(s *gang.Gangs, now time.Time) gang.Effects { return s.Describe(kind, key, nil, time.Time{}, now) })
}
