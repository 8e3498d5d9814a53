package preemption

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/plugins/gangpoint"
	"github.com/lockstep-sh/lockstep/plugins/internal/topology"
	"github.com/lockstep-sh/lockstep/plugins/planner"
)

// domain is nodes in which room is sought.
type domain struct {
	name  string
	nodes []int
	// counts: only so many of these are tried.
	counts bool
	// settles: where room can be made in this one, those after it are not tried.
	settles bool
}

// domains lists where to look, in the order to try: the domains that a plugin of the profile
// names; else those of the required topology, those that cost least to enter first; else
// those of the levels that the gang wishes for, the finest first, and then the whole
// cluster.
func (pl *GangPreemption) domains(ctx context.Context, d *demand, room *planner.Room, infos []fwk.NodeInfo) ([]domain, error) {
	answers, err := pl.points.Domains(ctx, d.gang, infos, gangpoint.Evict)
	if err != nil {
		return nil, err
	}
	if len(answers) > 0 {
		room.Confine()
		return indexed(answers, room), nil
	}
	required, wished := d.topology()
	if required != "" {
		return d.pinned(byLabel(room, infos, required), infos), nil
	}
	var list []domain
	for _, key := range slices.Backward(wished) {
		list = append(list, byLabel(room, infos, key)...)
	}
	return append(list, pl.wholeCluster(d, infos)...), nil
}

// topology returns the topologies that the one gang to be placed asks for. A group of
// several gangs has to be placed together, each gang in a domain of its own, which the plan
// chooses.
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

// pinned reduces the domains of the required topology to the one in which members of the
// gang are already, if any are: the others have to be there too. Where other gangs of its
// group are makes no difference.
func (d *demand) pinned(domains []domain, infos []fwk.NodeInfo) []domain {
	taken := map[string]bool{}
	for _, need := range d.attempt.Gangs {
		if need.Min == 0 {
			continue // the domains are not its own
		}
		for _, placed := range need.Placed {
			taken[placed.Node] = true
		}
	}
	if len(taken) == 0 {
		return domains
	}
	for _, one := range domains {
		if slices.ContainsFunc(one.nodes, func(node int) bool { return taken[infos[node].Node().Name] }) {
			return []domain{one}
		}
	}
	return domains
}

func indexed(answers []gangpoint.Domain, room *planner.Room) []domain {
	var list []domain
	for _, answer := range answers {
		one := domain{name: answer.Name, counts: true, settles: true}
		known := map[int]bool{}
		for _, name := range answer.Nodes {
			if node, ok := room.Index(name); ok && !known[node] {
				known[node] = true
				one.nodes = append(one.nodes, node)
			}
		}
		list = append(list, one)
	}
	return list
}

// byLabel sorts the domains of a label by what they cost to enter: how many members have no
// place there as things are, then by the number of their nodes, then by name.
func byLabel(room *planner.Room, infos []fwk.NodeInfo, key string) []domain {
	at := map[string]int{}
	var list []domain
	for node, info := range infos {
		value, ok := info.Node().Labels[key]
		if !ok {
			continue
		}
		i, ok := at[value]
		if !ok {
			i = len(list)
			at[value] = i
			list = append(list, domain{name: topology.ShortKey(key) + " " + value, counts: true})
		}
		list[i].nodes = append(list[i].nodes, node)
	}
	short := make(map[string]int, len(list))
	for _, one := range list {
		short[one.name] = room.Short(one.nodes)
	}
	slices.SortFunc(list, func(a, b domain) int {
		return cmp.Or(cmp.Compare(short[a.name], short[b.name]), cmp.Compare(len(a.nodes), len(b.nodes)), cmp.Compare(a.name, b.name))
	})
	return list
}

// wholeCluster returns growing parts of the cluster, cheapest nodes first.
func (pl *GangPreemption) wholeCluster(d *demand, infos []fwk.NodeInfo) []domain {
	nodes := make([]int, len(infos))
	for i := range nodes {
		nodes[i] = i
	}
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

// candidateNodes returns how many of the nodes to look at, at first and at most.
func (pl *GangPreemption) candidateNodes(nodes int) (first, most int) {
	most = nodes
	if limit := int(pl.args.MaxCandidateNodesAbsolute); limit > 0 {
		most = min(most, limit)
	}
	first = max(nodes*int(pl.args.MinCandidateNodesPercentage)/100, int(pl.args.MinCandidateNodesAbsolute), 1)
	return min(first, most), most
}
