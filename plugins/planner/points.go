package planner

import (
	"context"
	"fmt"
	"math"

	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/plugins/extension"
	"github.com/lockstep-sh/lockstep/plugins/gangpoint"
	"github.com/lockstep-sh/lockstep/plugins/holds"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/internal/placement"
	"github.com/lockstep-sh/lockstep/plugins/victim"
	"github.com/lockstep-sh/lockstep/plugins/whatif"
)

// Points are the gang extension points that plugins of a profile implement.
type Points struct {
	predicates []gangpoint.Predicate
	spaces     []gangpoint.SearchSpace
	// Selectors choose victims.
	Selectors []gangpoint.VictimSelector
	rounds    []gangpoint.VictimRounds
	// granters know what is held for members beside what their gang holds. Members for which
	// it is not the same are of different classes.
	granters []holds.Granter
}

// PointsOf finds them; all plugins of the profile have to be made.
func PointsOf(plugins *extension.Plugins, fw framework.Framework) Points {
	return Points{
		predicates: extension.Of[gangpoint.Predicate](plugins, fw),
		spaces:     extension.Of[gangpoint.SearchSpace](plugins, fw),
		Selectors:  extension.Of[gangpoint.VictimSelector](plugins, fw),
		rounds:     extension.Of[gangpoint.VictimRounds](plugins, fw),
		granters:   extension.Of[holds.Granter](plugins, fw),
	}
}

// GangOf returns an attempt as extension points see it; a group of gangs goes by its first.
func GangOf(a *gang.Attempt) gangpoint.Gang {
	g := gangpoint.Gang{Namespace: a.Gangs[0].Key.Namespace, Name: a.Gangs[0].Key.Name, Min: a.Members(), Priority: math.MaxInt32}
	for _, need := range a.Gangs {
		g.Pods = append(g.Pods, need.Pending...)
	}
	for _, pod := range g.Pods {
		g.Priority = min(g.Priority, corev1helpers.PodPriority(pod))
	}
	return g
}

// Rounds asks which pods a preemptor may take from, round by round.
func (p Points) Rounds(ctx context.Context, preemptor gangpoint.Gang, need victim.Vector) []gangpoint.Round {
	for _, plugin := range p.rounds {
		if rounds := plugin.VictimRounds(ctx, preemptor, need); len(rounds) > 0 {
			return rounds
		}
	}
	return []gangpoint.Round{gangpoint.Preempt(preemptor.Priority)}
}

// Refuse asks whether a gang can fit at all. It returns why not, or nothing.
func (p Points) Refuse(ctx context.Context, g gangpoint.Gang, nodes []fwk.NodeInfo) (string, error) {
	for _, predicate := range p.predicates {
		status := predicate.GangPredicate(ctx, g, nodes)
		switch {
		case status.IsSuccess():
		case status.IsRejected():
			return status.Message(), nil
		default:
			return "", fmt.Errorf("asking whether gang %s/%s can fit at all: %w", g.Namespace, g.Name, status.AsError())
		}
	}
	return "", nil
}

// Domains asks where to look; nil where no plugin says.
func (p Points) Domains(ctx context.Context, g gangpoint.Gang, nodes []fwk.NodeInfo, purpose gangpoint.Purpose) ([]gangpoint.Domain, error) {
	for _, space := range p.spaces {
		domains, status := space.GangSearchSpace(ctx, g, nodes, purpose)
		if !status.IsSuccess() {
			return nil, fmt.Errorf("asking where gang %s/%s may go: %w", g.Namespace, g.Name, status.AsError())
		}
		if len(domains) > 0 {
			return domains, nil
		}
	}
	return nil, nil
}

// nodes lists the nodes of the transaction, where a plugin wants them.
func (p Points) nodes(tx *whatif.Transaction) []fwk.NodeInfo {
	if len(p.predicates)+len(p.spaces) == 0 {
		return nil
	}
	infos := make([]fwk.NodeInfo, tx.Len())
	for i := range infos {
		infos[i] = tx.Node(i)
	}
	return infos
}

// solve places the members: where a plugin of the profile names domains, inside one of them,
// see placement.SolveWithin.
func (p *Planner) solve(ctx context.Context, w *world, problem placement.Problem, a *gang.Attempt, infos []fwk.NodeInfo) (placement.Result, error) {
	domains, err := p.points.Domains(ctx, GangOf(a), infos, gangpoint.Allocate)
	if err != nil {
		return placement.Result{}, err
	}
	sets := make([][]int, len(domains))
	for i, domain := range domains {
		known := map[int]bool{}
		for _, name := range domain.Nodes {
			if node, ok := w.tx.Index(name); ok && !known[node] {
				known[node] = true
				sets[i] = append(sets[i], node)
			}
		}
	}
	return placement.SolveWithin(ctx, w, problem, sets)
}
