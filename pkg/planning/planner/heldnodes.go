package planner

import (
	"slices"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
)

// heldNodes returns the node sets to plan an attempt on first, in order, if capacity is held for its members by name:
// the nodes with that capacity, then, for a gang that requires one domain, the domains around them. It returns nil if
// nothing is held.
func (p *Planner) heldNodes(a *gangstate.Attempt) (heldNodes [][]string) {
	var holders []hold.Holder
	keys := map[string]bool{}
	for _, need := range a.Gangs {
		for _, pod := range need.Pending {
			holders = append(holders, ledger.GrantedBy(p.granters, pod)...)
		}
		if key := need.Spec.RequiredTopology; key != "" {
			keys[key] = true
		}
	}
	if len(holders) == 0 {
		return nil
	}
	slices.SortFunc(holders, hold.Holder.Compare)
	nodes := p.holds.NodesOf(slices.Compact(holders)...)
	if len(nodes) == 0 {
		return nil
	}
	heldNodes = append(heldNodes, nodes)
	for key := range keys {
		if around := p.nodesInSameDomain(nodes, key); len(around) > len(nodes) {
			heldNodes = append(heldNodes, around)
		}
	}
	return heldNodes
}

// nodesInSameDomain lists the nodes that share a topology domain with one of the given nodes, the given ones first.
func (p *Planner) nodesInSameDomain(nodes []string, key string) []string {
	all, err := p.fw.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return nil // kube-scheduler's snapshot never fails
	}
	with, domains := map[string]bool{}, map[string]bool{}
	for _, name := range nodes {
		with[name] = true
	}
	label := func(info fwk.NodeInfo) (string, bool) {
		value, ok := info.Node().Labels[key]
		return value, ok
	}
	for _, info := range all {
		if value, ok := label(info); ok && with[info.Node().Name] {
			domains[value] = true
		}
	}
	around := slices.Clone(nodes)
	for _, info := range all {
		if value, ok := label(info); ok && domains[value] && !with[info.Node().Name] {
			around = append(around, info.Node().Name)
		}
	}
	return around
}
