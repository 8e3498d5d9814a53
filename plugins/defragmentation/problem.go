package defragmentation

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	corehelper "k8s.io/kubernetes/pkg/apis/core/helper"

	"github.com/lockstep-sh/lockstep/apis/descheduler"
	"github.com/lockstep-sh/lockstep/pkg/evictions"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/planner"
	"github.com/lockstep-sh/lockstep/pkg/planning/victim"
	"github.com/lockstep-sh/lockstep/pkg/rules/defrag"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/deviceclaims"
	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// problem is a defrag.Problem and what its indexes mean.
type problem struct {
	defrag.Problem
	simulation *planner.Simulation
	columns    []v1.ResourceName
	// classes are those of each gang of the attempt; gangOf has, for each part, the gang that it is of.
	classes [][]planner.Class
	gangOf  []int
	// sliced: some of the gangs are in slices.
	sliced bool
	// pods are those that may be moved, as in Pods.
	pods []movablePod
	// kinds number the pods that are interchangeable.
	kinds ordinals
	// asks is what all running pods of each group ask for.
	asks []resource.Vector
	// units are the units to empty.
	units [][]int
	// before is how many gangs of the shape fit already, where more are to fit.
	before int32
	// fixed are the controllers whose pods stay.
	fixed map[types.UID]bool
	// bans are the nodes that the plugins have refused to a pod.
	bans map[ban]bool
	// refusals counts for each pod how often the plugins refused a node to it.
	refusals map[types.UID]int
	// usedUp are the PodDisruptionBudgets that keep pods from being moved now.
	usedUp []string
	// required is the node affinity that pods require, by UID.
	required map[types.UID]nodeaffinity.RequiredNodeAffinity
}

// movablePod is a pod that may be moved.
type movablePod struct {
	*v1.Pod
	info    fwk.PodInfo
	request resource.Vector
	// gang is what runs of its gang; nil for none.
	gang *gangstate.RunningGang
	// stays are the topologies in which it has to stay in its domain: its gang, or its slice of it, is there.
	stays []string
}

// ban is of pods that are interchangeable, from a node.
type ban struct{ kind, node int }

// refuse bans a pod, and those that are interchangeable with it, from a node.
func (p *problem) refuse(at, node int) {
	p.bans[ban{p.Pods[at].Kind, node}] = true
	p.refusals[p.pods[at].UID]++
}

func (p *problem) nodeName(node int) string { return p.simulation.Node(node).Node().Name }

// newProblem turns a demand, and the cluster, into a problem over indexes. The caller closes the simulation.
func (r *round) newProblem(ctx context.Context, d *demand, room *planner.Simulation) (*problem, error) {
	all := room.AllNodes()
	if _, err := room.Restrict(ctx, all, 4); err != nil {
		return nil, err
	}
	p := &problem{simulation: room, classes: room.Classes(), kinds: ordinals{}, fixed: map[types.UID]bool{},
		bans: map[ban]bool{}, refusals: map[types.UID]int{}, required: map[types.UID]nodeaffinity.RequiredNodeAffinity{}}
	candidates, found, err := r.candidates(d, room, all)
	if err != nil {
		return nil, err
	}
	p.columns = p.resources(found)
	p.setWant(d)
	for i := range all {
		p.Nodes = append(p.Nodes, defrag.Node{Free: p.free(r.scheduler.Holds, d, room.Node(i))})
	}
	for _, g := range found {
		p.group(candidates, g)
	}
	p.Limits = candidates.Budgets.Allowed()
	movable := make([]*v1.Pod, len(p.pods))
	for i, pod := range p.pods {
		movable[i] = pod.Pod
	}
	p.usedUp = candidates.Budgets.UsedUp(movable)
	p.FitsMember = func(part, class, node int) bool {
		return r.nodes.Has(room.Node(node).Node().Name) && room.Usable(p.classes[p.gangOf[part]][class], node)
	}
	p.Fits = func(pod, node int) bool { return r.isTarget(p, pod, node) }
	p.Budget = defrag.Budget{MaxMoves: d.maxMoves, MaxGroups: d.maxGangs}
	return p, nil
}

