package access

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// pageSize is how many objects a request asks for.
const pageSize = 2000

// NotServedError means that a cluster has no such kind.
type NotServedError struct {
	// Resource is what users call it: podgroups.scheduling.x-k8s.io.
	Resource string
}

// Error implements error.
func (e *NotServedError) Error() string { return "the cluster does not serve " + e.Resource }

// IsNotServed reports whether an error means that a cluster has no such kind.
func IsNotServed(err error) bool {
	var notServed *NotServedError
	return errors.As(err, &notServed)
}

// IgnoreNotServed notes that a cluster has no such kind, and returns any other error.
func (a *Access) IgnoreNotServed(err error) error {
	if err = a.Resolve(err); IsNotServed(err) {
		a.Note("%v", err)
		return nil
	}
	return err
}

// Read calls each with every object that a list of type L has, page by page: Read[v1.PodList](...). The objects may be
// kept. It returns a [NotServedError] where the cluster has no such kind, and a [RefusedError] where the user may not
// list it.
func Read[L any, P interface {
	*L
	client.ObjectList
}](ctx context.Context, c client.Client, each func(runtime.Object), options ...client.ListOption) error {
	resource, err := resourceOf(c, P(new(L)))
	if err != nil {
		return err
	}
	name := resource.GroupResource().String()
	for next := ""; ; {
		page := P(new(L))
		err := c.List(ctx, page, append(options, client.Limit(pageSize), client.Continue(next))...)
		switch {
		case apierrors.IsNotFound(err):
			return &NotServedError{Resource: name}
		case apierrors.IsForbidden(err):
			return &RefusedError{Doing: "listing", Resource: resource, Err: err}
		case err != nil:
			return fmt.Errorf("listing %s: %w", name, err)
		}
		if err := meta.EachListItem(page, func(object runtime.Object) error { each(object); return nil }); err != nil {
			return fmt.Errorf("reading the list of %s: %w", name, err)
		}
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}

// All returns all objects that a list of type L has: All[v1.Pod, v1.PodList](...). Of a kind that the cluster does not
// serve there are none, and that is noted.
func All[T any, L any, P interface {
	*L
	client.ObjectList
}](ctx context.Context, a *Access) ([]*T, error) {
	c, err := a.Client()
	if err != nil {
		return nil, err
	}
	var list []*T
	err = a.IgnoreNotServed(Read[L, P](ctx, c, Into(&list)))
	return list, err
}

// Into returns a function that adds what it is called with to a list.
func Into[T any](list *[]T) func(runtime.Object) {
	return func(object runtime.Object) {
		if typed, ok := object.(T); ok {
			*list = append(*list, typed)
		}
	}
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
