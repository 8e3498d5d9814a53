package preemption

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/eviction"
	"github.com/lockstep-sh/lockstep/plugins/gangpoint"
	"github.com/lockstep-sh/lockstep/plugins/holds"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/planner"
	"github.com/lockstep-sh/lockstep/plugins/roster"
	"github.com/lockstep-sh/lockstep/plugins/victim"
)

// candidate is what is known of a gang that may lose pods, or of several that start
// together.
type candidate struct {
	// name is what users know it by, of what it is.
	name string
	of   eviction.Owner
	// gangs are none for a single pod.
	gangs []gang.Footprint
}

// place is where a pod stands in the what-if.
type place struct {
	info fwk.PodInfo
	node int
}

// candidates turns the pods on nodes into gangs that may lose some.
type candidates struct {
	d      *demand
	round  *gangpoint.Round // nil: nobody is evicted
	tier   *gangpoint.Tier  // that is asked
	room   *planner.Room
	roster *roster.Roster
	// budgets order victims; nil where nobody is evicted.
	budgets *eviction.Budgets
	byID    map[string]candidate
	pods    map[types.UID]*v1.Pod
	at      map[types.UID]place
	// ending are the pods that leave without being chosen.
	ending map[types.UID]bool
	// refused are the pods of which the API server refused the eviction a moment ago.
	refused map[types.UID]bool
	// now is when the search began, grace how long a gang below its minimum is in repair.
	now   time.Time
	grace time.Duration
	sums  []*freed // by node
	// strangers are the pods of gangs that no profile knows, nil before they
	// were looked for.
	strangers map[eviction.Owner][]gang.Placed
}