// candidates returns the gangs that run, with which of their pods may be moved.
func (r *round) candidates(d *demand, room *planner.Simulation,
	nodes []int) (*evictions.Candidates, []victim.Gang, error) {
	budgets, err := evictions.ListBudgets(d.fw.SharedInformerFactory().Policy().V1().PodDisruptionBudgets().Lister(), true)
	if err != nil {
		return nil, nil, err
	}
	ending, _ := evictions.Ending(room, map[types.UID]bool{}, r.clock.Now())
	own := map[evictions.Owner]bool{}
	for _, need := range d.attempt.Gangs {
		own[evictions.Owner{Profile: d.fw.ProfileName(), Gang: need.Key}] = true
	}
	c := &evictions.Candidates{
		Nodes: room, Gangs: r.scheduler.Gangs, Budgets: budgets, Own: own, Ending: ending,
		Now: r.clock.Now(), Grace: time.Minute,
		Request:    func(info fwk.PodInfo) victim.Vector { return ledger.DemandOf(info).Request },
		Protection: evictions.Protection{MinRuntime: func(*v1.Pod) time.Duration { return r.args.MinRuntime.Duration }},
	}
	return c, c.GangsOn(nodes, func(pod *v1.Pod) bool { return r.whyStays(d, pod) == "" }, true), nil
}

// whyStays returns why a pod may not be moved at all; empty where it may.
func (r *round) whyStays(d *demand, pod *v1.Pod) string {
	_, ours := r.scheduler.Profiles[pod.Spec.SchedulerName]
	controller := metav1.GetControllerOfNoCopy(pod)
	switch {
	case !ours:
		return "another scheduler places it"
	case pod.Status.Phase != v1.PodRunning:
		return "it does not run"
	case pod.DeletionTimestamp != nil:
		return "it is being deleted"
	case belongsToNode(pod):
		return "it belongs to its node"
	case !r.nodes.Has(pod.Spec.NodeName):
		return "the policy does not select its node, or that is not ready"
	case r.resting.Has(pod.Spec.NodeName):
		return "its node is in another plan, or in the coolDownTime after one"
	case r.critical.Has(pod.Spec.NodeName):
		return "its node has the label " + criticalLabel + "=true"
	case corev1helpers.PodPriority(pod) > d.priority:
		return "its priority is higher"
	case r.owns(pod):
		return "it uses a Reservation"
	case controller == nil && !r.args.EvictBarePods:
		return "no controller makes it again"
	case !r.evictable(pod.Namespace):
		return "evictableNamespaces leaves its namespace out"
	case slices.ContainsFunc(pod.Spec.Volumes, resource.IsAttached), deviceclaims.HasAny(pod):
		return "it has volumes or devices"
	case controller == nil:
		return "" // the evictor refuses every such pod
	case !r.madeAgain(controller):
		return "a " + controller.Kind + " is none of the controllerKinds"
	case !r.handle.Evictor().Filter(pod):
		return "the descheduler's evictor refuses it"
	}
	return ""
}

// belongsToNode reports whether a pod stays on its node even when the node is drained: it is of a DaemonSet, or of the
// kubelet.
func belongsToNode(pod *v1.Pod) bool {
	ref := metav1.GetControllerOfNoCopy(pod)
	_, mirror := pod.Annotations[v1.MirrorPodAnnotationKey]
	return mirror || ref != nil && ref.Kind == "DaemonSet"
}

// owns reports whether a pod uses a Reservation that was not made for a plan, and still exists.
func (r *round) owns(pod *v1.Pod) bool {
	use, ok := reservationstate.AllocationOf(pod)
	return ok && r.reservations.Has(use.UID)
}

