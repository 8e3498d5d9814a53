// Package explain is the command that reports why a gang waits.
package explain

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang-forecast/simulate"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/output"
	"github.com/lockstep-sh/lockstep/pkg/view"
)

type options struct {
	*access.Access
	simulate.Question
	output  *output.Flags
	verbose bool
}

// New makes the command.
func New(a *access.Access) *cobra.Command {
	o := &options{Access: a, output: output.NewFlags()}
	cmd := &cobra.Command{
		Use:   "explain [GANG | TYPE/NAME]",
		Short: "Tell where a gang stands, and why it waits",
		Long: `explain says in one line how a gang stands, and why it waits; and below that, how many of its members fit in which domain, and
what they are short of. For that it has the scheduler, with all its plugins and its configuration, decide about the gang once more,
on the cluster as it is now. Nothing is written to the cluster. -v tells all that is known: what the scheduler has said, the queue
and the place in it, Reservations, where victims were looked for, and the members.

GANG is the name of the gang, or NAMESPACE/NAME. TYPE/NAME is job/NAME, pod/NAME or podgroup/NAME, in the namespace of the flags.
Without any, explain tells of the gang of the namespace that waits, or lists those that do.`,
		Example: `  kubectl gang explain train
  kubectl gang explain job/train -n team-a -v

  # Whom would it evict, and would it start with four more nodes like those of pool a100?
  kubectl gang explain team-a/train --nodes +4:a100`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), strings.Join(args, "")) },
	}
	cmd.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "Tell all that is known.")
	o.Question.AddFlags(cmd.Flags())
	o.output.AddFlags(cmd)
	return cmd
}

func (o *options) run(ctx context.Context, name string) error {
	if _, err := o.output.Printer(o.Out); err != nil {
		return err
	}
	if err := o.Check(); err != nil {
		return err
	}
	began := time.Now()
	gang, err := o.find(ctx, name)
	if err != nil || gang == "" {
		return err
	}
	var r *Report
	err = o.Ask(ctx, o.Access,
		func(ctx context.Context, simulation *simulate.Simulation, more *simulate.More) (err error) {
			r, err = o.ask(ctx, gang, simulation, more)
			return err
		})
	var wrong *wrongError
	if err != nil && !errors.As(err, &wrong) && ctx.Err() == nil {
		r, err = o.alone(ctx, gang, err)
	}
	if err != nil {
		return err
	}
	r.Seconds = time.Since(began).Seconds()
	return r.print(o.output, o.Out, o.verbose)
}

// wrongError means that the question has no answer, though the scheduler can be asked.
type wrongError struct{ error }

// Unwrap returns what is wrong.
func (e *wrongError) Unwrap() error { return e.error }

// ask asks the scheduler. An error is a [wrongError], or else why the scheduler could not be asked.
func (o *options) ask(ctx context.Context, gang string, simulation *simulate.Simulation,
	more *simulate.More) (*Report, error) {
	if err := simulation.Start(ctx); err != nil {
		return nil, err
	}
	var pods []*v1.Pod
	var beside *beside
	reading, readCtx := errgroup.WithContext(ctx)
	reading.Go(func() (err error) {
		pods, err = simulation.Pods(readCtx, gang[:strings.Index(gang, "/")])
		return err
	})
	reading.Go(func() error { return simulation.Ready(readCtx) })
	reading.Go(func() error {
		beside = readBeside(readCtx, simulation.Read, gang)
		return nil
	})
	if err := reading.Wait(); err != nil {
		return nil, err
	}
	named := sorted(pods, func(pod *v1.Pod) bool { return view.GangOf(pod) == gang })
	members := slices.DeleteFunc(slices.Clone(named), func(pod *v1.Pod) bool { return simulation.GangOf(pod) != gang })
	return o.report(ctx, gang, named, members, beside, simulation, more)
}

// sorted returns some of the pods, in order of their names.
func sorted(pods []*v1.Pod, is func(*v1.Pod) bool) []*v1.Pod {
	some := slices.DeleteFunc(slices.Clone(pods), func(pod *v1.Pod) bool { return !is(pod) })
	slices.SortFunc(some, func(a, b *v1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return some
}

// report asks the scheduler about the members that wait. named are all pods that name the gang, also
// those that no profile of it schedules.
func (o *options) report(ctx context.Context, gang string, named, members []*v1.Pod, beside *beside,
	simulation *simulate.Simulation, more *simulate.More) (*Report, error) {
	g := beside.row(gang, named)
	aside := strangers(named, simulation.Profiles())
	if len(members) == 0 && (g == nil || len(beside.of.PodGroups)+len(beside.of.Natives) == 0) {
		return nil, &wrongError{o.unknown(ctx, simulation.Read, gang, aside)}
	}
	r := newReport(gang, members)
	defer r.judge(g)
	r.Notes = beside.notes
	r.tell(g, simulation.Profiles())
	if aside != "" {
		r.Advice = append(r.Advice, aside)
	}
	r.Configuration = &simulation.Origin
	asked := waiting(members)
	if len(members) > 0 {
		if name := simulation.Set().QueueOf(members[0]); name != "" { // its profile has queues
			r.Queue, _ = readQueue(ctx, simulation.Read, name) // the default queue exists without being created
		}
	}
	if len(asked) == 0 {
		return r, nil
	}
	var err error
	if r.Leaderless, err = leaderless(ctx, simulation.Read, simulation.Origin); err != nil {
		r.Notes = append(r.Notes, "whether a scheduler leads is not known: "+err.Error())
	}
	if simulation.Set().Reserves(asked[0]) && beside.reservationsRead {
		r.reserve(beside.reservations, asked)
	}
	return r, o.decide(ctx, r, asked, simulation, more)
}

// decide adds what the scheduler decides about members that wait.
func (o *options) decide(ctx context.Context, r *Report, asked []*v1.Pod, simulation *simulate.Simulation,
	more *simulate.More) error {
	answer, err := simulation.Decide(ctx, asked)
	if err != nil {
		return err
	}
	r.add("now", answer, simulation, time.Time{})
	if line, waits := simulation.Set().Line(asked[0]); waits && answer.Placed() < len(asked) {
		r.Line = &line
	}
	switch {
	case more == nil || answer.Placed() == len(asked):
		return nil
	case answer.Undecided:
		r.Advice = append(r.Advice, "There was no time left to ask with more nodes: see --timeout")
		return nil
	}
	began := time.Now()
	if err := more.Suppose(ctx, simulation); err != nil {
		return &wrongError{err}
	}
	if answer, err = simulation.Decide(ctx, asked); err != nil {
		return err
	}
	r.add(more.String(), answer, simulation, began)
	return nil
}
