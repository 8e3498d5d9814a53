package view

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/placement/topology"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/deviceclaims"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/pools"
	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// usualGPU is the resource that a topology shows where nodes have it.
const usualGPU v1.ResourceName = "nvidia.com/gpu"

// FreeCapacity is how much of a resource there is: cpu in thousandths, otherwise in the resource's own unit.
type FreeCapacity struct {
	Total int64 `json:"total"`
	// Used is what the pods on the nodes ask for.
	Used int64 `json:"used"`
	// Held is what Reservations hold of the rest.
	Held int64 `json:"held"`
	// Closed is what is left on nodes that take no pods: cordoned, not ready, or tainted so that no pod tolerates it.
	Closed int64 `json:"closed"`
	// Free is what is left on the others.
	Free int64 `json:"free"`
}

func (r *FreeCapacity) addCapacity(other FreeCapacity) {
	r.Total += other.Total
	r.Used += other.Used
	r.Held += other.Held
	r.Closed += other.Closed
	r.Free += other.Free
}

// NodeCapacity is a node and its capacity.
type NodeCapacity struct {
	Name         string `json:"name"`
	FreeCapacity `json:",inline"`
}

// Domain is the nodes with a value of a label, inside one domain of the level above, and their room.
type Domain struct {
	// Key is the label; empty for all nodes. Outside: the nodes have no such label.
	Key     string `json:"key,omitempty"`
	Value   string `json:"value,omitempty"`
	Outside bool   `json:"outside,omitempty"`
	Nodes   int    `json:"nodes"`
	// Empty is how many nodes take pods and have all of the resource free.
	Empty        int `json:"emptyNodes"`
	FreeCapacity `json:",inline"`
	// Largest is the most that is free in one domain of the level below, or on one node where that is the finest, and
	// LargestIn is which one; empty where nothing is free.
	Largest   int64  `json:"largestFree"`
	LargestIn string `json:"largestFreeIn,omitempty"`
	// Domains are the domains of the level below. In the finest, Members are the nodes.
	Domains []Domain       `json:"domains,omitempty"`
	Members []NodeCapacity `json:"members,omitempty"`
}

// Topology is the room of a cluster for a resource, domain by domain.
type Topology struct {
	Resource v1.ResourceName `json:"resource"`
	// Levels are the label keys, coarsest first.
	Levels []string `json:"levels"`
	Domain `json:",inline"`
}

// TopologyIn is what a topology is read from.
type TopologyIn struct {
	Nodes        []*v1.Node
	Pods         []*v1.Pod
	Reservations []*v1alpha1.Reservation
	Devices      Devices
	// Resource is what the topology shows; if it is empty, what is of interest.
	Resource v1.ResourceName
	// Levels are the label keys, coarsest first.
	Levels []string
}

// ofInterest returns what is of interest on some nodes: of what gangs ask for the extended resource that most members
// ask for, or else cpu; native PodGroups count as gangs, whatever their policy. Where there are no gangs it is GPUs by
// their usual name, or else the extended resource that most nodes have, or else cpu.
func ofInterest(nodes []*v1.Node, pods []*v1.Pod, claims *deviceclaims.Claims) v1.ResourceName {
	count := map[v1.ResourceName]int{}
	for _, node := range nodes {
		for name, amount := range node.Status.Allocatable {
			if IsExtended(name) && !amount.IsZero() {
				count[name]++
			}
		}
	}
	if name, ok := askedByGangs(pods, claims, count); ok {
		return name
	}
	if count[usualGPU] > 0 {
		return usualGPU
	}
	return mostFrequent(count)
}

// askedByGangs returns the extended resource, of those that nodes have, that most members of gangs ask for, or else
// cpu; false where there are no gangs.
func askedByGangs(pods []*v1.Pod, claims *deviceclaims.Claims,
	nodesWith map[v1.ResourceName]int) (name v1.ResourceName, ok bool) {
	count := map[v1.ResourceName]int{}
	for _, pod := range pods {
		if objectstate.HasEnded(pod) || NamedGang(pod) == "" {
			continue
		}
		ok = true
		for name, amount := range claims.Amount(pod) {
			if nodesWith[name] > 0 && amount > 0 {
				count[name]++
			}
		}
	}
	return mostFrequent(count), ok
}

// mostFrequent returns the resource that was counted most, of equals the first by name; cpu for none.
func mostFrequent(count map[v1.ResourceName]int) v1.ResourceName {
	names := slices.SortedFunc(maps.Keys(count), func(a, b v1.ResourceName) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b))
	})
	if len(names) == 0 {
		return v1.ResourceCPU
	}
	return names[0]
}

