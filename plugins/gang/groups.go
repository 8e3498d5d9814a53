package gang

import (
	"context"
	"fmt"
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
	community := v1alpha1.SchemeGroupVersion.WithResource("podgroups")
	go pl.whenServed(ctx, community, func() cache.SharedIndexInformer {
		return pginformers.NewSharedInformerFactory(client, 0).Scheduling().V1alpha1().PodGroups().Informer()
	}, gang.Community)
	if pl.leaveNative {
		return nil
	}
	native := schedulingv1beta1.SchemeGroupVersion.WithResource("podgroups")
	go pl.whenServed(ctx, native, func() cache.SharedIndexInformer {
		return informers.NewSharedInformerFactory(pl.handle.ClientSet(), 0).Scheduling().V1beta1().PodGroups().Informer()
	}, gang.Native)
	return nil
}

// whenServed starts an informer once the API server serves its resource.
func (pl *Gang) whenServed(ctx context.Context, resource schema.GroupVersionResource, make func() cache.SharedIndexInformer, kind gang.Kind) {
	logger := klog.FromContext(ctx)
	told := false
	err := wait.PollUntilContextCancel(ctx, lookForCRDs, true, func(context.Context) (bool, error) {
		ok, err := served(pl.handle.ClientSet().Discovery(), resource)
		if err != nil {
			logger.Error(err, "Failed to ask whether a kind of PodGroup is served; asking again", "resource", resource)
			return false, nil
		}
		if !ok && !told && kind == gang.Community {
			told = true
			logger.Info("PodGroups are not served; gangs by annotation work, and PodGroups will be picked up when their CRD is installed", "resource", resource)
		}
		return ok, nil
	})
	if err != nil {
		return // the scheduler is going down
	}
	informer := make()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { pl.groupSeen(ctx, kind, object) },
		UpdateFunc: func(_, object any) { pl.groupSeen(ctx, kind, object) },
		DeleteFunc: func(object any) { pl.groupGone(ctx, kind, object) },
	}); err != nil {
		logger.Error(err, "Failed to watch PodGroups", "resource", resource)
		return
	}
	logger.Info("Watching PodGroups", "resource", resource, "profile", pl.handle.ProfileName())
	informer.RunWithContext(ctx)
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
	said := &gang.Object{Annotations: meta.GetAnnotations()}
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
