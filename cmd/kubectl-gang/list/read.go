package list

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
)

// reader reads what gangs are made of.
type reader struct {
	*access.Access
	namespace string
	selector  labels.Selector
	levels    []string

	pods, groups, natives, nodes, namespaces kind
}

// kind is a kind of objects that gangs are made of.
type kind struct {
	// object and list are an empty object and an empty list of it; namespace is where its objects are read.
	object    client.Object
	list      client.ObjectList
	namespace string
	// objects are those that there are, of pods the members of gangs.
	objects []runtime.Object
	// without says what the table lacks where there is no such kind, or the user may not read it; it is empty for pods,
	// without which there is no table. role is the ClusterRole that has it. lacking is why it was not read, nil if it was.
	without, role string
	lacking       error
	// still is whether it is not watched, but stays as it was read.
	still bool
}

// keep adds an object.
func (k *kind) keep(object runtime.Object) {
	if pod, isPod := object.(*v1.Pod); !isPod || view.NamedGang(pod) != "" {
		k.objects = append(k.objects, object)
	}
}

// settle notes whether the kind was read, and returns what is wrong beyond that.
func (k *kind) settle(err error) error {
	if k.without != "" && (errors.Is(err, access.ErrNotServed) || apierrors.IsForbidden(err)) {
		k.lacking, k.still = err, true
		return nil
	}
	return err
}

func newReader(o *options, selector labels.Selector) (*reader, error) {
	namespace, err := o.Namespace(o.all)
	if err != nil {
		return nil, err
	}
	return &reader{
		Access: o.Access, namespace: namespace, selector: selector, levels: o.levels,
		pods: kind{object: &v1.Pod{}, list: &v1.PodList{}, namespace: namespace},
		groups: kind{object: &coscheduling.PodGroup{}, list: &coscheduling.PodGroupList{}, namespace: namespace,
			without: "what PodGroups say of MIN, MODE, QUEUE and REASON is not known, and those without pods are left out",
			role:    access.TenantRole},
		natives: kind{object: &schedulingv1beta1.PodGroup{}, list: &schedulingv1beta1.PodGroupList{}, namespace: namespace,
			without: "what native PodGroups say of MIN, QUEUE and REASON is not known, nor which are no gangs, " +
				"and those without pods are left out", role: access.TenantRole},
		nodes: kind{object: &v1.Node{}, list: &v1.NodeList{}, without: "DOMAIN is not known", role: access.ViewerRole},
		namespaces: kind{list: &v1.NamespaceList{}, still: true, without: "QUEUE leaves out what namespaces name",
			role: access.TenantRole},
	}, nil
}

// kinds are all kinds, as what they lack is noted.
func (r *reader) kinds() []*kind {
	return []*kind{&r.pods, &r.groups, &r.natives, &r.nodes, &r.namespaces}
}

// read lists the gangs that are asked for.
func (r *reader) read(ctx context.Context) ([]view.Gang, error) {
	group, ctx := errgroup.WithContext(ctx)
	for _, k := range r.kinds() {
		group.Go(func() error {
			if k == &r.namespaces && r.namespace != "" {
				return k.settle(r.readNamespace(ctx))
			}
			return k.settle(r.Read(ctx, k.list, k.keep, client.InNamespace(k.namespace)))
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for _, k := range r.kinds() {
		switch {
		case apierrors.IsForbidden(k.lacking):
			r.Note("%s: %v; ask for the ClusterRole %s", k.without, k.lacking, k.role)
		case k.lacking != nil && k != &r.natives: // most clusters have none of these, and they are not missed
			r.Note("%v", k.lacking)
		}
	}
	return r.gangs(), nil
}

// readNamespace reads the one namespace whose gangs are asked for: its user may get it, and not list them all.
func (r *reader) readNamespace(ctx context.Context) error {
	c, err := r.Client()
	if err != nil {
		return err
	}
	namespace := &v1.Namespace{}
	switch err := c.Get(ctx, client.ObjectKey{Name: r.namespace}, namespace); {
	case apierrors.IsNotFound(err):
		return nil // then there is nothing in it
	case err != nil:
		return fmt.Errorf("getting namespaces: %w", err)
	}
	r.namespaces.keep(namespace)
	return nil
}

// gangs returns the gangs that are asked for, of the objects that there are.
func (r *reader) gangs() []view.Gang {
	in := view.GangsIn{Levels: r.levels, Selector: r.selector}
	for _, k := range r.kinds() {
		for _, object := range k.objects {
			switch o := object.(type) {
			case *v1.Pod:
				in.Pods = append(in.Pods, o)
			case *coscheduling.PodGroup:
				in.PodGroups = append(in.PodGroups, o)
			case *schedulingv1beta1.PodGroup:
				in.Natives = append(in.Natives, o)
			case *v1.Node:
				in.Nodes = append(in.Nodes, o)
			case *v1.Namespace:
				in.Namespaces = append(in.Namespaces, o)
			}
		}
	}
	if len(in.Levels) == 0 {
		in.Levels = view.Levels(in.Nodes)
	}
	gangs := view.Gangs(in)
	for i := range gangs {
		r.leaveOpen(&gangs[i])
	}
	return gangs
}

// leaveOpen takes back what is said of a gang only because the PodGroup that has its minimum may not be read.
func (r *reader) leaveOpen(g *view.Gang) {
	from := &r.groups
	if g.Source == view.SourceNative {
		from = &r.natives
	}
	if apierrors.IsForbidden(from.lacking) {
		g.LeaveOpen()
	}
}
