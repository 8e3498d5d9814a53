package planner

import (
	"context"
	"fmt"
	"math"

	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/planning/podclass"
	"github.com/lockstep-sh/lockstep/pkg/planning/victim"
	"github.com/lockstep-sh/lockstep/pkg/planning/whatif"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/placement"
)

// Points are the gang extension points that the plugins of a profile implement.
type Points struct {
	predicates []extensionpoints.Predicate
	spaces     []extensionpoints.SearchSpace
	// Selectors choose victims.
	Selectors []extensionpoints.VictimSelector
	rounds    []extensionpoints.VictimRounds
	// granters know what is held for members beside what their gang holds. Members for which that differs are of different
	// classes.
	granters []ledger.Granter
}

// pointsOf collects the extension points; all plugins of the profile must exist.
func pointsOf(plugins *extensionpoints.Plugins, fw framework.Framework) Points {
	return Points{
		predicates: extensionpoints.Of[extensionpoints.Predicate](plugins, fw),
		spaces:     extensionpoints.Of[extensionpoints.SearchSpace](plugins, fw),
		Selectors:  extensionpoints.Of[extensionpoints.VictimSelector](plugins, fw),
		rounds:     extensionpoints.Of[extensionpoints.VictimRounds](plugins, fw),
		granters:   extensionpoints.Of[ledger.Granter](plugins, fw),
	}
}

// labelReader returns the reader of the labels of a profile.
func labelReader(plugins *extensionpoints.Plugins, fw framework.Framework) *podclass.LabelReader {
	var signers []fwk.SignPlugin
	unsigned := false
	for _, plugin := range plugins.External(fw) {
		if signer, ok := plugin.(fwk.SignPlugin); ok {
			signers = append(signers, signer)
		} else {
			unsigned = unsigned || filtersOrScores(plugin)
		}
	}
	return podclass.NewLabelReader(fw, signers, unsigned)
}

// filtersOrScores reports whether a plugin filters or scores pods.
func filtersOrScores(plugin fwk.Plugin) bool {
	switch plugin.(type) {
	case fwk.PreFilterPlugin, fwk.FilterPlugin, fwk.PreScorePlugin, fwk.ScorePlugin, whatif.Predicate, whatif.Allocatable:
		return true
	}
	return false
}

// GangOf returns an attempt as extension points see it; a group of gangs is named after its first.
func GangOf(a *gangstate.Attempt) extensionpoints.Gang {
	g := extensionpoints.Gang{Namespace: a.Gangs[0].Key.Namespace, Name: a.Gangs[0].Key.Name,
		Min: a.Members(), Priority: math.MaxInt32}
	for _, need := range a.Gangs {
		g.Pods = append(g.Pods, need.Pending...)
	}
	for _, pod := range g.Pods {
		g.Priority = min(g.Priority, corev1helpers.PodPriority(pod))
	}
	return g
}

// Rounds returns, round by round, which pods a preemptor may evict.
func (p Points) Rounds(ctx context.Context, preemptor extensionpoints.Gang,
	need victim.Vector) []extensionpoints.Round {
	for _, plugin := range p.rounds {
		if rounds := plugin.VictimRounds(ctx, preemptor, need); len(rounds) > 0 {
			return rounds
		}
	}
	if preemptor.Beyond {
		return nil // no pod is evicted for it by priority
	}
	return []extensionpoints.Round{extensionpoints.Preempt(preemptor.Priority)}
}

// Refuse asks the plugins whether a gang can fit at all. It returns why not, or "".
func (p Points) Refuse(ctx context.Context, g extensionpoints.Gang, nodes []fwk.NodeInfo) (string, error) {
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

// Domains asks the plugins which nodes to search; nil if no plugin answers.
func (p Points) Domains(ctx context.Context, g extensionpoints.Gang, nodes []fwk.NodeInfo,
	purpose extensionpoints.Purpose) ([]extensionpoints.Domain, error) {
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

// nodesFor lists the nodes of the transaction, if a plugin needs them.
func (p Points) nodesFor(tx *whatif.Transaction) []fwk.NodeInfo {
	if len(p.predicates)+len(p.spaces) == 0 {
		return nil
	}
	infos := make([]fwk.NodeInfo, tx.Len())
	for i := range infos {
		infos[i] = tx.Node(i)
	}
	return infos
}

// solve places the members, inside one of the domains if a plugin names any; see placement.SolveWithin.
func (p *Planner) solve(ctx context.Context, w *planState, problem placement.Problem, a *gangstate.Attempt,
	infos []fwk.NodeInfo) (placement.Result, error) {
	domains, err := p.Domains(ctx, GangOf(a), infos, extensionpoints.Allocate)
	if err != nil {
		return placement.Result{}, err
	}
	sets := make([][]int, len(domains))
	for i, domain := range domains {
		sets[i] = w.tx.Indexes(domain.Nodes)
	}
	return placement.SolveWithin(ctx, w, problem, sets)
}
