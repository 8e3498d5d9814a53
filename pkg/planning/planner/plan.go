package planner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/planning/podclass"
	"github.com/lockstep-sh/lockstep/pkg/planning/whatif"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/placement"
)

// Planner plans on the snapshot of the running scheduling cycle. It must be used on the scheduling goroutine only.
type Planner struct {
	fw    framework.Framework
	holds *ledger.Shared
	hooks whatif.Hooks
	// Points are the gang extension points of the profile's plugins.
	Points
	// start is the node at which the next sweep begins, so that the load spreads over all nodes.
	start int
	// weights are those of the profile's Score plugins.
	weights    map[string]int64
	percentage *int32
	storage    podclass.Storage
	// checksResources: the profile filters by node resources, so bounds may rule out nodes before the filters.
	// checksAffinity: it filters by node labels and names. checksCordons, checksTaints: by these.
	checksResources, checksAffinity, checksCordons, checksTaints bool
	labels                                                       *podclass.LabelReader
}

// New returns the planner of a profile. All plugins of the profile must exist when it is called.
func New(fw framework.Framework, h *ledger.Shared, plugins *extensionpoints.Plugins) *Planner {
	p := &Planner{fw: fw, holds: h, hooks: whatif.HooksOf(plugins, fw), Points: pointsOf(plugins, fw),
		weights: map[string]int64{}, percentage: fw.PercentageOfNodesToScore()}
	p.storage = podclass.StorageOf(fw)
	enabled := fw.ListPlugins()
	for _, score := range enabled.Score.Enabled {
		p.weights[score.Name] = int64(score.Weight)
	}
	filters := func(name string) bool {
		return slices.ContainsFunc(enabled.Filter.Enabled, func(p schedconfig.Plugin) bool { return p.Name == name })
	}
	p.labels = labelReader(plugins, fw)
	p.checksResources, p.checksAffinity = filters(names.NodeResourcesFit), filters(names.NodeAffinity)
	p.checksCordons, p.checksTaints = filters(names.NodeUnschedulable), filters(names.TaintToleration)
	return p
}

// Plan is a finished plan.
type Plan struct {
	gangstate.Outcome
	// Demand of each planned member, for the ledger.
	Demand map[types.UID]ledger.Demand
	// Order is the order in which members were placed; each fits beside those before it.
	Order []types.UID
	// Tried is how far each gang of an attempt that failed came.
	Tried []Tried
	// Refusals counts the nodes that refused members of an attempt that failed, by reason; Visited is of how many nodes.
	Refusals map[string]int
	Visited  int
	// EmptyCluster is how much of a gang would fit into an empty cluster, in words, where one would not fit whole.
	EmptyCluster string
	// LostPlace: an earlier plan gave a member a node that is gone, has too little by now, is closed to it, or is no
	// longer in the domain of the others.
	LostPlace bool
}

// Plan plans an attempt. The members may use what the holders in evict hold, since those would be evicted. Members with
// capacity held for them by name, by a Reservation for example, go there if all fit, otherwise as many as do.
func (p *Planner) Plan(ctx context.Context, a *gangstate.Attempt, evict []hold.Holder) (result *Plan, err error) {
	for _, nodes := range p.heldNodes(a) {
		if result, err := p.plan(ctx, a, evict, nodes); err != nil || result.Complete {
			return result, err
		}
	}
	return p.plan(ctx, a, evict, nil)
}

// PlanOn plans an attempt on these nodes. It returns the node of each pod; nil if they do not all fit.
func (p *Planner) PlanOn(ctx context.Context, a *gangstate.Attempt, nodes []string) (map[types.UID]string, error) {
	result, err := p.plan(ctx, a, nil, nodes)
	if err != nil || !result.Complete {
		return nil, err
	}
	return result.Nodes, nil
}

