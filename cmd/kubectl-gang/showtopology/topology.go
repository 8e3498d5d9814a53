// Package showtopology is kubectl gang topology: a picture of what is used and free, rack by rack.
package showtopology

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"golang.org/x/sync/errgroup"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/output"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/source"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
	"github.com/lockstep-sh/lockstep/pkg/kube/apiobjects"
	"github.com/lockstep-sh/lockstep/pkg/planning/clusterdevices"
)

const (
	kind = "Topology"

	long = `Draw how much of a resource is used and free, domain by domain: a zone, a rack, a node.

In the picture a node stands between brackets, with a sign for each GPU, or eight for more than that:

  #  used by pods        +  held by Reservations, and not used yet
  .  free                x  free, on a node that is cordoned or not ready, or has a taint that no pod tolerates by key

A domain whose nodes do not fit into a line is drawn as one bar of 38 signs. With -o wide, LARGEST FREE is the most
that is free in one part: in one rack of a zone, on one node of a rack. EMPTY is how many nodes have all of it free.

Levels are node labels, coarsest first. Without --level they are those that look like it, by the last part of their
names: region, zone, datacenter, spine, block, leaf, rack. What pods ask for counts from when they have a node until
they have ended. Devices that they get by ResourceClaims count as in queues.`

	example = `  # The racks, and their GPUs
  kubectl gang topology

  # Node by node
  kubectl gang topology --nodes

  # By labels of your own, and another resource
  kubectl gang topology --level example.com/block --level example.com/rack --resource amd.com/gpu`
)

type options struct {
	*access.Access
	levels   []string
	resource string
	nodes    bool
}

// New returns the command.
func New(a *access.Access) *cobra.Command {
	o := &options{Access: a}
	cmd := output.Command(&cobra.Command{
		Use:     "topology",
		Aliases: []string{"topo"},
		Short:   "Draw what is used and free, rack by rack",
		Long:    long,
		Example: example,
		Args:    cobra.NoArgs,
	}, a.Out, o.run)
	cmd.Flags().StringSliceVar(&o.levels, "level", nil,
		"Labels of nodes that are the levels of the topology, coarsest first.")
	cmd.Flags().StringVar(&o.resource, "resource", "",
		"The resource to draw. Without, the one that most members of gangs ask for, such as nvidia.com/gpu, or else cpu.")
	cmd.Flags().BoolVar(&o.nodes, "nodes", false, "Draw a line for each node, too.")
	return cmd
}

func (o *options) run(ctx context.Context, printer *output.Printer, _ []string) error {
	in, err := o.read(ctx)
	if err != nil {
		return err
	}
	in.Resource = v1.ResourceName(o.resource)
	if in.Levels = o.levels; len(in.Levels) == 0 {
		in.Levels = view.Levels(in.Nodes)
	}
	t := view.TopologyOf(in)
	if !printer.IsTable() {
		return output.Print(printer, kind, nil, []view.Topology{t})
	}
	if in.Devices.Counts != nil && in.Devices.Counts.Unlimited()[t.Resource] {
		o.Note("several nodes reach some %s, or several claims can have one: USED may be more than TOTAL", t.Resource)
	}
	if t.Nodes == 0 {
		o.Note("no node has %s", t.Resource)
		return nil
	}
	return output.Print(printer, kind, columns(t.Resource), t.Lines(o.nodes))
}

func (o *options) read(ctx context.Context) (view.TopologyIn, error) {
	var in view.TopologyIn
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return o.Read(ctx, &v1.NodeList{}, apiobjects.Into(&in.Nodes)) })
	group.Go(func() error { return o.Read(ctx, &v1.PodList{}, apiobjects.Into(&in.Pods)) })
	var lacking error
	group.Go(func() error {
		lacking = o.IgnoreNotServed(o.Read(ctx, &v1alpha1.ReservationList{}, apiobjects.Into(&in.Reservations)))
		if apierrors.IsForbidden(lacking) {
			return nil
		}
		return lacking
	})
	group.Go(func() (err error) { in.Devices, err = o.readDevices(ctx); return err })
	if err := group.Wait(); err != nil {
		return in, err
	}
	if lacking != nil {
		o.Note("HELD is not known, and counts as free: %v", lacking)
	}
	return in, nil
}

// readDevices reads the devices that nodes have, and those that pods claim. What it may not read leads to a note.
func (o *options) readDevices(ctx context.Context) (view.Devices, error) {
	var devices view.Devices
	var all []*resourceapi.ResourceSlice
	var classes []*resourceapi.DeviceClass
	for _, kind := range []struct {
		list client.ObjectList
		add  func(runtime.Object)
	}{
		{&resourceapi.ResourceSliceList{}, apiobjects.Into(&all)},
		{&resourceapi.DeviceClassList{}, apiobjects.Into(&classes)},
		{&resourceapi.ResourceClaimList{}, apiobjects.Into(&devices.Claims)},
		{&resourceapi.ResourceClaimTemplateList{}, apiobjects.Into(&devices.Templates)},
	} {
		switch err := o.Read(ctx, kind.list, kind.add); {
		case errors.Is(err, access.ErrNotServed):
			return view.Devices{}, nil
		case apierrors.IsForbidden(err):
			o.Note("devices that pods get by ResourceClaims are not seen: %v", err)
			return view.Devices{}, nil
		case err != nil:
			return view.Devices{}, err
		}
	}
	if len(classes) == 0 {
		return view.Devices{}, nil
	}
	as, err := o.deviceClasses(ctx)
	if err != nil {
		o.Note("devices count under the names of their DeviceClasses, as the argument deviceClasses is not known: %v", err)
	}
	devices.Counts = clusterdevices.NewCounts(as)
	devices.Counts.Replace(all, classes)
	return devices, nil
}

// deviceClasses returns what the scheduler's configuration says that devices count as.
func (o *options) deviceClasses(ctx context.Context) (map[string]v1.ResourceName, error) {
	text, _, err := source.ConfigOf(ctx, o.Access)
	if err != nil {
		return nil, err
	}
	return source.DeviceClassesOf(text)
}

func columns(resource v1.ResourceName) output.Columns[view.Line] {
	amount := func(of func(view.Line) int64) func(view.Line) any {
		return func(l view.Line) any { return view.Amount(resource, of(l)) }
	}
	return output.Columns[view.Line]{
		{Name: "Domain", Of: func(l view.Line) any { return strings.Repeat("  ", l.Depth) + l.Title }},
		{Name: "Total", Of: amount(func(l view.Line) int64 { return l.Total })},
		{Name: "Used", Of: amount(func(l view.Line) int64 { return l.Used })},
		{Name: "Held", Of: amount(func(l view.Line) int64 { return l.Held })},
		{Name: "Free", Of: amount(func(l view.Line) int64 { return l.Free })},
		{Name: "Picture", Of: func(l view.Line) any { return l.Picture }},
		{Name: "Nodes", Wide: true, Of: func(l view.Line) any { return l.Nodes }},
		{Name: "Closed", Wide: true, Of: amount(func(l view.Line) int64 { return l.Closed })},
		{Name: "Empty", Wide: true, Of: func(l view.Line) any { return l.Empty }},
		{Name: "Largest free", Wide: true, Of: func(l view.Line) any {
			text := view.Amount(resource, l.Largest)
			if l.LargestIn != "" {
				text += " (" + l.LargestIn + ")"
			}
			return text
		}},
	}
}