// newCandidates supposes that the pods which are ending anyhow are gone: whoever they
// make room for has their place in the ledger already.
func (pl *GangPreemption) newCandidates(ctx context.Context, d *demand, room *planner.Room, round *gangpoint.Round) (*candidates, error) {
	c := &candidates{
		d: d, room: room, round: round, roster: pl.Roster, byID: map[string]candidate{}, pods: map[types.UID]*v1.Pod{}, at: map[types.UID]place{},
		ending: pl.Underway.All(), refused: pl.Underway.Refusals(pl.clock.Now()), now: pl.clock.Now(), grace: pl.args.BrokenGrace.Duration,
	}
	if round != nil {
		budgets, err := eviction.ListBudgets(pl.budgets)
		if err != nil {
			return nil, err
		}
		c.budgets = budgets
	}
	var leaving []place
	for node := range room.Len() {
		for _, info := range room.Node(node).GetPods() {
			pod := info.GetPod()
			if pod.DeletionTimestamp == nil && !c.ending[pod.UID] {
				continue
			}
			c.ending[pod.UID] = true
			if !eviction.Stuck(pod, c.now) { // else it may never end
				leaving = append(leaving, place{info, node})
			}
		}
	}
	for _, one := range leaving {
		if err := room.Remove(ctx, one.info, one.node); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// request is what a pod gives back of what the preemptor needs.
func (c *candidates) request(info fwk.PodInfo) victim.Vector {
	asked := info.CalculateResource().Resource
	request := make(victim.Vector, len(c.d.resources))
	for name := range c.d.resources {
		if amount := holds.Amount(asked, name); amount > 0 {
			request[name] = amount
		}
	}
	return request
}

// among finds the gangs that have pods on these nodes, as the first tier sees them that finds
// any of which pods may go; nil where none does.
func (c *candidates) among(nodes []int) []victim.Gang {
	for i := range c.round.Tiers {
		c.tier = &c.round.Tiers[i]
		gangs := c.on(nodes)
		for j := range gangs {
			if len(victim.Split(c.d.need, &gangs[j])) > 0 {
				return gangs
			}
		}
	}
	return nil
}

// on lists the gangs that have pods on these nodes, as the tier sees them.
func (c *candidates) on(nodes []int) []victim.Gang {
	local := map[types.UID]victim.Vector{}
	var owners []eviction.Owner
	first := map[eviction.Owner]*v1.Pod{}
	for _, node := range nodes {
		for _, info := range c.room.Node(node).GetPods() {
			pod := info.GetPod()
			id := eviction.OwnerOf(pod)
			if c.ending[pod.UID] || c.d.own[id] {
				continue
			}
			if !c.tier.Gangs {
				id = eviction.Owner{Pod: pod.UID}
			}
			local[pod.UID] = c.request(info)
			c.at[pod.UID] = place{info, node}
			if first[id] == nil {
				first[id] = pod
				owners = append(owners, id)
			}
		}
	}
	gangs := make([]victim.Gang, 0, len(owners))
	known := map[eviction.Owner]bool{}
	for _, one := range owners {
		if known[one] {
			continue // with another one
		}
		footprints := c.footprints(one, first[one])
		for _, f := range footprints {
			known[eviction.Owner{Profile: one.Profile, Gang: f.Key}] = true
		}
		gangs = append(gangs, c.gang(one.ID(), footprints, local))
	}
	return gangs
}

// gang is the candidate that runs so. Gangs that start together are of use together only:
// they are the parts of one. local has the requests of the pods on the nodes that are looked
// at.
func (c *candidates) gang(id string, footprints []gang.Footprint, local map[types.UID]victim.Vector) victim.Gang {
	g := victim.Gang{ID: id, Priority: math.MinInt32, Created: footprints[0].Created}
	if first := footprints[0].Running; c.round.Queue != nil && len(first) > 0 {
		g.Queue = c.round.Queue(first[0].Pod)
	}
	for _, f := range footprints {
		part, roles := "", ""
		if len(footprints) > 1 {
			part, roles = f.Key.String(), f.Key.String()+"/"
		}
		if c.inRepair(f) {
			f.Min, f.MinByRole = c.staying(f), nil // all that runs of it, or nothing
		}
		// Members that are done count off; the roles of those that are left bind as before.
		f.Min = max(f.Min, sum(f.MinByRole))
		g.Min += f.Min
		put(&g.MinByPart, part, f.Min)
		for role, n := range f.MinByRole {
			put(&g.MinByRole, roles+role, n)
		}
		for _, member := range f.Running {
			if c.ending[member.Pod.UID] {
				continue
			}
			pod := c.pod(member, local)
			pod.Part, pod.Role = part, roles+pod.Role
			g.Priority = max(g.Priority, pod.Priority)
			g.Pods = append(g.Pods, pod)
		}
	}
	return g
}

// inRepair reports whether a gang is below its minimum, and has not been for long: its
// members are being replaced, or are on their way to their nodes for the first time. Of a
// gang that no profile knows nobody tells since when.
func (c *candidates) inRepair(f gang.Footprint) bool {
	return !eviction.Enough(f, c.ending) && (f.BrokenSince.IsZero() || c.now.Sub(f.BrokenSince) < c.grace)
}

// staying is how many members of a gang run and are not about to end.
func (c *candidates) staying(f gang.Footprint) int {
	n := 0
	for _, member := range f.Running {
		if !c.ending[member.Pod.UID] {
			n++
		}
	}
	return n
}

func sum(byRole map[string]int) int {
	n := 0
	for _, least := range byRole {
		n += least
	}
	return n
}

func put(m *map[string]int, name string, n int) {
	if name == "" {
		return
	}
	if *m == nil {
		*m = map[string]int{}
	}
	(*m)[name] = n
}

func (c *candidates) pod(member gang.Placed, local map[types.UID]victim.Vector) victim.Pod {
	pod := member.Pod
	request, here := local[pod.UID]
	if !here {
		request = c.elsewhere(member)
	}
	c.pods[pod.UID] = pod
	return victim.Pod{
		UID: pod.UID, Request: request, Role: pod.Labels[v1alpha1.RoleLabel], Priority: corev1helpers.PodPriority(pod),
		Created: pod.CreationTimestamp.Time, Local: here, Guards: c.budgets.Guards(pod), Protected: c.protected(pod),
	}
}

// footprints is what runs of a gang, and of those that start together with it and run at
// all: what its profile knows, or for a gang that no profile does what is on the nodes.
// Where nobody knows the minimum of that, all of it counts.
func (c *candidates) footprints(of eviction.Owner, pod *v1.Pod) []gang.Footprint {
	key := of.Gang
	if of.Pod != "" {
		c.byID[of.ID()] = candidate{of: of, name: fmt.Sprintf("pod %s/%s", pod.Namespace, pod.Name)}
		return []gang.Footprint{{Min: 1, Created: pod.CreationTimestamp.Time, Running: []gang.Placed{{Pod: pod}}}}
	}
	together := slices.DeleteFunc(c.roster.Running(of.Profile, key), func(f gang.Footprint) bool { return len(f.Running) == 0 })
	if !slices.ContainsFunc(together, func(f gang.Footprint) bool { return f.Key == key }) {
		together = []gang.Footprint{c.stranger(of, pod)}
	}
	var names []string
	for _, f := range together {
		names = append(names, f.Key.String())
	}
	name := "gang " + names[0]
	if len(names) > 1 {
		name = "gangs " + strings.Join(names, ", ")
	}
	c.byID[of.ID()] = candidate{of: of, name: name, gangs: together}
	return together
}

func (c *candidates) stranger(of eviction.Owner, pod *v1.Pod) gang.Footprint {
	if c.strangers == nil {
		c.strangers = map[eviction.Owner][]gang.Placed{}
		for node := range c.room.Len() {
			info := c.room.Node(node)
			for _, p := range info.GetPods() {
				if one := p.GetPod(); !c.ending[one.UID] && eviction.OwnerOf(one).Pod == "" {
					c.strangers[eviction.OwnerOf(one)] = append(c.strangers[eviction.OwnerOf(one)], gang.Placed{Pod: one, Node: info.Node().Name})
				}
			}
		}
	}
	f := gang.Footprint{Key: of.Gang, Created: pod.CreationTimestamp.Time, Running: c.strangers[of], Min: len(c.strangers[of])}
	slices.SortFunc(f.Running, func(a, b gang.Placed) int { return cmp.Compare(a.Pod.UID, b.Pod.UID) })
	if n, ok := gang.MinimumOf(pod); ok {
		f.Min = n
	}
	return f
}

// elsewhere is what a pod outside the nodes that are looked at asks for.
func (c *candidates) elsewhere(member gang.Placed) victim.Vector {
	if at, ok := c.find(member.Pod.UID, member.Node); ok {
		return c.request(at.info)
	}
	return victim.Vector{}
}

// places returns where a pod stands.
func (c *candidates) places(uid types.UID) (place, bool) {
	at, ok := c.at[uid]
	return at, ok
}

func (c *candidates) find(uid types.UID, nodeName string) (place, bool) {
	node, ok := c.room.Index(nodeName)
	if !ok {
		return place{}, false
	}
	for _, info := range c.room.Node(node).GetPods() {
		if info.GetPod().UID == uid {
			c.at[uid] = place{info, node}
			return c.at[uid], true
		}
	}
	return place{}, false
}

// protected tells pods that stay: those of which the eviction was just refused, and those
// that the tier does not permit to go.
func (c *candidates) protected(pod *v1.Pod) bool {
	return c.refused[pod.UID] || !c.tier.Permits(pod)
}

// mayGo tells pods that some tier permits to go.
func (c *candidates) mayGo(pod *v1.Pod) bool {
	return !c.refused[pod.UID] && slices.ContainsFunc(c.round.Tiers, func(t gangpoint.Tier) bool { return t.Permits(pod) })
}

// lowestPriority is that of the least important pod on a node; of an empty one it is the
// lowest there is.
func lowestPriority(info fwk.NodeInfo) int32 {
	if len(info.GetPods()) == 0 {
		return math.MinInt32
	}
	lowest := int32(math.MaxInt32)
	for _, p := range info.GetPods() {
		lowest = min(lowest, corev1helpers.PodPriority(p.GetPod()))
	}
	return lowest
}
