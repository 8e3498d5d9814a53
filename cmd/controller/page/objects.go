package page

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/kube/apiobjects"
)

// Objects are what the page is made of.
type Objects struct {
	Pods         []*v1.Pod
	Nodes        []*v1.Node
	Namespaces   []*v1.Namespace
	PodGroups    []*coscheduling.PodGroup
	Natives      []*schedulingv1beta1.PodGroup
	Queues       []*v1alpha1.Queue
	Reservations []*v1alpha1.Reservation
	Plans        []*v1alpha1.DefragmentationPlan
	Migrations   []*v1alpha1.PodMigration
	Slices       []*resourceapi.ResourceSlice
	Classes      []*resourceapi.DeviceClass
	Claims       []*resourceapi.ResourceClaim
	Templates    []*resourceapi.ResourceClaimTemplate
}

// Read lists all objects from a cache. It has none of kinds that the API server does not serve.
func Read(ctx context.Context, reader client.Reader) (Objects, error) {
	var o Objects
	for _, kind := range []struct {
		list client.ObjectList
		add  func(runtime.Object)
	}{
		{&v1.PodList{}, apiobjects.Into(&o.Pods)},
		{&v1.NodeList{}, apiobjects.Into(&o.Nodes)},
		{&v1.NamespaceList{}, apiobjects.Into(&o.Namespaces)},
		{&coscheduling.PodGroupList{}, apiobjects.Into(&o.PodGroups)},
		{&schedulingv1beta1.PodGroupList{}, apiobjects.Into(&o.Natives)},
		{&v1alpha1.QueueList{}, apiobjects.Into(&o.Queues)},
		{&v1alpha1.ReservationList{}, apiobjects.Into(&o.Reservations)},
		{&v1alpha1.DefragmentationPlanList{}, apiobjects.Into(&o.Plans)},
		{&v1alpha1.PodMigrationList{}, apiobjects.Into(&o.Migrations)},
		{&resourceapi.ResourceSliceList{}, apiobjects.Into(&o.Slices)},
		{&resourceapi.DeviceClassList{}, apiobjects.Into(&o.Classes)},
		{&resourceapi.ResourceClaimList{}, apiobjects.Into(&o.Claims)},
		{&resourceapi.ResourceClaimTemplateList{}, apiobjects.Into(&o.Templates)},
	} {
		if err := read(ctx, reader, kind.list, kind.add); err != nil {
			return Objects{}, err
		}
	}
	return o, nil
}

// read lists objects, which belong to the cache: they must not be changed.
func read(ctx context.Context, reader client.Reader, list client.ObjectList, add func(runtime.Object)) error {
	err := reader.List(ctx, list, client.UnsafeDisableDeepCopy)
	if meta.IsNoMatchError(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing objects as %T: %w", list, err)
	}
	if err := meta.EachListItem(list, func(object runtime.Object) error { add(object); return nil }); err != nil {
		return fmt.Errorf("reading a %T: %w", list, err)
	}
	return nil
}