// plan plans an attempt on some nodes only; nil for all. A plan on some nodes explains nothing.
func (p *Planner) plan(ctx context.Context, a *gangstate.Attempt, evict []hold.Holder,
	only []string) (result *Plan, err error) {
	w, problem, err := p.newProblem(ctx, a, evict, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.tx.Discard(ctx)) }()
	if only != nil {
		problem.Nodes = w.tx.Indexes(only)
	}
	if err := p.addPlaced(ctx, w, a); err != nil {
		return nil, err
	}
	result = &Plan{Outcome: gangstate.Outcome{Coupled: w.coupled}, LostPlace: w.lostPlace}
	infos := p.nodesFor(w.tx)
	if why, err := p.Refuse(ctx, GangOf(a), infos); err != nil || why != "" {
		result.Why = refuseAll(a, why)
		return result, err
	}
	if why := w.claimLimit(a); why != "" {
		result.Why, result.Reason = refuseAll(a, why), v1alpha1.ReasonMemberRejected
		return result, nil
	}
	solved, err := p.solve(ctx, w, problem, a, infos)
	if err != nil {
		return nil, err
	}
	result.Complete = solved.Complete
	w.recordPlacements(result, solved, w.base)
	for _, outcome := range solved.Gangs {
		result.Fit += outcome.Fit
	}
	if !solved.Complete && only == nil {
		result.Tried, result.Refusals, result.Visited = w.tried(a, problem, solved), w.refusals(), w.tx.Len()
		result.Why, result.Scattered = w.explain(a, result.Tried, solved), scattered(a, solved)
		result.Reason = w.rejection(a)
		result.Hopeless = w.hopeless(a, problem, result.Why)
		result.EmptyCluster = w.emptyCluster
		result.Shape = w.shape(a, problem)
	}
	if n := w.tx.Len(); n > 0 && only == nil {
		// A failed attempt has visited all nodes. The next begins at the same node, so that its explanation is worded the
		// same.
		p.start = (p.start + len(solved.Node)) % n
	}
	return result, nil
}

// recordPlacements fills in where each member was placed.
func (w *planState) recordPlacements(result *Plan, solved placement.Result, before whatif.Mark) {
	result.Nodes, result.Demand = map[types.UID]string{}, map[types.UID]ledger.Demand{}
	inPlaceOf := make(map[types.UID]types.UID, len(solved.As))
	for member, other := range solved.As {
		inPlaceOf[w.pods[other].UID] = w.pods[member].UID
	}
	for _, uid := range w.tx.Added(before) {
		result.Order = append(result.Order, inPlaceOf[uid])
	}
	devices := w.tx.Devices()
	for member, node := range solved.Node {
		pod := w.pods[member]
		result.Nodes[pod.UID] = w.tx.Node(node).Node().Name
		demand := w.classes[w.classOf[member]].Demand
		demand.Devices = devices[pod.UID]
		result.Demand[pod.UID] = demand
	}
}

// newProblem turns an attempt into a placement problem over indexes.
func (p *Planner) newProblem(ctx context.Context, a *gangstate.Attempt, evict []hold.Holder,
	inCopies bool) (*planState, placement.Problem, error) {
	group, err := p.groupingFor(ctx, a)
	if err != nil {
		return nil, placement.Problem{}, err
	}
	w := p.newPlanState(inCopies)
	problem, err := w.addMembers(a, group)
	if err != nil {
		return nil, problem, err
	}
	if w.tx, err = whatif.Begin(p.fw, p.hooks, w.oneByOne()); err != nil {
		return nil, problem, err
	}
	w.uses = group.Uses
	w.countVolumes()
	for member, pod := range w.pods {
		w.tx.MarkOwn(pod.UID)
		if c := w.classes[w.classOf[member]]; c.Claims.Contends && c.counted == "" {
			w.tx.MarkContending(pod.UID)
		}
	}
	if w.minResources, err = minResourcesOf(a, group.Labels); err != nil {
		return nil, problem, err
	}
	granted := append([]hold.Holder{{Profile: p.fw.ProfileName(), Group: a.Group}}, evict...)
	w.exemptHolders(problem, granted)
	for _, other := range p.holds.Devices(granted...) {
		w.tx.HoldDevices(other.Devices...)
	}
	w.sortClasses()
	for _, c := range w.classes {
		c.devices = sync.OnceValue(func() []int { return w.deviceBounds(c, true) })
		c.devicesLeft = sync.OnceValue(func() []int { return w.deviceBounds(c, false) })
		w.expectPod(c.Info)
	}
	for member, class := range w.classOf {
		problem.Members = append(problem.Members, placement.Member{
			Class: class, Role: w.pods[member].Labels[v1alpha1.RoleLabel], Own: w.classes[class].Claims.Any,
		})
	}
	if w.coupled {
		problem.Effort = coupledEffort + coupledEffortPerMember*len(w.pods)
	}
	problem.Nodes = make([]int, w.tx.Len())
	for i := range problem.Nodes {
		problem.Nodes[i] = (p.start + i) % w.tx.Len()
	}
	for i := range a.Gangs {
		w.setRanks(&problem, i, &a.Gangs[i])
	}
	return w, problem, nil
}