// TopologyOf returns the room of all nodes that have the resource.
func TopologyOf(in TopologyIn) Topology {
	with, claims := in.Devices.addTo(in.Nodes, in.Pods)
	if in.Resource == "" {
		in.Resource = ofInterest(with, in.Pods, claims)
	}
	p := parts{levels: in.Levels}
	used, held := usedOn(in.Pods, claims, in.Resource), heldOn(in.Reservations, claims, in.Resource)
	tolerations := tolerationsOf(in.Pods)
	nodes := slices.SortedFunc(slices.Values(with),
		func(a, b *v1.Node) int { return gangspec.CompareNatural(a.Name, b.Name) })
	var all []int
	for _, node := range nodes {
		room := freeCapacityOf(node, in.Resource, used[node.Name], held[node.Name])
		if repelsAll(node, tolerations) {
			room.Closed, room.Free = room.Closed+room.Free, 0
		}
		if room.Total == 0 {
			continue
		}
		all = append(all, len(p.nodes))
		p.nodes, p.rooms = append(p.nodes, node), append(p.rooms, NodeCapacity{Name: node.Name, FreeCapacity: room})
	}
	return Topology{Resource: in.Resource, Levels: in.Levels, Domain: p.domain(Domain{}, all, 0)}
}

// freeCapacityOf returns the capacity of a node: pods come before Reservations.
func freeCapacityOf(node *v1.Node, name v1.ResourceName, used, held int64) FreeCapacity {
	room := FreeCapacity{Total: resource.OfNode(node)[name], Used: used}
	left := max(0, room.Total-used)
	room.Held = min(held, left)
	if left -= room.Held; !objectstate.TakesPods(node) {
		room.Closed = left
	} else {
		room.Free = left
	}
	return room
}

// tolerationsOf returns the tolerations by key of pods that have not ended, each set once.
func tolerationsOf(pods []*v1.Pod) [][]v1.Toleration {
	sets := map[string][]v1.Toleration{}
	for _, pod := range pods {
		if objectstate.HasEnded(pod) {
			continue
		}
		if byKey, key := pools.ByKey(pod.Spec.Tolerations); len(byKey) > 0 {
			sets[key] = byKey
		}
	}
	return slices.Collect(maps.Values(sets))
}

// repelsAll reports whether a node has taints that keep off every pod with some of these tolerations, or none.
func repelsAll(node *v1.Node, tolerations [][]v1.Toleration) bool {
	tolerates := func(list []v1.Toleration) bool { return pools.Tolerate(list, node.Spec.Taints) }
	return !tolerates(nil) && !slices.ContainsFunc(tolerations, tolerates)
}

// usedOn returns what pods that have a node and have not ended ask for, by node.
func usedOn(pods []*v1.Pod, claims *deviceclaims.Claims, name v1.ResourceName) map[string]int64 {
	used := map[string]int64{}
	for _, pod := range pods {
		if objectstate.OccupiesNode(pod) {
			used[pod.Spec.NodeName] += claims.Amount(pod)[name]
		}
	}
	return used
}

// heldOn returns what Reservations hold and no pod uses, by node.
func heldOn(reservations []*v1alpha1.Reservation, claims *deviceclaims.Claims,
	name v1.ResourceName) map[string]int64 {
	on := map[string]int64{}
	for _, r := range reservations {
		for _, p := range reservationstate.Held(r) {
			holds, used := claims.Renamed(resource.FromList(p.Allocatable)), claims.Renamed(resource.FromList(p.Allocated))
			on[p.NodeName] += max(0, holds[name]-used[name])
		}
	}
	return on
}

// parts parts nodes into domains.
type parts struct {
	levels []string
	nodes  []*v1.Node
	rooms  []NodeCapacity
}

// domain fills in a domain of these nodes, which is parted by the levels from depth on.
func (p *parts) domain(d Domain, nodes []int, depth int) Domain {
	d.Nodes = len(nodes)
	for _, i := range nodes {
		d.addCapacity(p.rooms[i].FreeCapacity)
		if p.rooms[i].Free == p.rooms[i].Total {
			d.Empty++
		}
	}
	if depth == len(p.levels) {
		for _, i := range nodes {
			d.Members = append(d.Members, p.rooms[i])
			d.offer(p.rooms[i].Free, p.rooms[i].Name)
		}
		return d
	}
	key := p.levels[depth]
	label := func(i int) (string, bool) { value, ok := p.nodes[i].Labels[key]; return value, ok }
	inner := topology.Domains(nodes, label)
	slices.SortFunc(inner, func(a, b topology.Domain) int { return gangspec.CompareNatural(a.Value, b.Value) })
	for _, in := range inner {
		d.Domains = append(d.Domains, p.domain(Domain{Key: key, Value: in.Value}, in.Nodes, depth+1))
	}
	outside := slices.DeleteFunc(slices.Clone(nodes), func(i int) bool { _, ok := label(i); return ok })
	for _, in := range d.Domains {
		d.offer(in.Free, in.Title())
	}
	if len(outside) > 0 {
		d.Domains = append(d.Domains, p.domain(Domain{Key: key, Outside: true}, outside, depth+1))
	}
	return d
}

// offer notes what is free in one part; of equal parts the first counts.
func (d *Domain) offer(free int64, in string) {
	if free > d.Largest {
		d.Largest, d.LargestIn = free, in
	}
}

// Title returns what users call a domain: rack r2.
func (d *Domain) Title() string {
	switch {
	case d.Key == "":
		return "all nodes"
	case d.Outside:
		return "without a " + topology.ShortKey(d.Key)
	}
	return topology.ShortKey(d.Key) + " " + d.Value
}
