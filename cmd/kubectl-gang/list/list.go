// Package list is kubectl gang list: how all gangs stand.
package list

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/output"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/source"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
)

const (
	listKind = "GangList"

	// unknown is printed, as kubectl does, where the user may not read the object that would tell.
	unknown = "<unknown>"

	long = `List gangs, in whichever way they are one: by annotations, by a PodGroup of the community, by a native
PodGroup, or by their owner.

HELD/BOUND/MIN: HELD is how many members without a node have one nominated: room is kept for them. What the scheduler
holds beyond that is in its memory only. BOUND is how many members have a node, or had one until they succeeded. MIN is
how many have to be bound together; of a gang with stages, for the present one.

DOMAIN is where all its bound members are: in the topology that it requires, or else in the finest of --level. REASON is
why it waits; -o wide has it in words. PRIORITY (-o wide) is the lowest of its members'.`

	example = `  # The gangs of the namespace
  kubectl gang list

  # All gangs, and in words why they wait
  kubectl gang list -A -o wide

  # What changes from now on
  kubectl gang list -A -w

  # The gangs of a Job
  kubectl gang list -n llm -l batch.kubernetes.io/job-name=train`
)

type options struct {
	*access.Access
	all      bool
	watch    bool
	selector string
	levels   []string
}

// New returns the command.
func New(a *access.Access) *cobra.Command {
	o := &options{Access: a}
	cmd := output.Command(&cobra.Command{
		Use:     "list",
		Aliases: []string{"ls", "get"},
		Short:   "List gangs, and how they stand",
		Long:    long,
		Example: example,
		Args:    cobra.NoArgs,
	}, a.Out, o.run)
	cmd.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "List the gangs of all namespaces.")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "Print gangs again when they change, until Ctrl-C.")
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "",
		"Labels of pods: only gangs of which a pod has them, such as app=train. PodGroups without pods are left out then.")
	cmd.Flags().StringSliceVar(&o.levels, "level", nil,
		"Labels of nodes that are the levels of the topology, coarsest first. Without, those that look like it: region, "+
			"zone, block, rack.")
	return cmd
}

func (o *options) run(ctx context.Context, printer *output.Printer, _ []string) error {
	selector, err := labels.Parse(o.selector)
	if err != nil {
		return fmt.Errorf("reading --selector: %w", err)
	}
	r, err := newReader(o, selector)
	if err != nil {
		return err
	}
	gangs, err := r.read(ctx)
	if err != nil {
		return err
	}
	if !o.watch && selector.Empty() {
		cluster, err := (&source.Source{}).Cluster(o.Access)
		if err != nil {
			return err
		}
		gangs = cluster.WithEvicted(ctx, r.namespace, gangs)
	}
	if len(gangs) == 0 && !o.watch && printer.IsTable() {
		o.Note("no gangs found%s", in(r.namespace))
	}
	columns := o.columns()
	if !o.watch || len(gangs) > 0 {
		if err := output.Print(printer, listKind, columns, gangs); err != nil {
			return err
		}
	}
	if !o.watch {
		return nil
	}
	return r.watch(ctx, gangs, func(changed []view.Gang) error {
		return output.Print(printer, listKind, columns, changed)
	})
}

// in says in which namespace gangs were looked for; empty for all.
func in(namespace string) string {
	if namespace == "" {
		return ""
	}
	return " in namespace " + namespace
}

func (o *options) columns() output.Columns[view.Gang] {
	columns := output.Columns[view.Gang]{
		{Name: "Name", Of: func(g view.Gang) any { return g.Name }},
		{Name: "Phase", Of: func(g view.Gang) any { return cmp.Or(g.Phase, unknown) }},
		{Name: "Held/Bound/Min", Of: func(g view.Gang) any { return counts(&g) }},
		{Name: "Queue", Of: func(g view.Gang) any { return g.Queue }},
		{Name: "Domain", Of: func(g view.Gang) any { return output.OrNone(g.Domain) }},
		{Name: "Reason", Of: func(g view.Gang) any { return reason(&g) }},
		{Name: "Age", Of: func(g view.Gang) any { return output.Age(g.Created, time.Now()) }},
		{Name: "Priority", Wide: true, Of: func(g view.Gang) any { return output.OrNone(g.Priority) }},
		{Name: "Mode", Wide: true, Of: func(g view.Gang) any { return cmp.Or(g.Mode, unknown) }},
		{Name: "Members", Wide: true, Of: func(g view.Gang) any { return g.Members }},
		{Name: "Running", Wide: true, Of: func(g view.Gang) any { return g.Running }},
		{Name: "By", Wide: true, Of: func(g view.Gang) any { return string(g.Source) }},
		{Name: "Scheduler", Wide: true, Of: func(g view.Gang) any { return output.OrNone(strings.Join(g.Schedulers, ",")) }},
		{Name: "Message", Wide: true, Of: func(g view.Gang) any { return g.Message }},
	}
	if o.all {
		namespace := output.Column[view.Gang]{Name: "Namespace", Of: func(g view.Gang) any { return g.Namespace }}
		columns = append(output.Columns[view.Gang]{namespace}, columns...)
	}
	return columns
}

// reason returns the value of the column REASON. While a gang awaits its first attempt, and pods of it name the default
// scheduler, the value says so: that scheduler may know no gangs.
func reason(g *view.Gang) string {
	if g.Reason == v1alpha1.ReasonAwaitingPlacement && slices.Contains(g.Schedulers, v1.DefaultSchedulerName) {
		return g.Reason + " by " + v1.DefaultSchedulerName
	}
	return cmp.Or(g.Reason, unknown)
}

// counts returns HELD/BOUND/MIN. MIN is ? where the user may not read the object that has the
// minimum.
func counts(g *view.Gang) string {
	if g.Minimum == 0 && g.Phase == "" {
		return fmt.Sprintf("%d/%d/?", g.Held, g.Bound)
	}
	return fmt.Sprintf("%d/%d/%d", g.Held, g.Bound, g.Minimum)
}
