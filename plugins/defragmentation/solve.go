package defragmentation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/evictions"
	"github.com/lockstep-sh/lockstep/pkg/planning/planner"
	"github.com/lockstep-sh/lockstep/pkg/rules/defrag"
)

// attempts bounds how often moves are sought again after the plugins refused some.
const attempts = 64

// solve finds the cheapest moves after which the demand fits. If there are none it returns why. A proposal without
// moves means that the demand fits already.
func (r *round) solve(ctx context.Context, d *demand) (found *proposal, why string, err error) {
	now, err := planner.New(d.fw, r.scheduler.Holds, r.scheduler.Plugins).Plan(ctx, d.attempt, nil)
	switch {
	case err != nil:
		return nil, "", err
	case now.Complete && !d.more:
		return &proposal{}, "there is room for " + d.name + " as things are", nil
	case now.Hopeless:
		if key, err := d.missingLabel(); key != "" || err != nil {
			return nil, "no node has the label " + key, err
		}
		return nil, d.name + " would not fit on the nodes if they were empty", nil
	}
	r.searches++
	return r.withSimulation(ctx, d, func(p *problem) (*proposal, string, error) {
		r.measure(d, p)
		if d.more {
			p.setAside()
		} else if fits, err := r.beingMade(ctx, p); err != nil || fits {
			return nil, "room for " + d.name + " is being made: pods are ending", err
		}
		p.leaveOutCostly(r.args.ResourceType, d.minGain)
		return r.seek(ctx, d, p, func() (*defrag.Plan, string, error) {
			result, err := defrag.CheapestMoves(p.Problem)
			if err != nil || result.Found {
				return &result.Plan, "", err
			}
			why := fmt.Sprintf("no plan within %d moves and %d gangs makes room for %s", d.maxMoves, d.maxGangs, d.name)
			if len(p.usedUp) > 0 {
				why += "; no eviction is allowed now by PodDisruptionBudget " + strings.Join(p.usedUp, ", ")
			}
			if !result.Exhaustive {
				why = "the search was given up: " + why
			}
			return nil, why, nil
		})
	})
}

// missingLabel returns a label that the demand requires as its topology and that no node has; empty for none.
func (d *demand) missingLabel() (string, error) {
	nodes, err := d.fw.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return "", fmt.Errorf("listing nodes: %w", err)
	}
	for _, need := range d.attempt.Gangs {
		key := need.Spec.RequiredTopology
		if key != "" && !slices.ContainsFunc(nodes, func(info fwk.NodeInfo) bool {
			_, labelled := info.Node().Labels[key]
			return labelled
		}) {
			return key, nil
		}
	}
	return "", nil
}

// withSimulation calls do with the problem of the current cluster.
func (r *round) withSimulation(ctx context.Context, d *demand,
	do func(p *problem) (*proposal, string, error)) (found *proposal, why string, err error) {
	room, err := planner.New(d.fw, r.scheduler.Holds, r.scheduler.Plugins).Simulate(ctx, d.attempt, nil)
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, room.Discard(ctx)) }()
	p, err := r.newProblem(ctx, d, room)
	if err != nil {
		return nil, "", err
	}
	return do(p)
}

// leaveOutCostly keeps pods from being moved where the restarts for one of them alone would lose more than a plan may
// lose: otherwise the cheapest plan, by pods, might be one that is not made, and hide others.
func (p *problem) leaveOutCostly(name v1.ResourceName, minGain int64) {
	var gained int64
	for part, wanted := range p.Want {
		for class, c := range wanted.Classes {
			gained += p.classes[p.gangOf[part]][class].Demand.Request[name] * int64(c.Count)
		}
	}
	if minGain > 0 {
		p.keepPods(func(pod int) bool { return p.loss(name, []int{pod})*minGain <= gained*100 })
	}
}

// seek seeks moves that the plugins accept. best returns the best moves that are not known to be refused, or why there
// are none.
func (r *round) seek(ctx context.Context, d *demand, p *problem,
	best func() (*defrag.Plan, string, error)) (*proposal, string, error) {
	refused := ""
	for range attempts {
		plan, why, err := best()
		if err != nil || plan == nil {
			return nil, why + refused, err
		}
		mark := p.simulation.Checkpoint()
		places, again, err := r.check(ctx, d, p, plan)
		if err := errors.Join(err, p.simulation.Rollback(ctx, mark)); err != nil {
			return nil, "", err
		}
		if again == "" {
			return r.propose(d, p, plan, places), "", nil
		}
		klog.FromContext(ctx).V(3).Info("Moves were refused", "for", d.name, "why", again)
		refused = "; one try was refused: " + again
		if places == nil && !p.dropDomain(plan) {
			break
		}
	}
	return nil, "no moves were found that the plugins accept" + refused, nil
}

// beingMade reports whether it is enough to wait for pods that are ending.
func (r *round) beingMade(ctx context.Context, p *problem) (fits bool, err error) {
	_, leaving := evictions.Ending(p.simulation, map[types.UID]bool{}, r.clock.Now())
	if len(leaving) == 0 {
		return false, nil
	}
	mark := p.simulation.Checkpoint()
	for _, at := range leaving {
		if err := p.simulation.Remove(ctx, at.Info, at.Node); err != nil {
			return false, err
		}
	}
	fits, err = p.simulation.Fits(ctx)
	return fits, errors.Join(err, p.simulation.Rollback(ctx, mark))
}
