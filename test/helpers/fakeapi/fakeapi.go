// Package fakeapi has fake API servers for tests of what uses clients of controller-runtime. They have the kinds that
// Lockstep reads and writes, with the status subresources that the CRDs have, and serve both kinds of PodGroups.
package fakeapi

import (
	"context"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/kube/apiobjects"
)

// NativePodGroup is the kind of PodGroups of Kubernetes.
var NativePodGroup = schedulingv1beta1.SchemeGroupVersion.WithKind("PodGroup")

// New returns the builder of a client of an API server with these objects.
func New(objects ...client.Object) *fake.ClientBuilder {
	return fake.NewClientBuilder().WithScheme(apiobjects.Scheme()).WithRESTMapper(Mapper(coscheduling.Kind, NativePodGroup)).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.Reservation{}, &v1alpha1.Queue{}, &v1alpha1.DefragmentationPlan{}, &v1alpha1.PodMigration{}, &coscheduling.PodGroup{})
}

// Mapper returns the mapper of an API server that serves these kinds, which have namespaces.
func Mapper(kinds ...schema.GroupVersionKind) meta.RESTMapper {
	var versions []schema.GroupVersion
	for _, kind := range kinds {
		versions = append(versions, kind.GroupVersion())
	}
	mapper := meta.NewDefaultRESTMapper(versions)
	for _, kind := range kinds {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	return mapper
}

// PodGroup returns a PodGroup of some kind in namespace ns, with a minimum in one of its fields.
func PodGroup(kind schema.GroupVersionKind, name string, minimum int, field ...string) *unstructured.Unstructured {
	group := &unstructured.Unstructured{Object: map[string]any{}}
	group.SetGroupVersionKind(kind)
	group.SetNamespace("ns")
	group.SetName(name)
	if err := unstructured.SetNestedField(group.Object, int64(minimum), field...); err != nil {
		panic(err) // a field of an empty object can always be set
	}
	return group
}

// OnStatusPatch calls a function with each patch of a status before it is carried out.
func OnStatusPatch(patched func(object client.Object, patch string)) interceptor.Funcs {
	return interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, subresource string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
		data, err := patch.Data(object)
		if err != nil {
			return err
		}
		patched(object, string(data))
		return c.SubResource(subresource).Patch(ctx, object, patch, options...)
	}}
}
