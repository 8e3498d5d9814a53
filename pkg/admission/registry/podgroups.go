package registry

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
	fwk "k8s.io/kube-scheduler/framework"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	pgclientset "sigs.k8s.io/scheduler-plugins/pkg/generated/clientset/versioned"
	pginformers "sigs.k8s.io/scheduler-plugins/pkg/generated/informers/externalversions"

	"github.com/lockstep-sh/lockstep/pkg/kube/crds"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
)

// watchGroups watches the PodGroups of both kinds, each from when the API server
// serves it. Gangs by annotation need neither.
func (r *Registry) watchGroups(ctx context.Context, handle fwk.Handle) error {
	client, err := pgclientset.NewForConfig(handle.KubeConfig())
	if err != nil {
		return fmt.Errorf("making a client for PodGroups: %w", err)
	}
	r.whenServed(ctx, handle, v1alpha1.SchemeGroupVersion.WithResource("podgroups"), gangspec.Community,
		pginformers.NewSharedInformerFactory(client, 0).Scheduling().V1alpha1().PodGroups().Informer())
	r.whenServed(ctx, handle, schedulingv1beta1.SchemeGroupVersion.WithResource("podgroups"), gangspec.Native,
		informers.NewSharedInformerFactory(handle.ClientSet(), 0).Scheduling().V1beta1().PodGroups().Informer())
	return nil
}

// whenServed watches a kind of PodGroup. Those that exist when the scheduler starts are seen
// before any member is admitted.
func (r *Registry) whenServed(ctx context.Context, handle fwk.Handle, resource schema.GroupVersionResource,
	kind gangspec.Kind, informer cache.SharedIndexInformer) {
	handler := r.watches.Own(resource.GroupResource().String(), resource, "", informer, cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { r.groupSeen(ctx, kind, object) },
		UpdateFunc: func(_, object any) { r.groupSeen(ctx, kind, object) },
		DeleteFunc: func(object any) { r.groupGone(ctx, kind, object) },
	})
	r.synced = append(r.synced, crds.WhenServed(ctx, handle.ClientSet().Discovery(), resource, informer, handler))
}

func (r *Registry) groupSeen(ctx context.Context, kind gangspec.Kind, object any) {
	meta, ok := object.(metav1.Object)
	if !ok {
		return
	}
	key := gangspec.Key{Namespace: meta.GetNamespace(), Name: meta.GetName()}
	switch group := object.(type) {
	case *v1alpha1.PodGroup:
		r.describe(ctx, kind, key, gangspec.ReadPodGroup(group, &group.Spec))
	case *schedulingv1beta1.PodGroup:
		r.describeNative(ctx, key, gangspec.ReadNative(group))
	}
}

// describe passes what a PodGroup defines to the gangs of its name, one in each profile; nil if it
// is gone.
func (r *Registry) describe(ctx context.Context, kind gangspec.Kind, key gangspec.Key,
	said *gangspec.PodGroupDescription) {
	for _, p := range r.all() {
		moved := false
		p.UpdateGangs(ctx, func(s *gangstate.Gangs, now time.Time) gangstate.Effects {
			before := s.PodGroups(key).Facts()
			effects := s.Describe(kind, key, said, now)
			moved = s.PodGroups(key).Facts() != before
			return effects
		})
		if moved {
			r.tellMoved(p.name, key)
		}
	}
}

// tellMoved reports that what a PodGroup says to others has changed for the pods of a profile; see OnMove.
func (r *Registry) tellMoved(profile string, key gangspec.Key) {
	for _, tell := range r.moved {
		tell(profile, key)
	}
}

func (r *Registry) groupGone(ctx context.Context, kind gangspec.Kind, object any) {
	name, err := cache.DeletionHandlingObjectToName(object)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to read which PodGroup was deleted")
		return
	}
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	if meta, ok := object.(metav1.Object); ok {
		for _, p := range r.all() {
			p.adapter.Gone(meta.GetUID())
		}
	}
	key := gangspec.Key{Namespace: name.Namespace, Name: name.Name}
	if kind == gangspec.Native {
		r.describeNative(ctx, key, nil)
	} else {
		r.describe(ctx, kind, key, nil)
	}
}
