package list

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
	"github.com/lockstep-sh/lockstep/plugins/gang/podgroup"
	"github.com/lockstep-sh/lockstep/plugins/overview"
)

// reader reads what gangs are made of.
type reader struct {
	*access.Access
	client    client.Client
	namespace string
	selector  labels.Selector
	levels    []string

	// What there is none of, or may not be read, is not watched either.
	noGroups, noNatives, noNodes bool
	// namespaces are those that were read, for the queues that they name.
	namespaces []*v1.Namespace
}

func newReader(o *options, selector labels.Selector) (*reader, error) {
	c, err := o.Client()
	if err != nil {
		return nil, err
	}
	namespace, err := o.Namespace(o.all)
	if err != nil {
		return nil, err
	}
	return &reader{Access: o.Access, client: c, namespace: namespace, selector: selector, levels: o.levels}, nil
}

// read lists the gangs that are asked for.
func (r *reader) read(ctx context.Context) ([]overview.Gang, error) {
	var in overview.GangsIn
	inNamespace := client.InNamespace(r.namespace)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return access.Read[v1.PodList](ctx, r.client, func(object runtime.Object) {
			if pod, ok := object.(*v1.Pod); ok && overview.IsMember(pod) {
				in.Pods = append(in.Pods, pod)
			}
		}, inNamespace)
	})
	group.Go(func() error {
		err := access.Read[podgroup.PodGroupList](ctx, r.client, access.Into(&in.PodGroups), inNamespace)
		r.noGroups = access.IsNotServed(err)
		return r.IgnoreNotServed(err)
	})
	group.Go(func() error {
		err := access.Read[schedulingv1beta1.PodGroupList](ctx, r.client, access.Into(&in.Natives), inNamespace)
		if r.noNatives = access.IsNotServed(err); r.noNatives {
			return nil // most clusters have none, and nobody misses them
		}
		return err
	})
	group.Go(func() error {
		err := access.Read[v1.NodeList](ctx, r.client, access.Into(&in.Nodes))
		r.noNodes = err != nil
		return r.without(err, "DOMAIN is not known")
	})
	group.Go(func() error {
		return r.without(r.readNamespaces(ctx), "QUEUE leaves out what namespaces name")
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return r.gangs(in), nil
}

// without notes what is missing where the user may not read something that is no gang.
func (r *reader) without(err error, what string) error {
	if apierrors.IsForbidden(err) {
		r.Note("%s: %v", what, err)
		return nil
	}
	return err
}

func (r *reader) readNamespaces(ctx context.Context) error {
	if r.namespace == "" {
		return access.Read[v1.NamespaceList](ctx, r.client, access.Into(&r.namespaces))
	}
	namespace := &v1.Namespace{}
	err := r.client.Get(ctx, client.ObjectKey{Name: r.namespace}, namespace)
	if apierrors.IsNotFound(err) {
		return nil // then there is nothing in it
	}
	if err != nil {
		return fmt.Errorf("getting namespaces %q: %w", r.namespace, err)
	}
	r.namespaces = append(r.namespaces, namespace)
	return nil
}

// gangs are those of what was read that are asked for.
func (r *reader) gangs(in overview.GangsIn) []overview.Gang {
	in.Namespaces, in.Levels = r.namespaces, r.levels
	if len(in.Levels) == 0 {
		in.Levels = overview.Levels(in.Nodes)
	}
	gangs := overview.Gangs(in)
	if r.selector.Empty() {
		return gangs
	}
	selected := overview.Selected(in.Pods, r.selector)
	var kept []overview.Gang
	for _, g := range gangs {
		if selected(g) {
			kept = append(kept, g)
		}
	}
	return kept
}
