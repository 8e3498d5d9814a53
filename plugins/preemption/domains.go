package preemption

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/planning/planner"
	"github.com/lockstep-sh/lockstep/pkg/rules/placement/topology"
)

// domain is a set of nodes in which capacity is sought.
type domain struct {
	name  string
	nodes []int
	// counts: it counts towards maxDomains.
	counts bool
	// settles: if the preemptor fits here, later domains are not tried.
	settles bool
}

// domains lists where to search, in order: the domains that a plugin of the profile names; otherwise those of the
// required topology, cheapest first; otherwise those of the preferred levels, the finest first, and then the whole
// cluster.
func (pl *GangPreemption) domains(ctx context.Context, d *demand, room *planner.Simulation,
	infos []fwk.NodeInfo) ([]domain, error) {
	answers, err := pl.planner().Domains(ctx, d.gang, infos, extensionpoints.Evict)
	if err != nil {
		return nil, err
	}
	if len(answers) > 0 {
		room.ConfineMinResources()
		var list []domain
		for _, one := range answers {
			list = append(list, domain{name: one.Name, nodes: room.Indexes(one.Nodes), counts: true, settles: true})
		}
		return list, nil
	}
	required, wished := d.topology()
	if required != "" {
		list := byLabel(room, required)
		if value, fixed := room.RequiredDomain(required); fixed {
			list = slices.DeleteFunc(list, func(one domain) bool { return one.name != domainName(required, value) })
		}
		return list, nil
	}
	var list []domain
	for _, key := range slices.Backward(wished) {
		list = append(list, byLabel(room, key)...)
	}
	return append(list, pl.wholeCluster(slices.Clone(room.AllNodes()), infos)...), nil
}

// topology returns the topologies that the one gang to place asks for. A group of several gangs must be placed
// together, each gang in its own domain, which the plan chooses.
func (d *demand) topology() (required string, wished []string) {
	if shared := d.attempt.Shared(); shared != "" {
		return shared, nil
	}
	n := 0
	for _, need := range d.attempt.Gangs {
		if need.Min > 0 {
			required, wished = need.Spec.RequiredTopology, need.Spec.Layout.Wished()
			n++
		}
	}
	if n > 1 {
		return "", nil
	}
	return required, wished
}

// byLabel returns the domains of a label, sorted by how many members have no place there now, then by the number of
// their nodes, then by name.
func byLabel(room *planner.Simulation, key string) (list []domain) {
	short := map[string]int{}
	for _, d := range topology.Domains(room.AllNodes(), func(node int) (string, bool) {
		value, ok := room.Node(node).Node().Labels[key]
		return value, ok
	}) {
		name := domainName(key, d.Value)
		list = append(list, domain{name: name, nodes: d.Nodes, counts: true})
		short[name] = room.Short(d.Nodes)
	}
	slices.SortFunc(list, func(a, b domain) int {
		return cmp.Or(cmp.Compare(short[a.name], short[b.name]), cmp.Compare(len(a.nodes), len(b.nodes)),
			cmp.Compare(a.name, b.name))
	})
	return list
}

func domainName(key, value string) string { return topology.ShortKey(key) + " " + value }

// wholeCluster returns growing parts of the cluster, starting with the nodes with the least important pods. It sorts
// nodes, which are all.
func (pl *GangPreemption) wholeCluster(nodes []int, infos []fwk.NodeInfo) []domain {
	first, most := pl.candidateNodes(len(nodes))
	if first < len(nodes) {
		cheapness := make([]int32, len(nodes))
		for i, info := range infos {
			cheapness[i] = lowestPriority(info)
		}
		slices.SortStableFunc(nodes, func(a, b int) int { return cmp.Compare(cheapness[a], cheapness[b]) })
	}
	var list []domain
	for n := first; ; n *= 2 {
		n = min(n, most)
		list = append(list, domain{name: fmt.Sprintf("%d nodes", n), nodes: nodes[:n], settles: true})
		if n == most {
			return list
		}
	}
}

// candidateNodes returns how many nodes to search, at first and at most.
func (pl *GangPreemption) candidateNodes(nodes int) (first, most int) {
	most = nodes
	if limit := int(pl.args.MaxCandidateNodesAbsolute); limit > 0 {
		most = min(most, limit)
	}
	first = max(nodes*int(pl.args.MinCandidateNodesPercentage)/100, int(pl.args.MinCandidateNodesAbsolute), 1)
	return min(first, most), most
}
