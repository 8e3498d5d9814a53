// Package queues is kubectl gang queues: the tree of queues, and their numbers.
package queues

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/output"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
)

const (
	kind = "QueueList"

	long = `Show the queues as a tree, with a line for each resource: those that nodes advertise, such as GPUs, or
without any cpu and memory. -o wide has all.

SHARE is the largest of the parts of the cluster's resources that a queue uses. RUN/WAIT counts gangs, and pods in
none, that run and that wait. DUE is what it is entitled to as things are, and never more than it requests; STATED is
what its spec.deserved says. USED is what its pods use, those of queues below it included, and PENDING what those ask
for that wait. CAPABILITY is its ceiling.

The numbers are those in the status of Queues, which lockstep-controller writes.`

	example = `  # The queues, and their GPUs
  kubectl gang queues

  # All resources, floors, and why a queue serves no pods
  kubectl gang queues -o wide

  # One resource
  kubectl gang queues --resource cpu`
)

type options struct {
	*access.Access
	resources []string
}

// New returns the command.
func New(a *access.Access) *cobra.Command {
	o := &options{Access: a}
	cmd := output.Command(&cobra.Command{
		Use:     "queues",
		Aliases: []string{"queue", "lq"},
		Short:   "Show the tree of queues, and what each deserves and has",
		Long:    long,
		Example: example,
		Args:    cobra.NoArgs,
	}, a.Out, o.run)
	cmd.Flags().StringSliceVar(&o.resources, "resource", nil, "Resources to show, such as nvidia.com/gpu.")
	return cmd
}

func (o *options) run(ctx context.Context, printer *output.Printer, _ []string) error {
	list, err := access.All[*v1alpha1.Queue](ctx, o.Access, &v1alpha1.QueueList{})
	if err != nil {
		return err
	}
	queues := view.Queues(list)
	if !printer.IsTable() {
		return output.Print(printer, kind, nil, queues)
	}
	if len(queues) == 0 {
		o.Note("no queues found")
	}
	return output.Print(printer, kind, columns(), lines(queues, o.shown(queues, printer)))
}

// shown returns a function that reports which resources have a line.
func (o *options) shown(queues []view.Queue, printer *output.Printer) func(v1.ResourceName) bool {
	if len(o.resources) > 0 {
		return func(name v1.ResourceName) bool { return slices.Contains(o.resources, string(name)) }
	}
	extended := false
	for _, q := range queues {
		for _, r := range q.Resources {
			extended = extended || view.IsExtended(r.Name)
		}
	}
	return func(name v1.ResourceName) bool {
		switch {
		case printer.IsWide():
			return true
		case extended:
			return view.IsExtended(name)
		}
		return name == v1.ResourceCPU || name == v1.ResourceMemory
	}
}

// line is a queue, or one of its further resources.
type line struct {
	view.Queue
	resource *view.QueueResource
	first    bool
}

func lines(queues []view.Queue, shown func(v1.ResourceName) bool) []line {
	var list []line
	for _, q := range queues {
		first := true
		for i := range q.Resources {
			if shown(q.Resources[i].Name) {
				list = append(list, line{Queue: q, resource: &q.Resources[i], first: first})
				first = false
			}
		}
		if first {
			list = append(list, line{Queue: q, first: true})
		}
	}
	return list
}

func columns() output.Columns[line] {
	ofQueue := func(name string, wide bool, of func(line) any) output.Column[line] {
		return output.Column[line]{Name: name, Wide: wide, Of: func(l line) any {
			if !l.first {
				return ""
			}
			return of(l)
		}}
	}
	ofResource := func(name string, wide bool, of func(*view.QueueResource) any) output.Column[line] {
		return output.Column[line]{Name: name, Wide: wide, Of: func(l line) any {
			if l.resource == nil {
				return ""
			}
			return of(l.resource)
		}}
	}
	limit := func(amount *resource.Quantity) any {
		if amount == nil {
			return "-"
		}
		return amount.String()
	}
	return output.Columns[line]{
		ofQueue("Name", false, func(l line) any {
			name := strings.Repeat("  ", l.Depth) + l.Name
			if l.Closed {
				name += " (closed)"
			}
			return name
		}),
		ofQueue("Share", false, func(l line) any { return output.OrNone(l.Share) }),
		ofQueue("Run/Wait", false, func(l line) any { return fmt.Sprintf("%d/%d", l.Running, l.Pending) }),
		ofResource("Resource", false, func(r *view.QueueResource) any { return string(r.Name) }),
		ofResource("Due/Stated", false, func(r *view.QueueResource) any {
			return fmt.Sprint(r.Deserved.String(), "/", limit(r.Stated))
		}),
		ofResource("Used", false, func(r *view.QueueResource) any { return r.Allocated.String() }),
		ofResource("Pending", false, func(r *view.QueueResource) any { return r.Pending.String() }),
		ofResource("Capability", false, func(r *view.QueueResource) any { return limit(r.Capability) }),
		ofResource("Guarantee", true, func(r *view.QueueResource) any { return limit(r.Guarantee) }),
		ofQueue("Weight", true, func(l line) any { return l.Weight }),
		ofQueue("Priority", true, func(l line) any { return l.Priority }),
		ofQueue("Age", true, func(l line) any { return output.Age(l.Created, time.Now()) }),
		ofQueue("Reason", true, func(l line) any { return l.Reason }),
		ofQueue("Message", true, func(l line) any { return l.Message }),
	}
}
