package access

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// pageSize is how many objects a request asks for.
const pageSize = 2000

// Read calls each with every object that a list of type L has, page by page: Read[v1.PodList](...). What the cluster
// does not serve has no objects, and is noted. The objects may be kept.
func Read[L any, P interface {
	*L
	client.ObjectList
}](ctx context.Context, a *Access, c client.Client, each func(runtime.Object), options ...client.ListOption) error {
	name, err := nameOf(c, P(new(L)))
	if err != nil {
		return err
	}
	for next := ""; ; {
		page := P(new(L))
		err := c.List(ctx, page, append(options, client.Limit(pageSize), client.Continue(next))...)
		if apierrors.IsNotFound(err) {
			a.Note("the cluster does not serve %s", name)
			return nil
		}
		if err != nil {
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

// nameOf is what users call the kind of a list: podgroups.scheduling.x-k8s.io.
func nameOf(c client.Client, list client.ObjectList) (string, error) {
	gvk, err := apiutil.GVKForObject(list, c.Scheme())
	if err != nil {
		return "", fmt.Errorf("naming the kind of a list: %w", err)
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	mapping, err := c.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return "", fmt.Errorf("naming the kind of a list: %w", err)
	}
	return mapping.Resource.GroupResource().String(), nil
}