func (r *round) evictable(namespace string) bool {
	n := r.args.EvictableNamespaces
	if len(n.Include) > 0 {
		return slices.Contains(n.Include, namespace)
	}
	return !slices.Contains(n.Exclude, namespace)
}

// resources returns the resources that the demand asks for, or a pod that may be moved; pods count as one, too.
func (p *problem) resources(gangs []victim.Gang) []v1.ResourceName {
	named := map[v1.ResourceName]bool{v1.ResourcePods: true}
	for _, classes := range p.classes {
		for _, class := range classes {
			for name := range class.Demand.Request {
				named[name] = true
			}
		}
	}
	for _, g := range gangs {
		for _, pod := range g.Pods {
			if pod.Protected {
				continue
			}
			for name := range pod.Request {
				named[name] = true
			}
		}
	}
	return sortedKeys(named)
}

// vector returns the request of one pod in columns.
func (p *problem) vector(request map[v1.ResourceName]int64) []int64 {
	v := make([]int64, len(p.columns))
	for i, name := range p.columns {
		if v[i] = request[name]; name == v1.ResourcePods {
			v[i] = 1
		}
	}
	return v
}

// free returns what a node has that is neither requested nor held for others.
func (p *problem) free(holds *ledger.Shared, d *demand, info fwk.NodeInfo) []int64 {
	held, _ := holds.Others(info, hold.Holder{Profile: d.fw.ProfileName(), Group: d.attempt.Group})
	has, used := info.GetAllocatable(), info.GetRequested()
	v := make([]int64, len(p.columns))
	for i, name := range p.columns {
		if name == v1.ResourcePods {
			v[i] = int64(has.GetAllowedPodNumber() - len(info.GetPods()) - held.Pods)
			continue
		}
		v[i] = ledger.Amount(has, name) - ledger.Amount(used, name) - held.Request[name]
	}
	return v
}

// isTarget reports whether a pod may be moved to a node, apart from the arithmetic.
func (r *round) isTarget(p *problem, at, index int) bool {
	pod, info := p.pods[at], p.simulation.Node(index)
	node := info.Node()
	if !r.nodes.Has(node.Name) || r.resting.Has(node.Name) || node.Spec.Unschedulable ||
		p.bans[ban{p.Pods[at].Kind, index}] ||
		!r.within(pod.request, info) {
		return false
	}
	if ref := metav1.GetControllerOfNoCopy(pod); ref != nil && p.fixed[ref.UID] {
		return false
	}
	source := p.simulation.Node(p.Pods[at].Node).Node()
	for _, key := range pod.stays {
		if domain, ok := source.Labels[key]; !ok || node.Labels[key] != domain {
			return false
		}
	}
	required, known := p.required[pod.UID]
	if !known {
		required = nodeaffinity.GetRequiredNodeAffinity(pod.Pod)
		p.required[pod.UID] = required
	}
	if match, err := required.Match(node); err != nil || !match {
		return false
	}
	_, repelled := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints,
		pod.Spec.Tolerations, func(t *v1.Taint) bool {
			return t.Effect == v1.TaintEffectNoSchedule || t.Effect == v1.TaintEffectNoExecute
		}, false)
	return !repelled
}

// within reports whether a node is a target for a pod by its utilization: high enough, where units are emptied, and not
// too high with the pod. For a demand that waits, any node with room will do: the fewest restarts
// count.
func (r *round) within(request resource.Vector, info fwk.NodeInfo) bool {
	for name, least := range r.args.DefragmentThresholds {
		if r.args.Mode != descheduler.ThresholdMode {
			break
		}
		if total, used := amountOf(info, name); total > 0 && float64(used)*100 < float64(least)*float64(total) {
			return false
		}
	}
	for name, most := range r.args.ProtectionThresholds {
		if most >= 100 {
			continue // no more than the node has anyway, once other pods have made room
		}
		asked := request[name]
		if name == v1.ResourcePods {
			asked = 1
		}
		if total, used := amountOf(info, name); total > 0 && float64(used+asked)*100 > float64(most)*float64(total) {
			return false
		}
	}
	return true
}

