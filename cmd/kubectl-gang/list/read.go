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

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
	"github.com/lockstep-sh/lockstep/pkg/view"
)

// reader reads what gangs are made of.
type reader struct {
	*access.Access
	client    client.Client
	namespace string
	selector  labels.Selector
	levels    []string

	groups, natives, nodes, queues aside
	// listed is what was read; the kinds of it that are not watched stay as they were read.
	listed view.GangsIn
}

// aside is a kind that gangs are read from beside pods. Where there is none, or the user may not read it, the rest is
// still listed.
type aside struct {
	// without says what the table lacks then, and role is the ClusterRole that has it.
	without, role string
	// lacking is why it was not read; nil if it was.
	lacking error
	// still is whether it is not watched, but stays as it was read.
	still bool
}

// settle notes whether the kind was read, and returns what is wrong beyond that.
func (a *aside) settle(err error) error {
	if access.IsNotServed(err) || access.IsRefused(err) {
		a.lacking, a.still = err, true
		return nil
	}
	return err
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
	return &reader{
		Access: o.Access, client: c, namespace: namespace, selector: selector, levels: o.levels,
		groups: aside{without: "what PodGroups say of MIN, MODE, QUEUE and REASON is not known, and those without pods " +
			"are left out", role: access.TenantRole},
		natives: aside{without: "what native PodGroups say of MIN, QUEUE and REASON is not known, nor which are no gangs, " +
			"and those without pods are left out", role: access.TenantRole},
		nodes:  aside{without: "DOMAIN is not known", role: access.ViewerRole},
		queues: aside{without: "QUEUE leaves out what namespaces name", role: access.TenantRole},
	}, nil
}

// read lists the gangs that are asked for.
func (r *reader) read(ctx context.Context) ([]view.Gang, error) {
	in := &r.listed
	inNamespace := client.InNamespace(r.namespace)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return access.Read[v1.PodList](ctx, r.client, func(object runtime.Object) {
			if pod, ok := object.(*v1.Pod); ok && view.IsMember(pod) {
				in.Pods = append(in.Pods, pod)
			}
		}, inNamespace)
	})
	group.Go(func() error {
		return r.groups.settle(r.Resolve(access.Read[coscheduling.PodGroupList](ctx, r.client,
			access.Into(&in.PodGroups), inNamespace)))
	})
	group.Go(func() error {
		return r.natives.settle(r.Resolve(access.Read[schedulingv1beta1.PodGroupList](ctx, r.client,
			access.Into(&in.Natives), inNamespace)))
	})
	group.Go(func() error { return r.nodes.settle(access.Read[v1.NodeList](ctx, r.client, access.Into(&in.Nodes))) })
	group.Go(func() error { return r.queues.settle(r.readNamespaces(ctx)) })
	if err := group.Wait(); err != nil {
		return nil, err
	}
	r.noteLacking()
	return r.gangs(*in), nil
}

// noteLacking notes what the table lacks, and why.
func (r *reader) noteLacking() {
	for _, kind := range []*aside{&r.groups, &r.natives, &r.nodes, &r.queues} {
		switch {
		case access.IsRefused(kind.lacking):
			r.Note("%s: %v; ask for the ClusterRole %s", kind.without, kind.lacking, kind.role)
		case kind.lacking != nil && kind != &r.natives: // most clusters have none of these, and they are not missed
			r.Note("%v", kind.lacking)
		}
	}
}

func (r *reader) readNamespaces(ctx context.Context) error {
	if r.namespace == "" {
		return access.Read[v1.NamespaceList](ctx, r.client, access.Into(&r.listed.Namespaces))
	}
	namespace := &v1.Namespace{}
	err := r.client.Get(ctx, client.ObjectKey{Name: r.namespace}, namespace)
	switch {
	case apierrors.IsNotFound(err):
		return nil // then there is nothing in it
	case apierrors.IsForbidden(err):
		return &access.RefusedError{Doing: "getting", Resource: v1.SchemeGroupVersion.WithResource("namespaces"), Err: err}
	case err != nil:
		return fmt.Errorf("getting namespaces %q: %w", r.namespace, err)
	}
	r.listed.Namespaces = append(r.listed.Namespaces, namespace)
	return nil
}

// gangs returns the gangs that are asked for, of what was read.
func (r *reader) gangs(in view.GangsIn) []view.Gang {
	in.Namespaces, in.Levels = r.listed.Namespaces, r.levels
	if len(in.Levels) == 0 {
		in.Levels = view.Levels(in.Nodes)
	}
	gangs := view.Gangs(in)
	for i := range gangs {
		r.leaveOpen(&gangs[i])
	}
	if r.selector.Empty() {
		return gangs
	}
	selected := view.Selected(in.Pods, r.selector)
	var kept []view.Gang
	for _, g := range gangs {
		if selected(g) {
			kept = append(kept, g)
		}
	}
	return kept
}

// leaveOpen takes back what is said of a gang only because the PodGroup that has its minimum may not be read.
func (r *reader) leaveOpen(g *view.Gang) {
	from := &r.groups
	if g.Source == view.SourceNative {
		from = &r.natives
	}
	if g.Reason == v1alpha1.ReasonGangUndefined && access.IsRefused(from.lacking) {
		g.Phase, g.Mode, g.Reason, g.Message = "", "", "", ""
	}
}
