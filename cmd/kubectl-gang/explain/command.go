// Package explain is the command that tells why a gang waits.
package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/output"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/simulate"
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
it would evict, or what keeps the gang waiting, domain by domain. Nothing is written to the cluster.

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
	began := time.Now()
	return o.Ask(ctx, o.Access, func(ctx context.Context, simulation *simulate.Simulation, more *simulate.More) error {
		if err := simulation.Start(ctx); err != nil {
			return err
		}
		var pods []*v1.Pod
		reading, readCtx := errgroup.WithContext(ctx)
		reading.Go(func() (err error) {
			pods, err = simulation.Pods(readCtx, gang[:strings.Index(gang, "/")])
			return err
		})
		reading.Go(func() error { return simulation.Ready(readCtx) })
		if err := reading.Wait(); err != nil {
			return err
		}
		r, err := o.report(ctx, gang, membersOf(simulation, pods, gang), simulation, more)
		if err != nil {
			return err
		}
		r.Seconds = time.Since(began).Seconds()
		return r.print(o.output, o.Out)
	})
}

// key is the gang that a user names.
func (o *options) key(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	namespace, err := o.Namespace(false)
	if err != nil {
		return "", err
	}
	return namespace + "/" + name, nil
}

// membersOf are the pods of a gang, in order of their names.
func membersOf(simulation *simulate.Simulation, pods []*v1.Pod, gang string) []*v1.Pod {
	var members []*v1.Pod
	for _, pod := range pods {
		if simulation.GangOf(pod) == gang {
			members = append(members, pod)
		}
	}
	slices.SortFunc(members, func(a, b *v1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return members
}

// report asks the scheduler about the members that wait.
func (o *options) report(ctx context.Context, gang string, members []*v1.Pod, simulation *simulate.Simulation, more *simulate.More) (*Report, error) {
	if len(members) == 0 {
		return nil, fmt.Errorf("there is no gang %q with pods that a profile of the scheduler's configuration schedules: see kubectl gang list", gang)
	}
	r := newReport(gang, members, simulation)
	var waiting []*v1.Pod
	for _, pod := range members {
		if pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil {
			waiting = append(waiting, pod)
		}
	}
	if r.Queue = queueOf(ctx, simulation, members[0]); len(waiting) == 0 {
		return r, nil
	}
	answer, err := simulation.Decide(ctx, waiting)
	if err != nil {
		return nil, err
	}
	r.add("now", answer, simulation, time.Time{})
	if more == nil || answer.Placed() == len(waiting) {
		return r, nil
	}
	began := time.Now()
	if err := more.Suppose(ctx, simulation); err != nil {
		return nil, err
	}
	if answer, err = simulation.Decide(ctx, waiting); err != nil {
		return nil, err
	}
	r.add(more.String(), answer, simulation, began)
	return r, nil
}
