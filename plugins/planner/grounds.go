package planner

import (
	"slices"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/plugins/holds"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
)

// grounds returns where an attempt is planned first, one set of nodes after the other, where
// capacity is held for its members by name: the nodes that have it, and then the domains around
// them, where the gang has to be in one. None where nothing is held; that costs a question for
// each member.
func (p *Planner) grounds(a *gang.Attempt) (grounds [][]string) {
	var holders []hold.Holder
	keys := map[string]bool{}
	for _, need := range a.Gangs {
		for _, pod := range need.Pending {
			holders = append(holders, holds.GrantedBy(p.points.granters, pod)...)
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
	grounds = append(grounds, nodes)
	for key := range keys {
		if around := p.around(nodes, key); len(around) > len(nodes) {
			grounds = append(grounds, around)
		}
	}
	return grounds
}

// around lists the nodes that are in a domain of a topology with one of the given nodes, the
// given ones first.
func (p *Planner) around(nodes []string, key string) []string {
	all, err := p.fw.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return nil // kube-scheduler's own never fails
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

// named returns nodes by their names, without those that do not exist.
func (w *world) named(names []string) (nodes []int) {
	for _, name := range names {
		if node, ok := w.tx.Index(name); ok {
			nodes = append(nodes, node)
		}
	}
	return nodes
}
