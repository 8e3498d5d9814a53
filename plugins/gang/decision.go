package gang

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/klog/v2"

	"github.com/lockstep-sh/lockstep/pkg/planning/planner"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/topology"
	"github.com/lockstep-sh/lockstep/pkg/status/decisions"
)

// recordDecision adds a decision for a group to the log. It looks at each member that was placed.
func (pl *Gang) recordDecision(ctx context.Context, a *gangstate.Attempt, result *planner.Plan, placed int) {
	if pl.decisions == nil {
		return
	}
	d := decisions.Decision{Kind: decisions.Placement, Profile: pl.handle.ProfileName(), Result: decisions.Unplaced}
	var needs []string
	for i, need := range a.Gangs {
		d.Gangs = append(d.Gangs, need.Key.String())
		text := fmt.Sprintf("%s: %d members", need.Key, need.Min)
		if key := need.Spec.RequiredTopology; key != "" {
			text += " in one " + topology.ShortKey(key)
		}
		needs = append(needs, text)
		if i < len(result.Tried) {
			for _, domain := range result.Tried[i].Domains {
				d.Domains = append(d.Domains, decisions.Domain{
					Name: topology.ShortKey(need.Spec.RequiredTopology) + " " + domain.Value, Outcome: fmt.Sprintf("%d of %d members fit", domain.Fit, need.Min),
				})
			}
			d.Untried += result.Tried[i].Untried
		}
	}
	d.Need = strings.Join(needs, "; ")
	switch {
	case result.Complete:
		d.Result, d.Chosen = decisions.Placed, pl.domainOf(a, result)
	case placed > 0:
		d.Result = decisions.Held
	}
	if !result.Complete {
		d.Why = leaderWhy(a, result.Why)
	}
	if placed > 0 {
		nodes := map[string]bool{}
		for _, node := range result.Nodes {
			nodes[node] = true
		}
		d.Nodes = len(nodes)
	}
	if pl.decisions.Add(a.Group, pl.clock.Now(), d) {
		klog.FromContext(ctx).V(3).Info("Decided", "decision", d)
	}
}

// domainOf returns the domain of the first gang that requires one; empty where none does.
func (pl *Gang) domainOf(a *gangstate.Attempt, result *planner.Plan) string {
	for _, need := range a.Gangs {
		if need.Spec.RequiredTopology == "" {
			continue
		}
		for _, pod := range need.Pending {
			name, placed := result.Nodes[pod.UID]
			if !placed {
				continue
			}
			if info, err := pl.fw.SnapshotSharedLister().NodeInfos().Get(name); err == nil {
				return topology.ShortKey(need.Spec.RequiredTopology) + " " + info.Node().Labels[need.Spec.RequiredTopology]
			}
		}
	}
	return ""
}
