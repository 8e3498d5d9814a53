package gang

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/klog/v2"

	"github.com/lockstep-sh/lockstep/pkg/planning/planner"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/placement/topology"
	"github.com/lockstep-sh/lockstep/pkg/status/decisions"
)

// recordDecision adds a decision for a group to the log. It looks at each member that was placed.
func (pl *Gang) recordDecision(ctx context.Context, a *gangstate.Attempt, result *planner.Plan, placed int) {
	d := decisions.Decision{Kind: decisions.Placement, Profile: pl.fw.ProfileName(), Result: decisions.Unplaced}
	var needs []string
	for i, need := range a.Gangs {
		d.Gangs = append(d.Gangs, need.Key.String())
		text := fmt.Sprintf("%s: %d members", need.Key, need.Min)
		if key := need.Spec.RequiredTopology; key != "" {
			text += " in one " + topology.ShortKey(key)
		}
		needs = append(needs, text)
		if i < len(result.Tried) && need.Min > 0 {
			tried := &result.Tried[i]
			d.Fits, d.Together = append(d.Fits, fitsOf(&need, tried)...), tried.Together
			if !tried.Together || d.Untried == 0 {
				d.Untried += tried.Untried
			}
		}
	}
	d.Refusals, d.Visited = result.Refusals, result.Visited
	d.Hopeless, d.EmptyCluster = result.Hopeless, result.EmptyCluster
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
		klog.FromContext(ctx).V(3).Info("Planned gang", "decision", d)
	}
}

// fitsOf returns how far a gang came, domain by domain.
func fitsOf(need *gangstate.Need, tried *planner.Tried) []decisions.Fit {
	one := decisions.Fit{Gang: need.Key.String(), Topology: need.Spec.RequiredTopology, Min: tried.Of}
	if len(tried.Domains) == 0 {
		return []decisions.Fit{one}
	}
	var fits []decisions.Fit
	for _, domain := range tried.Domains {
		one.Domain, one.Fits, one.Short = domain.Value, domain.Fit, map[string]string{}
		for name, amount := range domain.Short.Resources.List() {
			one.Short[string(name)] = amount.String()
		}
		for class, devices := range domain.Short.Devices {
			one.Short[class] = strconv.FormatInt(devices, 10)
		}
		one.Usability = domain.Usability
		fits = append(fits, one)
	}
	return fits
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
