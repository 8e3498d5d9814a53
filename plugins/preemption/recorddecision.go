package preemption

import (
	"context"
	"fmt"

	"k8s.io/klog/v2"

	"github.com/lockstep-sh/lockstep/pkg/planning/victim"
	"github.com/lockstep-sh/lockstep/pkg/status/decisions"
)

// recordDomain records how far the search came in a domain.
func (s *searching) recordDomain(at domain, result *found, simulated bool) {
	if len(s.d.tried) == decisions.Domains {
		s.d.untried++
		return
	}
	one := decisions.Domain{Name: at.name}
	if s.round != nil {
		one.Round = s.round.Name
	}
	switch {
	case result != nil:
		one.Outcome = fmt.Sprintf("fits: %d pods go, cost %.2f, %d against a PodDisruptionBudget", result.harm.Pods,
			result.harm.Cost, result.harm.Violating)
		if result.harm.Kind == victim.Whole {
			one.Outcome += ", whole gangs among them"
		}
	case simulated && s.d.cutShort:
		one.Outcome = "cut short: no choice of victims fitted within searchTimeout"
	case simulated && s.d.overBudget:
		one.Outcome = "does not fit without taking more from queues, or jobs, than they have beyond their share"
	case simulated:
		one.Outcome = "does not fit, though the resources would do"
	case s.round == nil:
		one.Outcome = "short, and no pod may be evicted yet: only what other gangs hold can be given up"
	default:
		one.Outcome = "short even if every eligible pod were evicted"
	}
	s.d.tried = append(s.d.tried, one)
}

// recordDecision records a decision about a preemptor.
func (pl *GangPreemption) recordDecision(ctx context.Context, d *demand, f *found, result, why string) {
	one := decisions.Decision{
		Kind: decisions.Preemption, Profile: pl.fw.ProfileName(), Need: d.need.String(), Domains: d.tried, Untried: d.untried,
		Result: result, Why: why,
	}
	for _, need := range d.attempt.Gangs {
		one.Gangs = append(one.Gangs, need.Key.String())
	}
	if f != nil {
		one.Chosen, one.Nodes, one.Violating = f.domain, len(f.nodes()), f.harm.Violating
		for _, b := range f.selection.Bundles {
			kind := "Safe"
			if b.Kind == victim.Whole {
				kind = "Whole"
			}
			one.Bundles = append(one.Bundles,
				decisions.Bundle{Gang: b.Gang.ID, Kind: kind, Pods: len(b.Pods), Gain: b.Gain, Cost: b.Cost, ROI: b.ROI})
		}
	}
	if pl.Decisions.Add(d.attempt.Group, pl.clock.Now(), one) {
		klog.FromContext(ctx).V(3).Info("Decided whom to evict", "decision", one)
	}
}