// groupingFor returns a grouping that knows the claims and labels of all members, including placed ones.
func (p *Planner) groupingFor(ctx context.Context, a *gangstate.Attempt) (group *podclass.Grouping, err error) {
	group = podclass.NewGrouping(p.storage)
	group.Granters, group.Images = p.granters, p.weights[names.ImageLocality] > 0
	for _, pod := range members(a) {
		podclass.CountClaims(group.Uses, pod)
	}
	group.Labels, err = p.labels.Signature(ctx, members(a))
	return group, err
}

// newPlanState returns a plan state without members.
func (p *Planner) newPlanState(inCopies bool) *planState {
	return &planState{
		Planner: p, mode: mode{inCopies: inCopies}, asked: asked{supplies: map[string]*supply{}},
		findings: findings{
			refused: map[string]map[string]bool{}, never: map[slot]bool{}, closedForGood: map[slot]bool{},
			lacking: map[v1.ResourceName]bool{}, notAdmittedPods: map[types.UID]bool{}, refusedFor: map[slot]string{},
			emptyNodes: map[slot]emptyNode{}, nodesByLabel: map[string]map[string][]int{},
		},
	}
}

// addMembers adds the members to place, by class, and returns the placement problem of their gangs.
func (w *planState) addMembers(a *gangstate.Attempt, group *podclass.Grouping) (placement.Problem, error) {
	problem := placement.Problem{KeepPartial: !a.Strict}
	for _, need := range a.Gangs {
		g := placement.Gang{
			Min: need.Min, MinByRole: need.MinByRole, HasExtra: len(need.Floor) > 0,
			Required: need.Spec.RequiredTopology, Shared: a.Shared() != "",
			Levels: Levels(&need.Spec.Layout), Unordered: need.Spec.Layout.Unordered, Custom: need.Spec.Layout.Custom,
			Even: need.Spec.Layout.Even,
		}
		for _, pod := range need.Pending {
			class, err := group.Classify(pod, need.Queue)
			if err != nil {
				return problem, err
			}
			g.Members = append(g.Members, len(w.pods))
			w.pods = append(w.pods, pod)
			w.classOf = append(w.classOf, class)
		}
		problem.Gangs = append(problem.Gangs, g)
	}
	w.classes, w.outstanding = newClasses(group), a.Outstanding
	w.coupled = slices.ContainsFunc(w.classes, (*class).Interdependent)
	problem.Attracted = slices.ContainsFunc(w.classes, func(c *class) bool {
		return len(c.Info.GetRequiredAffinityTerms()) > 0
	})
	return problem, nil
}

// exemptHolders exempts what these holders hold for all classes, and for each class what is held for its members by
// name.
func (w *planState) exemptHolders(problem placement.Problem, holders []hold.Holder) {
	holders = slices.Clip(holders)
	for _, c := range w.classes {
		c.holders = append(holders, c.Granted...)
	}
	for i, f := range w.minResources {
		if f == nil {
			continue
		}
		f.holders = holders
		for _, member := range problem.Gangs[i].Members {
			for _, holder := range w.classes[w.classOf[member]].Granted {
				if !slices.Contains(f.holders, holder) {
					f.holders = append(f.holders, holder)
				}
			}
		}
	}
}

// Members that refer to each other cost a millisecond or more per placement, so the search among them must be shorter.
const (
	coupledEffort          = 2000
	coupledEffortPerMember = 20
)

