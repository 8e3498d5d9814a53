// Package forecast has a scheduler decide about a gang of the cluster once more, for kubectl gang explain.
package forecast

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang-forecast/simulate"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/explain"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/source"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/pools"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
	"github.com/lockstep-sh/lockstep/pkg/status/decisions"
	"github.com/lockstep-sh/lockstep/pkg/util/words"
)

// Gang is an [explain.Forecaster].
func Gang(ctx context.Context, a *access.Access, q *source.Question, gang string) (f *explain.Forecast, err error) {
	err = simulate.Ask(ctx, a, q, func(ctx context.Context, simulation *simulate.Simulation,
		more *source.More) (err error) {
		f, err = ask(ctx, gang, simulation, more)
		return err
	})
	return f, err
}

func ask(ctx context.Context, gang string, simulation *simulate.Simulation,
	more *source.More) (*explain.Forecast, error) {
	if err := simulation.Start(ctx); err != nil {
		return nil, err
	}
	var pods []*v1.Pod
	reading, readCtx := errgroup.WithContext(ctx)
	reading.Go(func() (err error) {
		pods, err = simulation.Pods(readCtx, gang[:strings.Index(gang, "/")])
		return err
	})
	reading.Go(func() error { return simulation.Ready(readCtx) })
	if err := reading.Wait(); err != nil {
		return nil, err
	}
	named := explain.Naming(pods, gang)
	members := slices.DeleteFunc(slices.Clone(named), func(pod *v1.Pod) bool { return simulation.GangOf(pod) != gang })
	f := &explain.Forecast{Configuration: simulation.Origin, Profiles: simulation.Profiles(), Named: named,
		Members: members}
	if len(members) > 0 {
		f.Queue = simulation.Set().QueueOf(members[0])
	}
	asked := explain.Waiting(members)
	if len(asked) == 0 {
		return f, nil
	}
	f.Reserves = simulation.Set().Reserves(asked[0])
	answer, err := simulation.Decide(ctx, asked)
	if err != nil {
		return nil, err
	}
	now := caseOf("now", gang, answer, simulation, time.Time{})
	f.Cases = append(f.Cases, now)
	if now.Placed == now.Asked {
		return f, nil
	}
	if simulation.Set().CurrentWait(asked[0]).Reason == queueing.Overused {
		f.Uncounted = uncounted(simulation.Set().Uncounted(), resource.OfPod(asked[0]))
	}
	why, _ := simulation.Set().Gangs().Why(asked[0])
	f.MoreNodes = moreNodes(&now, why.Topology)
	if at, of, first := simulation.Set().Line(asked[0]); at > 0 {
		f.Line = &explain.Line{Queue: f.Queue, At: at, Of: of, First: first}
	}
	if more == nil || now.Undecided {
		return f, nil
	}
	began := time.Now()
	title, err := simulation.Add(ctx, more)
	if err != nil {
		return nil, &explain.WrongError{Err: err}
	}
	if answer, err = simulation.Decide(ctx, asked); err != nil {
		return nil, err
	}
	f.Cases = append(f.Cases, caseOf(title, gang, answer, simulation, began))
	return f, nil
}

// uncounted says how much of what a pod asks for counts in no queue's share, though it is free, and why. Of a pod that
// asks for extended resources, such as GPUs, only these matter.
func uncounted(list []pools.Uncounted, request resource.Vector) (texts []string) {
	asked := slices.Collect(maps.Keys(request))
	if slices.ContainsFunc(asked, view.IsExtended) {
		asked = slices.DeleteFunc(asked, func(name v1.ResourceName) bool { return !view.IsExtended(name) })
	}
	for _, of := range list {
		amount := resource.Vector{}
		for _, name := range asked {
			amount[name] = of.Amount[name]
		}
		if amount.Zero() {
			continue
		}
		texts = append(texts, fmt.Sprintf("%s on %s do not count in shares: %s",
			amount, words.Count(of.Nodes, "node"), of.Why))
	}
	return texts
}

// caseOf returns what the scheduler decides about members of a gang in a case that it has looked at since a time.
func caseOf(name, gang string, answer *simulate.Answer, simulation *simulate.Simulation, began time.Time) explain.Case {
	c := explain.Case{Name: name, Placed: answer.Placed(), Undecided: answer.Undecided, Asked: len(answer.Verdicts)}
	nodes := map[string]int{}
	for i := range answer.Verdicts {
		if v := &answer.Verdicts[i]; v.Node != "" {
			nodes[v.Node]++
		} else {
			c.Why = view.AddWait(c.Why, cmp.Or(v.Reason, "Undecided"), v.Words())
		}
	}
	gangsOf := func(pods []*v1.Pod) []string {
		counts := map[string]int{}
		for _, pod := range pods {
			counts[cmp.Or(simulation.GangOf(pod), pod.Namespace+"/"+pod.Name+" (no gang)")]++
		}
		return explain.Counted(counts)
	}
	c.Nodes, c.Victims, c.Others = explain.Counted(nodes), gangsOf(answer.Victims), gangsOf(answer.Others)
	kept := simulation.Set().CurrentWait(answer.Verdicts[0].Pod).Reason != ""
	addDecisions(&c, simulation.Decisions(gang, began), kept)
	return c
}

// addDecisions adds the decisions that led to a case, of all that were made, the oldest first. kept is whether the
// queue keeps the gang from being tried: then what was tried before is not why it waits.
func addDecisions(c *explain.Case, all []decisions.Decision, kept bool) {
	waits := c.Placed < c.Asked
	for i := range all {
		switch d := &all[i]; {
		case d.Kind == decisions.Placement && d.Result == decisions.Placed:
			c.Chosen = d.Chosen
		case d.Kind == decisions.Placement && waits && !kept && len(d.Fits) > 0:
			c.Placement = d
		case d.Kind == decisions.Preemption && (waits && !kept || len(c.Victims) > 0 && d.Result == decisions.Evict):
			c.Search = d
		}
	}
}

// moreNodes returns whether more nodes would help in a case in which pods wait. scattered is the topology that alone
// keeps the gang waiting; empty for none.
func moreNodes(c *explain.Case, scattered string) explain.MoreNodes {
	switch {
	case !slices.ContainsFunc(c.Why, func(w view.Wait) bool { return w.Reason == v1alpha1.ReasonUnschedulable }):
		return explain.MoreNodesNoHelp
	case scattered != "":
		return explain.MoreNodesInOneDomain
	case c.Placement != nil && slices.ContainsFunc(c.Placement.Fits, func(f decisions.Fit) bool {
		return f.Topology != "" && f.Domain == ""
	}):
		return explain.MoreNodesWithLabel
	}
	return explain.MoreNodesHelp
}
