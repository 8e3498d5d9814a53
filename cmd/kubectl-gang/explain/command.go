// Package explain is the command that reports why a gang waits.
package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/forecast/simulate"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/output"
	"github.com/lockstep-sh/lockstep/pkg/view"
)

type options struct {
	*access.Access
	simulate.Question
	output *output.Flags
}

// New makes the command.
func New(a *access.Access) *cobra.Command {
	o := &options{Access: a, output: output.NewFlags()}
	cmd := &cobra.Command{
		Use:   "explain GANG",
		Short: "Tell where a gang stands, and why it waits",
		Long: `explain tells what the scheduler has said of a gang, what is known of its members, and of its queue. Then it has the scheduler, with
all its plugins and its configuration, decide about the gang once more, on the cluster as it is now: whether there is room, whom
it would evict, or what keeps the gang waiting, domain by domain. Nothing is written to the cluster. Where the scheduler cannot be asked,
since you may not read all that it reads, explain says why, and tells what is known without it.

GANG is the name of the gang, or NAMESPACE/NAME: that of its PodGroup, or the one in the annotation of its pods.`,
		Example: `  kubectl gang explain train
  kubectl gang explain team-a/train --nodes +4:a100`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0]) },
	}
	o.Question.AddFlags(cmd.Flags())
	o.output.AddFlags(cmd)
	return cmd
}

func (o *options) run(ctx context.Context, name string) error {
	gang, err := o.key(name)
	if err != nil {
		return err
	}
	if _, err := o.output.Printer(o.Out); err != nil {
		return err
	}
	if err := o.Check(); err != nil {
		return err
	}
	began := time.Now()
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
	return r.print(o.output, o.Out)
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

// key returns the gang that a user names.
func (o *options) key(name string) (string, error) {
	if parts := strings.Split(name, "/"); len(parts) == 2 && parts[0] != "" && parts[1] != "" {
		return name, nil
	}
	if name == "" || strings.Contains(name, "/") {
		return "", fmt.Errorf("checking the name: %q is neither NAME nor NAMESPACE/NAME", name)
	}
	namespace, err := o.Namespace(false)
	if err != nil {
		return "", err
	}
	return namespace + "/" + name, nil
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
	if len(members) == 0 && (g == nil || beside.group == nil && beside.native == nil) {
		return nil, &wrongError{noGang(gang, named, simulation.Profiles())}
	}
	r := &Report{Gang: gang, Pods: []Member{}}
	if len(members) > 0 {
		least, running := simulation.Minimum(members[0])
		if least == 0 && g != nil {
			least = g.Minimum // of a gang of which nothing is left to be scheduled
		}
		r = newReport(gang, members, least, running)
		r.Queue = queueOf(ctx, simulation, members[0])
	} else {
		r.Min = g.Minimum
	}
	r.tell(g, simulation.Profiles())
	r.Strangers, r.Notes = strangers(named, simulation.Profiles()), beside.notes
	asked := waiting(members)
	if len(asked) == 0 {
		return r, nil
	}
	if simulation.Reserves(asked[0]) && beside.reservationsRead {
		r.reserve(beside.reservations, asked)
	}
	return r, o.decide(ctx, r, asked, simulation, more)
}

// noGang returns the error that there is no gang, and what else has its name.
func noGang(gang string, named []*v1.Pod, profiles []string) error {
	if aside := strangers(named, profiles); aside != "" {
		return fmt.Errorf("there is no gang %q that the scheduler schedules: %s", gang, aside)
	}
	return fmt.Errorf("there is no gang %q: no pod is in it, and no PodGroup makes one of the name: see kubectl gang list",
		gang)
}

// decide adds what the scheduler decides about members that wait.
func (o *options) decide(ctx context.Context, r *Report, asked []*v1.Pod, simulation *simulate.Simulation,
	more *simulate.More) error {
	answer, err := simulation.Decide(ctx, asked)
	if err != nil {
		return err
	}
	r.add("now", answer, simulation, time.Time{})
	if line, waits := simulation.Line(asked[0]); waits && answer.Placed() < len(asked) {
		r.Line = &line
	}
	switch {
	case more == nil || answer.Placed() == len(asked):
		return nil
	case answer.Undecided:
		r.Notes = append(r.Notes, "there was no time left to ask with more nodes: see --timeout")
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