// group adds a running gang or single pod, with those of its pods that may be moved.
func (p *problem) group(c *evictions.Candidates, g victim.Gang) {
	candidate := c.Known()[g.ID]
	group := -1
	if !candidate.Of.IsPod() {
		group = len(p.Groups)
		p.Groups, p.asks = append(p.Groups, p.groupOf(c, candidate, g)), append(p.asks, asksOf(candidate))
	}
	for _, one := range g.Pods {
		at, there := c.Place(one.UID)
		if one.Protected || !there {
			continue
		}
		pod := movablePod{Pod: c.Pod(one.UID), info: at.Info, request: one.Request}
		key, _, _ := gangspec.KeyOf(pod.Pod)
		for i := range candidate.Gangs {
			f := &candidate.Gangs[i]
			pod.stays = append(pod.stays, f.Slices...)
			if f.RequiredTopology != "" {
				pod.stays = append(pod.stays, f.RequiredTopology)
			}
			if f.Key == key { // gangs that start together are one candidate
				pod.gang = f
			}
		}
		numbers := defrag.Pod{Node: at.Node, Request: p.vector(one.Request), Cost: p.cost(c.Now, pod.Pod), Group: group,
			Limits: sortedKeys(one.Guards)}
		numbers.Kind = p.kind(pod.Pod, numbers)
		p.Pods, p.pods = append(p.Pods, numbers), append(p.pods, pod)
	}
}

// kind returns the number of the interchangeable pods that a pod is one of: of the same controller, and alike
// otherwise. A pod without a controller is like no other.
func (p *problem) kind(pod *v1.Pod, one defrag.Pod) int {
	maker := pod.UID
	if ref := metav1.GetControllerOf(pod); ref != nil {
		maker = ref.UID
	}
	return p.kinds.ordinalOf(fmt.Sprint(maker, one))
}

// cost returns what it costs to restart a pod: 1. the pod; 2. its pod-deletion-cost; 3. how long it has run, in
// seconds.
func (p *problem) cost(now time.Time, pod *v1.Pod) defrag.Cost {
	deletion, _ := corehelper.GetDeletionCostFromPodAnnotations(pod.Annotations) // 0 if it is invalid
	since := pod.CreationTimestamp.Time
	if pod.Status.StartTime != nil {
		since = pod.Status.StartTime.Time
	}
	return defrag.Cost{1, int64(max(0, deletion)), max(0, int64(now.Sub(since).Seconds()))}
}

// groupOf returns how a gang may lose pods. If it breaks, all its running pods restart.
func (p *problem) groupOf(c *evictions.Candidates, candidate evictions.Candidate, g victim.Gang) defrag.Group {
	group := defrag.Group{}
	if len(g.MinByRole) == 0 && len(candidate.Gangs) == 1 {
		group.Spare = max(0, len(g.Pods)-g.Min)
	}
	for _, f := range candidate.Gangs {
		for _, member := range f.Running {
			cost := p.cost(c.Now, member.Pod)
			for i := range cost {
				group.Break[i] += cost[i]
			}
		}
	}
	return group
}

// asksOf returns what all running pods of a gang ask for.
func asksOf(candidate evictions.Candidate) resource.Vector {
	sum := resource.Vector{}
	for _, f := range candidate.Gangs {
		for _, member := range f.Running {
			sum.Add(resource.OfPod(member.Pod), 1)
		}
	}
	return sum
}

// setAside takes the room of the gangs of the shape that fit already: more have to fit beside them.
func (p *problem) setAside() {
	counts, left := capacity(&p.Problem, nil)
	for _, n := range counts {
		p.before += int32(n)
	}
	for i := range p.Nodes {
		p.Nodes[i].Free = left[i]
	}
}
