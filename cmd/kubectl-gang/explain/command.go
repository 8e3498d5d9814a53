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
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/output"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/source"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
)

type options struct {
	*access.Access
	source.Question
	forecast Forecaster
	// all is whether a gang of any namespace is looked for, where none is named.
	all, verbose bool
}

// New makes the command.
func New(a *access.Access, forecast Forecaster) *cobra.Command {
	o := &options{Access: a, forecast: forecast}
	cmd := output.Command(&cobra.Command{
		Use:   "explain [GANG | TYPE/NAME]",
		Short: "Say how a gang stands, and why it waits",
		Long: `explain says in one line how a gang stands, and why it waits; and below that, how many of its members fit in
which domain, and what they are short of. For that it has the scheduler, with all its plugins and its configuration,
decide about the gang once more, on the cluster as it is now. Nothing is written to the cluster. -v tells all that is
known: what the scheduler has said, the queue and the place in it, Reservations, where victims were looked for, and
the members.

GANG is the name of the gang, or NAMESPACE/NAME. TYPE/NAME, or TYPE NAME, is job/NAME, pod/NAME or podgroup/NAME, in
the namespace of the flags. Without either, explain takes the gang of the namespace that waits, with -A of any, or lists
them if several do.`,
		Example: `  kubectl gang explain train
  kubectl gang explain job/train -n team-a -v

  # Whom would it evict, and would it start with four more nodes like those of pool a100?
  kubectl gang explain team-a/train --nodes +4:a100`,
		Args: cobra.MaximumNArgs(2),
	}, a.Out, func(ctx context.Context, printer *output.Printer, args []string) error {
		name, err := nameIn(args)
		if err != nil {
			return err
		}
		return o.run(ctx, printer, name)
	})
	cmd.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "Without a name: look in all namespaces.")
	cmd.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "Say all that is known.")
	o.Question.AddFlags(cmd.Flags())
	return cmd
}

// nameIn returns the name in the arguments: NAME, NAMESPACE/NAME or TYPE/NAME, which may be TYPE NAME; empty for none.
func nameIn(args []string) (string, error) {
	if len(args) == 2 && types[strings.ToLower(args[0])] == "" {
		return "", fmt.Errorf("checking the name: %q is none of job, pod, podgroup: write one NAME, or TYPE NAME", args[0])
	}
	return strings.Join(args, "/"), nil
}

func (o *options) run(ctx context.Context, printer *output.Printer, name string) error {
	more, err := o.More()
	if err != nil {
		return err
	}
	began := time.Now()
	gang, err := o.find(ctx, printer, name)
	if err != nil || gang == "" {
		return err
	}
	r, err := o.report(ctx, gang)
	if owners := (*ownersGangError)(nil); errors.As(err, &owners) {
		r, err = o.report(ctx, owners.gang)
	}
	if err != nil {
		return err
	}
	if more != nil && len(r.Cases) == 1 && r.Cases[0].Undecided && r.Cases[0].Placed < r.Cases[0].Asked {
		r.Advice = append(r.Advice, "There was no time left to ask with more nodes: see --timeout")
	}
	r.Seconds = time.Since(began).Seconds()
	return r.print(printer, o.Out, o.verbose)
}

// readTimeout is how long reading takes at most that does not go along with a forecast: the time for an answer may be
// over by then.
const readTimeout = 10 * time.Second

