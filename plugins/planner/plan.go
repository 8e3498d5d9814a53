package planner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/klog/v2"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/extension"
	"github.com/lockstep-sh/lockstep/plugins/holds"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
	"github.com/lockstep-sh/lockstep/plugins/internal/placement"
	"github.com/lockstep-sh/lockstep/plugins/internal/resource"
	"github.com/lockstep-sh/lockstep/plugins/whatif"
)

// Planner makes plans on the snapshot of the running scheduling cycle. It runs
// on the scheduling goroutine only.
type Planner struct {
	fw    framework.Framework
	holds *holds.Holds
	hooks whatif.Hooks
	// points are the gang extension points of the profile's plugins.
	points Points
	// start is the node at which the next sweep begins, so that all nodes have
	// their turn.
	start      int
	weights    map[string]int64
	percentage *int32
	storage    storage
	// The profile filters by these.
	checksResources, checksAffinity bool
}

// New makes the planner of a profile. It has to be called when all plugins of the
// profile are there.
func New(fw framework.Framework, h *holds.Holds, plugins *extension.Plugins) *Planner {
	p := &Planner{fw: fw, holds: h, hooks: whatif.HooksOf(plugins, fw), points: PointsOf(plugins, fw), weights: map[string]int64{}, percentage: fw.PercentageOfNodesToScore()}
	p.storage = storageOf(fw)
	enabled := fw.ListPlugins()
	for _, score := range enabled.Score.Enabled {
		p.weights[score.Name] = int64(score.Weight)
	}
	filters := func(name string) bool {
		return slices.ContainsFunc(enabled.Filter.Enabled, func(p schedconfig.Plugin) bool { return p.Name == name })
	}
	p.checksResources, p.checksAffinity = filters(names.NodeResourcesFit), filters(names.NodeAffinity)
	if !filters(names.DynamicResources) {
		p.storage.stock = nil
	}
	return p
}

// Plan is a finished plan.
type Plan struct {
	gang.Outcome
	// Demand of each planned member, for the ledger.
	Demand map[types.UID]holds.Demand
	// Order is the order in which members were placed, each where it fits beside those
	// before it.
	Order []types.UID
	// Tried is how far each gang of the attempt came.
	Tried []placement.Outcome
	// Coupled is whether members care about other pods.
	Coupled bool
	// Hopeless is whether the attempt would not fit either if everything else were gone, as far as the
	// nodes were looked at. Passing obstacles do not count: claims that have no volume yet, devices in
	// use, nodes that are not ready or cordoned.
	Hopeless bool
}

// Plan plans an attempt. The holds of the given holders are no obstacle; they would be given back.
// Members that have capacity held for them by name, by a reservation for example, go there, if all fit,
// or else as many as do.
func (p *Planner) Plan(ctx context.Context, a *gang.Attempt, evict []hold.Holder) (result *Plan, err error) {
	for _, nodes := range p.grounds(a) {
		if result, err := p.plan(ctx, a, evict, nodes); err != nil || result.Complete {
			return result, err
		}
	}
	return p.plan(ctx, a, evict, nil)
}

// PlanOn plans an attempt on these nodes, and returns where its pods go; nil if they do not fit.
func (p *Planner) PlanOn(ctx context.Context, a *gang.Attempt, nodes []string) (map[types.UID]string, error) {
	result, err := p.plan(ctx, a, nil, nodes)
	if err != nil || !result.Complete {
		return nil, err
	}
	return result.Nodes, nil
}

// plan plans an attempt on some nodes only; nil for all. A plan on some nodes explains nothing.
func (p *Planner) plan(ctx context.Context, a *gang.Attempt, evict []hold.Holder, only []string) (result *Plan, err error) {
	w, problem, err := p.pose(a, evict, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.tx.Discard(ctx)) }()
	if only != nil {
		problem.Nodes = w.named(only)
	}
	if err := p.standing(ctx, w, a); err != nil {
		return nil, err
	}
	infos := p.points.nodes(w.tx)
	if why, err := p.points.Refuse(ctx, GangOf(a), infos); err != nil || why != "" {
		return &Plan{Outcome: gang.Outcome{Why: w.refusal(a, why)}, Coupled: w.coupled}, err
	}
	if why := w.crowded(a); why != "" {
		return &Plan{Outcome: gang.Outcome{Why: w.refusal(a, why), Reason: v1alpha1.ReasonMemberRejected}, Coupled: w.coupled}, nil
	}
	solved, err := p.solve(ctx, w, problem, a, infos)
	if err != nil {
		return nil, err
	}
	result = &Plan{Coupled: w.coupled}
	result.Complete, result.Tried = solved.Complete, solved.Gangs
	w.note(result, solved, w.base)
	for _, outcome := range solved.Gangs {
		result.Fit += outcome.Fit
	}
	if !solved.Complete && only == nil {
		result.Why, result.Scattered = w.explain(a, problem, solved), scattered(a, solved)
		if w.rejects(a) {
			result.Reason = v1alpha1.ReasonMemberRejected
		}
		result.Hopeless = w.hopeless(a, problem, result.Why)
		result.Shape = w.shape(a, problem)
	}
	if n := w.tx.Len(); n > 0 && only == nil {
		// An attempt that fails has seen all nodes; the next begins where it did, so
		// that it explains itself in the same words.
		p.start = (p.start + len(solved.Node)) % n
	}
	return result, nil
}

