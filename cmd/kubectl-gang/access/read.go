package access

import (
	"context"
	"errors"
	"fmt"
	"strings"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/pkg/kube/apiobjects"
)

// pageSize is how many objects a request asks for.
const pageSize = 2000

// ErrNotServed is wrapped by an error which means that a cluster has no such kind.
var ErrNotServed = errors.New("the cluster does not serve")

// IgnoreNotServed notes that a cluster has no such kind, and returns any other error.
func (a *Access) IgnoreNotServed(err error) error {
	if errors.Is(err, ErrNotServed) {
		a.Note("%v", err)
		return nil
	}
	return err
}

// Read calls each with every object of the kind that an empty list is for, page by page. The objects may be kept; they
// come without managedFields, except PodGroups: whether a condition stands depends on who wrote it. Its error wraps
// [ErrNotServed] where the cluster has no such kind, and is Forbidden where the user may not list it.
func (a *Access) Read(ctx context.Context, list client.ObjectList, each func(runtime.Object),
	options ...client.ListOption) error {
	c, err := a.Client()
	if err != nil {
		return err
	}
	resource, err := resourceOf(c, list)
	if err != nil {
		return err
	}
	name := resource.GroupResource().String()
	for next := ""; ; {
		page := list.DeepCopyObject().(client.ObjectList)
		err := c.List(ctx, page, append(options, client.Limit(pageSize), client.Continue(next))...)
		switch {
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err) && a.isUnserved(resource):
			return fmt.Errorf("%w %s", ErrNotServed, name)
		case err != nil:
			return fmt.Errorf("listing %s: %w", name, err)
		}
		err = meta.EachListItem(page, func(object runtime.Object) error {
			switch one := object.(type) {
			case *coscheduling.PodGroup, *schedulingv1beta1.PodGroup:
			case client.Object:
				one.SetManagedFields(nil)
			}
			each(object)
			return nil
		})
		if err != nil {
			return fmt.Errorf("reading the list of %s: %w", name, err)
		}
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}

// isUnserved reports whether a kind that the user may not list does not exist: an API server checks what a user may do
// before it checks what exists. Where that cannot be found out, the refusal stands.
func (a *Access) isUnserved(resource schema.GroupVersionResource) bool {
	served, err := a.served(resource)
	return err == nil && !served
}

// All returns all objects of the kind that an empty list is for. Of a kind that the cluster does not serve there are
// none, and that is noted.
func All[T runtime.Object](ctx context.Context, a *Access, empty client.ObjectList) ([]T, error) {
	var list []T
	err := a.IgnoreNotServed(a.Read(ctx, empty, apiobjects.Into(&list)))
	return list, err
}

// resourceOf returns what the API calls the kind of a list.
func resourceOf(c client.Client, list client.ObjectList) (schema.GroupVersionResource, error) {
	gvk, err := apiutil.GVKForObject(list, c.Scheme())
	if err != nil {
		return schema.GroupVersionResource{}, fmt.Errorf("naming the kind of a list: %w", err)
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	mapping, err := c.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return schema.GroupVersionResource{}, fmt.Errorf("naming the kind of a list: %w", err)
	}
	return mapping.Resource, nil
}
