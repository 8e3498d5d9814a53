// Package defragplans is kubectl gang defrag: DefragmentationPlans, their moves, and their approval.
package defragplans

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/output"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
	"github.com/lockstep-sh/lockstep/pkg/kube/apiobjects"
)

const (
	planKind, moveKind = "DefragmentationPlanList", "PlannedMoveList"

	// fieldOwner is the field manager of what is approved.
	fieldOwner = "kubectl-gang"

	long = `List DefragmentationPlans, or the moves of one; with --approve, have that one carried out.

MOVES is how many pods restart elsewhere, MOVED how many have, and RESTARTS how many pods start anew by it, those of
gangs included that cannot do without one. BEFORE and AFTER are how many gangs of the shape fit: as predicted, and
once the plan has come to its end as counted.

A plan of mode Approval waits for approval. What is approved is what was shown: moves no longer change once they have
been found. It cannot be taken back; to end a plan delete it.`

	example = `  # All plans
  kubectl gang defrag

  # The moves of one
  kubectl gang defrag for-big-h2sqh

  # Have it carried out
  kubectl gang defrag for-big-h2sqh --approve`
)

type options struct {
	*access.Access
	approve bool
}

// New returns the command.
func New(a *access.Access) *cobra.Command {
	o := &options{Access: a}
	cmd := output.Command(&cobra.Command{
		Use:               "defrag [PLAN]",
		Aliases:           []string{"dfp"},
		Short:             "List DefragmentationPlans and their moves, and approve one",
		Long:              long,
		Example:           example,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: o.complete,
	}, a.Out, func(ctx context.Context, printer *output.Printer, args []string) error {
		switch {
		case len(args) == 0 && o.approve:
			return errors.New("checking --approve: name the plan to approve")
		case len(args) == 0:
			return o.list(ctx, printer)
		}
		return o.one(ctx, printer, args[0])
	})
	cmd.Flags().BoolVar(&o.approve, "approve", false, "Have the plan carried out.")
	return cmd
}

func (o *options) list(ctx context.Context, printer *output.Printer) error {
	list, err := access.All[*v1alpha1.DefragmentationPlan](ctx, o.Access, &v1alpha1.DefragmentationPlanList{})
	if err != nil {
		return err
	}
	if len(list) == 0 && printer.IsTable() {
		o.Note("no DefragmentationPlans found")
	}
	return output.Print(printer, planKind, planColumns(), view.Plans(list))
}

func (o *options) one(ctx context.Context, printer *output.Printer, name string) error {
	c, err := o.Client()
	if err != nil {
		return err
	}
	plan := &v1alpha1.DefragmentationPlan{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, plan); err != nil {
		return fmt.Errorf("getting %s: %w", v1alpha1.DefragmentationPlanResource.GroupResource(), err)
	}
	if o.approve {
		return o.approved(ctx, c, plan)
	}
	if printer.IsTable() {
		p := view.Plans([]*v1alpha1.DefragmentationPlan{plan})[0]
		o.Note("%s: %s, %s: %s", p.Name, p.Goal, p.Phase, p.Message)
	}
	return output.Print(printer, moveKind, moveColumns(), view.Moves(plan))
}

// approved approves a plan. Its moves are those that were read: they do not change once there are any.
func (o *options) approved(ctx context.Context, c client.Client, plan *v1alpha1.DefragmentationPlan) error {
	switch err := view.Approvable(plan); {
	case errors.Is(err, view.ErrApproved):
		o.Note("%v", err)
		return nil
	case err != nil:
		return err
	}
	before := plan.DeepCopy()
	plan.Spec.Approved = true
	if err := c.Patch(ctx, plan, client.MergeFrom(before), client.FieldOwner(fieldOwner)); err != nil {
		return fmt.Errorf("patching %s %q: %w", v1alpha1.DefragmentationPlanResource.GroupResource(), plan.Name, err)
	}
	_, err := fmt.Fprintf(o.Out, "%s/%s approved: %d moves\n", v1alpha1.DefragmentationPlanResource.GroupResource(),
		plan.Name, len(plan.Status.Moves))
	return err
}

// complete suggests the names of plans.
func (o *options) complete(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var list []*v1alpha1.DefragmentationPlan
	if err := o.Read(cmd.Context(), &v1alpha1.DefragmentationPlanList{}, apiobjects.Into(&list)); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, p := range view.Plans(list) {
		if strings.HasPrefix(p.Name, begin) {
			names = append(names, p.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func planColumns() output.Columns[view.Plan] {
	return output.Columns[view.Plan]{
		{Name: "Name", Of: func(p view.Plan) any { return p.Name }},
		{Name: "Phase", Of: func(p view.Plan) any { return p.Phase }},
		{Name: "For", Of: func(p view.Plan) any { return output.OrNone(p.Goal) }},
		{Name: "Moved", Of: func(p view.Plan) any { return fmt.Sprintf("%d/%d", p.Moved, p.Moves) }},
		{Name: "Restarts", Of: func(p view.Plan) any { return p.Restarts }},
		{Name: "Reason", Of: func(p view.Plan) any { return p.Reason }},
		{Name: "Age", Of: func(p view.Plan) any { return output.Age(p.Created, time.Now()) }},
		{Name: "Mode", Wide: true, Of: func(p view.Plan) any { return p.Mode }},
		{Name: "Approved", Wide: true, Of: func(p view.Plan) any { return p.Approved }},
		{Name: "Before", Wide: true, Of: func(p view.Plan) any { return output.OrNone(p.Before) }},
		{Name: "After", Wide: true, Of: func(p view.Plan) any { return output.OrNone(p.After) }},
		{Name: "Message", Wide: true, Of: func(p view.Plan) any { return p.Message }},
	}
}

func moveColumns() output.Columns[view.Move] {
	return output.Columns[view.Move]{
		{Name: "Move", Of: func(m view.Move) any { return m.Number }},
		{Name: "Namespace", Of: func(m view.Move) any { return m.Namespace }},
		{Name: "Pod", Of: func(m view.Move) any { return m.Pod }},
		{Name: "Gang", Of: func(m view.Move) any { return output.OrNone(m.Gang) }},
		{Name: "From", Of: func(m view.Move) any { return m.From }},
		{Name: "To", Of: func(m view.Move) any { return m.To }},
		{Name: "After", Of: func(m view.Move) any { return output.OrNone(numbers(m.After)) }},
		{Name: "Phase", Of: func(m view.Move) any { return output.OrNone(m.Phase) }},
		{Name: "Why", Of: func(m view.Move) any { return m.Why }},
	}
}

func numbers(list []int32) string {
	parts := make([]string, len(list))
	for i, n := range list {
		parts[i] = strconv.Itoa(int(n))
	}
	return strings.Join(parts, ",")
}