// note writes down which member was placed where.
func (w *world) note(result *Plan, solved placement.Result, before whatif.Mark) {
	result.Nodes, result.Demand = map[types.UID]string{}, map[types.UID]holds.Demand{}
	inPlaceOf := make(map[types.UID]types.UID, len(solved.As))
	for member, other := range solved.As {
		inPlaceOf[w.pods[other].UID] = w.pods[member].UID
	}
	for _, uid := range w.tx.Added(before) {
		result.Order = append(result.Order, inPlaceOf[uid])
	}
	for member, node := range solved.Node {
		pod := w.pods[member]
		result.Nodes[pod.UID] = w.tx.Node(node).Node().Name
		demand := w.classes[w.classOf[member]].demand
		demand.Devices = w.tx.Devices(pod.UID)
		result.Demand[pod.UID] = demand
	}
}

// pose turns an attempt into a placement problem over indexes.
func (p *Planner) pose(a *gang.Attempt, evict []hold.Holder, inCopies bool) (*world, placement.Problem, error) {
	group, w := p.groupingFor(a), p.newWorld(inCopies)
	problem, err := w.gather(a, group)
	if err != nil {
		return nil, problem, err
	}
	if w.tx, err = whatif.Begin(p.fw, p.hooks, w.coupled && !inCopies); err != nil {
		return nil, problem, err
	}
	w.uses = group.uses
	w.countVolumes()
	for member, pod := range w.pods {
		w.tx.Own(pod.UID)
		if c := w.classes[w.classOf[member]]; c.claims.contends && c.counted == "" {
			w.tx.Contend(pod.UID)
		}
	}
	if w.floors, err = floorsOf(a); err != nil {
		return nil, problem, err
	}
	granted := append([]hold.Holder{{Profile: p.fw.ProfileName(), Group: a.Group}}, evict...)
	w.grant(problem, granted)
	for _, other := range p.holds.Devices(granted...) {
		w.tx.Hold(other.Devices...)
	}
	w.sortClasses()
	w.views = make([]*whatif.View, len(w.classes))
	for member, class := range w.classOf {
		problem.Members = append(problem.Members, placement.Member{
			Class: class, Role: w.pods[member].Labels[v1alpha1.RoleLabel], Own: w.classes[class].claims.any,
		})
	}
	for _, c := range w.classes {
		w.expect(c.info)
	}
	if w.coupled {
		problem.Effort = coupledEffort + coupledEffortPerMember*len(w.pods)
	}
	problem.Nodes = make([]int, w.tx.Len())
	for i := range problem.Nodes {
		problem.Nodes[i] = (p.start + i) % w.tx.Len()
	}
	for i := range a.Gangs {
		w.rank(&problem, i, &a.Gangs[i])
	}
	return w, problem, nil
}

// groupingFor returns a grouping that knows what all members use, those that are placed too.
func (p *Planner) groupingFor(a *gang.Attempt) *grouping {
	group := newGrouping(p.storage)
	group.granters = p.points.granters
	for _, need := range a.Gangs {
		for _, pod := range need.Pending {
			use(group.uses, pod)
		}
		for _, placed := range need.Placed {
			use(group.uses, placed.Pod)
		}
	}
	return group
}

// newWorld returns a world without members.
func (p *Planner) newWorld(inCopies bool) *world {
	return &world{
		fw: p.fw, holds: p.holds, storage: p.storage,
		sample: p.sample, weights: p.weights, checksResources: p.checksResources, checksAffinity: p.checksAffinity,
		inCopies: inCopies,
		refused:  map[string]map[string]bool{}, rejected: map[int]string{}, barred: map[int]bool{}, never: map[slot]bool{}, closed: map[slot]bool{}, lacking: map[v1.ResourceName]bool{},
		devices: map[counted]map[string]int{}, backs: map[v1.ResourceName]string{}, deniedPods: map[types.UID]bool{},
	}
}