// report reports how a gang stands, with what the scheduler decides about it, or why that could not be asked. It fails
// where not even the pods can be read.
func (o *options) report(ctx context.Context, gang string) (*Report, error) {
	cluster, err := o.Cluster(o.Access)
	if err != nil {
		return nil, err
	}
	var beside *relatedObjects
	read := make(chan struct{})
	go func() {
		defer close(read)
		ctx, cancel := context.WithTimeout(ctx, o.Timeout)
		defer cancel()
		beside = readRelated(ctx, cluster.Read, gang)
	}()
	forecast, why := o.forecast(ctx, o.Access, &o.Question, gang)
	if wrong := (*WrongError)(nil); errors.As(why, &wrong) || why != nil && ctx.Err() != nil {
		return nil, why
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if why != nil {
		pods, err := cluster.Pods(ctx, gang[:strings.Index(gang, "/")])
		if err != nil {
			return nil, unasked(err, why)
		}
		named := Naming(pods, gang)
		forecast = &Forecast{Named: named, Members: named}
	}
	<-read
	g := beside.row(gang, forecast.Named)
	if g == nil && len(forecast.Named) == 0 {
		if r := evicted(ctx, cluster, gang); r != nil {
			r.Notes = beside.notes
			return r, nil
		}
	}
	members := forecast.Members
	if others := strangers(forecast.Named, forecast.Profiles); why == nil && len(others) == len(forecast.Named) {
		members = others // no profile schedules them
	}
	if g == nil && why != nil || len(members) == 0 &&
		(g == nil || len(beside.of.PodGroups)+len(beside.of.Natives) == 0) {
		if why != nil {
			return nil, unasked(o.unknown(ctx, cluster.Read, gang, strings.Join(beside.notes, "; ")), why)
		}
		return nil, o.unknown(ctx, cluster.Read, gang, "")
	}
	r := newReport(gang, members, g)
	defer r.judge(g)
	r.Notes = beside.notes
	r.Advice = append(r.Advice, badKeys(gang, &beside.of, members)...)
	for _, plan := range view.Plans(beside.plans) {
		r.Advice = append(r.Advice, planned(&plan))
	}
	if g != nil && (g.Minimum > 0 || beside.groupsRead) { // or else its PodGroup may say more than its pods
		r.there += len(forecast.Named) - len(members) // others are there, and name another scheduler
		r.tell(g, forecast.Profiles)
		r.tellEviction(ctx, cluster, g, time.Now())
		if g.Reason == v1alpha1.ReasonEvicted || v1alpha1.IsIncomplete(g.Reason) {
			r.Advice = append(r.Advice, lackingJobs(ctx, cluster.Read, g, beside.of.PodGroups, forecast.Named)...)
		}
	} else if g != nil {
		g.LeaveOpen()
	}
	if why == nil {
		r.addForecast(ctx, cluster.Read, forecast, beside)
		return r, nil
	}
	r.Unasked = o.unread(ctx, cluster, why)
	r.addUnasked(ctx, cluster.Read, g, Waiting(forecast.Members), beside)
	return r, nil
}

// planned says how far a plan has come that is to make room for a gang.
func planned(plan *view.Plan) string {
	text := fmt.Sprintf("DefragmentationPlan %s is to make room for it: %s", plan.Name, plan.Phase)
	if plan.Moves > 0 {
		text += fmt.Sprintf(", %d of %d moves are done; %s", plan.Moved, plan.Moves, plan.Message)
	}
	return text
}

// unasked returns an error with why the scheduler could not be asked.
func unasked(err, why error) error {
	return fmt.Errorf("%w; and the scheduler could not be asked: %w", err, why)
}

// addUnasked adds the queue and the Reservations of members that wait, as far as they are known without the scheduler.
func (r *Report) addUnasked(ctx context.Context, read reader, g *view.Gang, waiting []*v1.Pod, beside *relatedObjects) {
	if r.reserve(beside.reservations, waiting); len(r.Reservations) == 0 {
		r.Reservations = nil // whether its profile uses any is not known
	}
	if g.Queue == v1alpha1.DefaultQueue && len(beside.of.Namespaces) == 0 {
		return // its namespace may name another
	}
	r.addQueue(ctx, read, g.Queue)
}

// addQueue adds the numbers of a queue. There may be none of a queue that was not created, as of the default one.
func (r *Report) addQueue(ctx context.Context, read reader, name string) {
	q, err := readQueue(ctx, read, name)
	if err != nil && !apierrors.IsNotFound(err) {
		r.Notes = append(r.Notes, "the numbers of its queue "+name+" are not known: "+err.Error())
		return
	}
	r.Queue = q
}

// addForecast adds what the scheduler says.
func (r *Report) addForecast(ctx context.Context, read reader, f *Forecast, beside *relatedObjects) {
	r.Configuration, r.Line, r.MoreNodes, r.Cases = &f.Configuration, f.Line, f.MoreNodes, f.Cases
	others := strangers(f.Named, f.Profiles)
	if len(f.Members) == 0 {
		r.unscheduled = textUnscheduled(Waiting(others), f.Profiles)
	}
	if text := textStrangers(others, f.Profiles); text != "" && r.unscheduled == "" {
		r.Advice = append(r.Advice, text)
	}
	if f.Queue != "" {
		r.addQueue(ctx, read, f.Queue)
	}
	waiting := Waiting(f.Members)
	if len(waiting) == 0 {
		return
	}
	var err error
	if r.Leaderless, err = leaderless(ctx, read, f.Configuration); err != nil {
		r.Notes = append(r.Notes, "whether a scheduler leads is not known: "+err.Error())
	}
	if f.Reserves && beside.reservationsRead {
		r.reserve(beside.reservations, waiting)
	}
	r.Advice = append(r.Advice, f.Uncounted...)
	if text := r.heldForOthers(beside.reservations, time.Now()); text != "" {
		r.Advice = append(r.Advice, text)
	}
}

// Naming returns the pods that name a gang, in order of their names.
func Naming(pods []*v1.Pod, gang string) []*v1.Pod {
	named := slices.DeleteFunc(slices.Clone(pods), func(pod *v1.Pod) bool { return view.NamedGang(pod) != gang })
	slices.SortFunc(named, func(a, b *v1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return named
}
