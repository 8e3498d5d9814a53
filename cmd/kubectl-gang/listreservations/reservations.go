// Package listreservations is kubectl gang reservations: what is held, where and for which pods.
package listreservations

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/output"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
)

const (
	kind = "ReservationList"

	// nodesShown is how many nodes a table names, unless it is wide.
	nodesShown = 3

	long = `List Reservations: what is held, where, for whom, and until when.

HELD/REPLICAS is how many of the placements are held now, and how many are asked for. USED is how many pods use them.
EXPIRES is how long they are held yet; of one that has ended, nothing is. ALLOCATED is how much of what is reserved is
used.`

	example = `  # All Reservations
  kubectl gang reservations

  # All nodes, and why one has no place
  kubectl gang reservations -o wide`
)

// New returns the command.
func New(a *access.Access) *cobra.Command {
	return output.Command(&cobra.Command{
		Use:     "reservations",
		Aliases: []string{"reservation", "rsv"},
		Short:   "List Reservations: what is held, where and for which pods",
		Long:    long,
		Example: example,
		Args:    cobra.NoArgs,
	}, a.Out, func(ctx context.Context, printer *output.Printer, _ []string) error { return list(ctx, a, printer) })
}

func list(ctx context.Context, a *access.Access, printer *output.Printer) error {
	all, err := access.All[*v1alpha1.Reservation](ctx, a, &v1alpha1.ReservationList{})
	if err != nil {
		return err
	}
	if len(all) == 0 && printer.IsTable() {
		a.Note("no Reservations found")
	}
	return output.Print(printer, kind, columns(printer.IsWide()), view.Reservations(all))
}

func columns(wide bool) output.Columns[view.Reservation] {
	return output.Columns[view.Reservation]{
		{Name: "Name", Of: func(r view.Reservation) any { return r.Name }},
		{Name: "Phase", Of: func(r view.Reservation) any { return r.Phase }},
		{Name: "Held/Replicas", Of: func(r view.Reservation) any { return fmt.Sprintf("%d/%d", r.Held, r.Replicas) }},
		{Name: "Used", Of: func(r view.Reservation) any { return r.Used }},
		{Name: "Nodes", Of: func(r view.Reservation) any { return output.OrNone(nodes(r.Nodes, wide)) }},
		{Name: "Allocated", Of: func(r view.Reservation) any { return output.OrNone(amounts(r)) }},
		{Name: "Expires", Of: func(r view.Reservation) any {
			if r.Ended != nil {
				return "ended"
			}
			return output.Until(r.Expires, time.Now())
		}},
		{Name: "Reason", Of: func(r view.Reservation) any { return r.Reason }},
		{Name: "Age", Of: func(r view.Reservation) any { return output.Age(r.Created, time.Now()) }},
		{Name: "Owners", Wide: true, Of: func(r view.Reservation) any { return strings.Join(r.Owners, ", or ") }},
		{Name: "Message", Wide: true, Of: func(r view.Reservation) any { return r.Message }},
	}
}

func nodes(names []string, all bool) string {
	if !all && len(names) > nodesShown {
		return fmt.Sprintf("%s,+%d", strings.Join(names[:nodesShown-1], ","), len(names)-nodesShown+1)
	}
	return strings.Join(names, ",")
}

// amounts returns how much is used of what is reserved, in the order in which queues list resources: 2/8
// nvidia.com/gpu.
func amounts(r view.Reservation) string {
	var parts []string
	for _, name := range view.SortedResources(r.Allocatable) {
		if name == v1.ResourcePods {
			continue
		}
		of, used := r.Allocatable[name], r.Allocated[name]
		parts = append(parts, fmt.Sprintf("%s/%s %s", used.String(), of.String(), name))
	}
	return strings.Join(parts, ", ")
}