// addPlaced adds the members that an earlier plan placed and that the scheduler's cache does not have yet. The group
// holds their capacity.
func (p *Planner) addPlaced(ctx context.Context, w *planState, a *gangstate.Attempt) error {
	for _, need := range a.Gangs {
		domains := sets.Set[string]{}
		for _, placed := range need.Placed {
			if !placed.InPlan {
				continue
			}
			node, ok := w.tx.Index(placed.Node)
			if !ok {
				w.lostPlace = true
				continue
			}
			claims, err := p.storage.ReadClaims(placed.Pod, w.uses)
			if err != nil {
				return err
			}
			if claims.Contends {
				w.tx.MarkContending(placed.Pod.UID)
			}
			if w.volumeTakenBy != nil && len(claims.Static) == 1 {
				w.volumeTakenBy[placed.Pod.UID] = volume.GetPersistentVolumeClaimClass(claims.Static[0])
			}
			info, err := framework.NewPodInfo(placed.Pod)
			if err != nil {
				return fmt.Errorf("reading affinity of pod %s: %w", klog.KObj(placed.Pod), err)
			}
			w.expectPod(info)
			if err := w.tx.Add(ctx, info, node); err != nil {
				return err
			}
			on := w.tx.Node(node).Node()
			w.lostPlace = w.lostPlace || w.checksResources && w.oversold(node, info) || p.closedTo(placed.Pod, on) != ""
			if topology := need.Spec.RequiredTopology; topology != "" {
				domain, some := on.Labels[topology]
				domains.Insert(domain)
				w.lostPlace = w.lostPlace || !some || len(domains) > 1
			}
		}
	}
	w.base = w.tx.Checkpoint()
	return nil
}

// oversold reports whether the pods on a node ask for more than it has of what one of them asks for.
func (w *planState) oversold(node int, info fwk.PodInfo) bool {
	requested := w.tx.Node(node).GetRequested()
	for name, amount := range ledger.DemandOf(info).Request {
		has := w.allocatable(node, name)
		if amount > 0 && has > 0 && ledger.Amount(requested, name) > has { // where it has none a plugin may provide it
			return true
		}
	}
	return false
}

// expectPod announces a member that others may have to keep away from. A plan does not need that: it prepares the
// members one after the other in the snapshot.
func (w *planState) expectPod(info *framework.PodInfo) {
	if w.coupled && w.inCopies {
		w.tx.ExpectPod(info)
	}
}

// sortClasses numbers classes from the largest to the smallest by their share of the cluster.
func (w *planState) sortClasses() {
	if len(w.classes) < 2 {
		return // it saves a pass over all nodes
	}
	order, size := make([]int, len(w.classes)), w.shares()
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return size[b].compare(size[a]) })
	sorted, rank := make([]*class, len(order)), make([]int, len(order))
	for i, old := range order {
		sorted[i], rank[old] = w.classes[old], i
	}
	w.classes = sorted
	for i, old := range w.classOf {
		w.classOf[i] = rank[old]
	}
}

// share is how much of the cluster a pod requests: of the resource of which it is most, and of all together.
type share struct{ dominant, sum float64 }

func (s share) compare(other share) int {
	return cmp.Or(cmp.Compare(s.dominant, other.dominant), cmp.Compare(s.sum, other.sum))
}

// shares returns the share of each class in what the cluster has.
func (w *planState) shares() []share {
	requested := map[v1.ResourceName]bool{}
	for _, c := range w.classes {
		for name := range c.Demand.Request {
			requested[name] = true
		}
	}
	names := slices.Sorted(maps.Keys(requested))
	total := make([]int64, len(names))
	for i := range w.tx.Len() {
		has := w.tx.Node(i).GetAllocatable()
		for j, name := range names {
			total[j] += ledger.Amount(has, name)
		}
	}
	shares := make([]share, len(w.classes))
	for i, c := range w.classes {
		for j, name := range names {
			one := float64(c.Demand.Request[name]) / max(1, float64(total[j]))
			shares[i].dominant, shares[i].sum = max(shares[i].dominant, one), shares[i].sum+one
		}
	}
	return shares
}

// Sampling follows kube-scheduler: at least 100 nodes, then a percentage that falls as the cluster grows, at least 5.
const (
	sampleAtLeast        = 100
	sampleAtLeastPercent = 5
)

func (p *Planner) sample(nodes int) int {
	if nodes <= sampleAtLeast {
		return nodes
	}
	percent := 0
	if p.percentage != nil {
		percent = int(*p.percentage)
	}
	if percent == 0 {
		percent = max(sampleAtLeastPercent, 50-nodes/125)
	}
	return max(sampleAtLeast, nodes*percent/100)
}