// gather takes in the members that are to be placed, by class, and returns the placement problem of
// their gangs.
func (w *world) gather(a *gang.Attempt, group *grouping) (placement.Problem, error) {
	problem := placement.Problem{KeepPartial: !a.Strict}
	for _, need := range a.Gangs {
		g := placement.Gang{
			Min: need.Min, MinByRole: need.MinByRole, Floor: len(need.Floor) > 0,
			Required: need.Spec.RequiredTopology, Shared: a.Shared() != "",
			Levels: Levels(&need.Spec.Layout), Unordered: need.Spec.Layout.Unordered, Custom: need.Spec.Layout.Custom, Even: need.Spec.Layout.Even,
		}
		for _, pod := range need.Pending {
			class, err := group.add(pod)
			if err != nil {
				return problem, err
			}
			g.Members = append(g.Members, len(w.pods))
			w.pods = append(w.pods, pod)
			w.classOf = append(w.classOf, class)
		}
		problem.Gangs = append(problem.Gangs, g)
	}
	w.classes, w.outstanding = group.classes, a.Outstanding
	w.coupled = slices.ContainsFunc(w.classes, func(c *class) bool { return c.interdependent() })
	return problem, nil
}

// grant makes the holds of these holders no obstacle, nor, for each class, what is held for its members
// beside that.
func (w *world) grant(problem placement.Problem, holders []hold.Holder) {
	holders = slices.Clip(holders)
	for _, c := range w.classes {
		c.holders = append(holders, c.granted...)
	}
	for i, f := range w.floors {
		if f == nil {
			continue
		}
		f.holders = holders
		for _, member := range problem.Gangs[i].Members {
			for _, holder := range w.classes[w.classOf[member]].granted {
				if !slices.Contains(f.holders, holder) {
					f.holders = append(f.holders, holder)
				}
			}
		}
	}
}

// Members that care about each other cost a millisecond or more each time that one
// is placed, so a search among them has to end sooner.
const (
	coupledEffort          = 2000
	coupledEffortPerMember = 20
)

// standing adds the members that an earlier plan placed and that are not in the scheduler's cache yet.
// What is held for them belongs to this group.
func (p *Planner) standing(ctx context.Context, w *world, a *gang.Attempt) error {
	for _, need := range a.Gangs {
		for _, placed := range need.Placed {
			if !placed.InPlan {
				continue
			}
			node, ok := w.tx.Index(placed.Node)
			if !ok {
				continue // the node is gone; the member's own cycle will find out
			}
			claims, err := p.storage.read(placed.Pod, w.uses)
			if err != nil {
				return err
			}
			if claims.contends {
				w.tx.Contend(placed.Pod.UID)
			}
			if w.takes != nil && len(claims.static) == 1 {
				w.takes[placed.Pod.UID] = volume.GetPersistentVolumeClaimClass(claims.static[0])
			}
			info, err := framework.NewPodInfo(placed.Pod)
			if err != nil {
				return fmt.Errorf("reading affinity of pod %s: %w", klog.KObj(placed.Pod), err)
			}
			w.expect(info)
			if err := w.tx.Add(ctx, info, node); err != nil {
				return err
			}
		}
	}
	w.base = w.tx.Checkpoint()
	return nil
}

// expect names a member that others may have to keep away from. A plan does not need it: there the
// members are prepared one after the other in the snapshot.
func (w *world) expect(info *framework.PodInfo) {
	if w.coupled && w.inCopies {
		w.tx.Expect(info)
	}
}

// sortClasses numbers classes from the largest to the smallest by their dominant
// share of what the cluster has.
func (w *world) sortClasses() {
	if len(w.classes) < 2 {
		return
	}
	total := resource.Vector{}
	for i := range w.tx.Len() {
		has := w.tx.Node(i).GetAllocatable()
		for _, c := range w.classes {
			for name := range c.demand.Request {
				total[name] += 0
			}
		}
		for name := range total {
			total[name] += holds.Amount(has, name)
		}
	}
	order := make([]int, len(w.classes))
	size := make([]float64, len(w.classes))
	for i, c := range w.classes {
		order[i] = i
		for name, amount := range c.demand.Request {
			size[i] = max(size[i], float64(amount)/max(1, float64(total[name])))
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(size[b], size[a]) })
	sorted, rank := make([]*class, len(order)), make([]int, len(order))
	for i, old := range order {
		sorted[i], rank[old] = w.classes[old], i
	}
	w.classes = sorted
	for i, old := range w.classOf {
		w.classOf[i] = rank[old]
	}
}

// The sampling rule is kube-scheduler's: at least 100 nodes, then a percentage
// that falls as the cluster grows, not below 5.
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
