package defragmentation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/descheduler/pkg/framework/pluginregistry"
	frameworktypes "sigs.k8s.io/descheduler/pkg/framework/types"

	"github.com/lockstep-sh/lockstep/apis/descheduler"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/evictions"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/rules/defrag/migration"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// Name is the name of the plugin in a DeschedulerPolicy.
const Name = "Defragmentation"

// Gangs are the gangs of all profiles.
type Gangs interface {
	evictions.Gangs
	// Waiting returns the attempts for the gangs of a profile that have all their members and no place, in order
	// of rank.
	Waiting(profile string) []*gangstate.Attempt
	// InNoGang reports whether a pod is in no gang that is scheduled as one.
	InNoGang(pod *v1.Pod) bool
}

// Scheduler is a scheduler that follows the cluster, and never schedules.
type Scheduler struct {
	// Look makes its snapshot show the cluster as it is now.
	Look     func(ctx context.Context) error
	Profiles map[string]framework.Framework
	Gangs    Gangs
	Holds    *ledger.Shared
	Plugins  *extensionpoints.Plugins
	// Client reads and writes plans.
	Client client.Client
}

// Options are what the plugin needs beside its arguments.
type Options struct {
	// Scheduler returns the scheduler with a configuration file; for an empty name the embedded one.
	Scheduler func(configFile string) (*Scheduler, error)
	// DryRun reports whether the descheduler was told to change nothing: then plans are only logged.
	DryRun func() bool
	// Ended is called with the result of each round; nil means success. The descheduler itself only logs it.
	Ended func(err error)
}

// Defragmentation is the plugin.
type Defragmentation struct {
	args      *descheduler.DefragmentationArgs
	handle    frameworktypes.Handle
	scheduler *Scheduler
	dryRun    bool
	ended     func(err error)
	clock     clock.PassiveClock
}

var _ frameworktypes.BalancePlugin = &Defragmentation{}

// New returns the factory of the plugin.
func New(o Options) pluginregistry.PluginBuilder {
	return func(ctx context.Context, object runtime.Object, handle frameworktypes.Handle) (frameworktypes.Plugin, error) {
		args, ok := object.(*descheduler.DefragmentationArgs)
		if !ok {
			return nil, fmt.Errorf("reading arguments of %s: want DefragmentationArgs, got %T", Name, object)
		}
		scheduler, err := o.Scheduler(args.SchedulerConfig)
		if err != nil {
			return nil, fmt.Errorf("making %s: %w", Name, err)
		}
		return &Defragmentation{args: args, handle: handle, scheduler: scheduler, dryRun: o.DryRun(), ended: o.Ended,
			clock: clock.RealClock{}}, nil
	}
}

// Register adds the plugin to a registry of the descheduler.
func Register(registry pluginregistry.Registry, o Options) {
	registerMetrics()
	pluginregistry.Register(Name, New(o), &Defragmentation{}, &descheduler.DefragmentationArgs{},
		Validate, SetDefaults, registry)
}

// Name returns the name of the plugin.
func (pl *Defragmentation) Name() string { return Name }

// Balance makes a round: plans that users asked for get their moves, and if no plan is under way, one is made for the
// first waiting demand for which moves are found.
func (pl *Defragmentation) Balance(ctx context.Context, nodes []*v1.Node) *frameworktypes.Status {
	err := pl.round(ctx, nodes)
	pl.ended(err)
	if err != nil {
		return &frameworktypes.Status{Err: fmt.Errorf("defragmenting: %w", err)}
	}
	return nil
}

// criticalLabel is the label of nodes from which no pod is moved, where it is "true".
const criticalLabel = "critical"

// tries is for how many waiting demands a plan is sought in a round.
const tries = 8

func (pl *Defragmentation) round(ctx context.Context, nodes []*v1.Node) error {
	if err := pl.scheduler.Look(ctx); err != nil {
		return err
	}
	var plans v1alpha1.DefragmentationPlanList
	if err := pl.scheduler.Client.List(ctx, &plans); err != nil {
		return fmt.Errorf("listing DefragmentationPlans: %w", err)
	}
	allowed, critical := sets.New[string](), sets.New[string]()
	for _, node := range nodes {
		allowed.Insert(node.Name)
		if node.Labels[criticalLabel] == "true" {
			critical.Insert(node.Name)
		}
	}
	waiting := pl.waiting()
	foreign, err := pl.reservations(ctx)
	if err != nil {
		return err
	}
	r := &round{Defragmentation: pl, nodes: allowed, critical: critical, resting: pl.restingNodes(plans.Items),
		reservations: foreign, seen: measured{of: sets.New[*demand]()}}
	gangsFit.Reset()
	freeAmount.Reset()
	fragmented.Reset()
	defer r.publish()
	var errs []error
	busy := false
	for i := range plans.Items {
		p := &plans.Items[i]
		underway := p.Status.Phase == v1alpha1.DefragmentationPlanned || p.Status.Phase == v1alpha1.DefragmentationRunning
		busy = busy || underway && p.DeletionTimestamp == nil && carriedOut(p)
	}
	for i := range plans.Items {
		if p := &plans.Items[i]; !busy && p.DeletionTimestamp == nil && len(p.Status.Conditions) == 0 {
			found, err := r.answer(ctx, p, waiting)
			errs = append(errs, err)
			busy = found // the others next round: they may want the same nodes
		}
	}
	waiting = r.demandsForResource(ctx, waiting)
	switch {
	case busy:
	case pl.args.Mode == descheduler.ThresholdMode:
		errs = append(errs, r.threshold(ctx))
	default:
		errs = append(errs, r.demand(ctx, waiting, plans.Items))
	}
	return errors.Join(append(errs, r.measureRest(ctx, waiting))...)
}

// threshold makes a plan that empties units with little use.
func (r *round) threshold(ctx context.Context) error {
	d, found, why, err := r.emptyUnderused(ctx)
	if err != nil {
		return fmt.Errorf("seeking units to empty: %w", err)
	}
	if found != nil {
		why = r.tooLittle(found)
	}
	if why != "" {
		klog.FromContext(ctx).Info("No node to drain", "why", why)
		return nil
	}
	return r.write(ctx, d, found)
}

// tooLittle returns why the gain is not worth what restarts for it; empty where it is.
func (r *round) tooLittle(found *proposal) string {
	least := int64(*r.args.MinGain)
	if found.lost == 0 || found.gained*100 >= found.lost*least {
		return ""
	}
	return fmt.Sprintf("%d pods with %s in all would start anew for %s, and minGain is %d percent",
		found.restarts, amount(r.args.ResourceType, found.lost), amount(r.args.ResourceType, found.gained), least)
}

func amount(name v1.ResourceName, n int64) string {
	if n == 0 {
		return "no " + string(name)
	}
	return resource.Vector{name: n}.String()
}

// round is one round of the plugin.
type round struct {
	*Defragmentation
	// nodes are those that the policy selects, resting those from or to which a pod was moved within the cool-down, or
	// will be.
	nodes, resting sets.Set[string]
	// critical are those from which no pod is moved.
	critical sets.Set[string]
	// reservations are those that were not made for a plan.
	reservations sets.Set[types.UID]
	// searches is how often moves were sought.
	searches int
	seen     measured
}

// demandsForResource returns the demands that ask for the resource that lies in fragments.
func (r *round) demandsForResource(ctx context.Context, waiting []*demand) (asking []*demand) {
	asking = slices.DeleteFunc(slices.Clone(waiting), func(d *demand) bool { return !d.asks })
	if others := len(waiting) - len(asking); others > 0 {
		klog.FromContext(ctx).V(1).Info("Skipping pending gangs and pods that do not request the resourceType of the policy",
			"gangsAndPods", others, "resourceType", r.args.ResourceType)
	}
	return asking
}

// demand makes a plan for the first waiting demand for which moves are found.
func (r *round) demand(ctx context.Context, waiting []*demand, plans []v1alpha1.DefragmentationPlan) error {
	logger := klog.FromContext(ctx)
	logger.V(1).Info("Found pending pods", "number", len(waiting), "resource", r.args.ResourceType)
	var errs []error
	for _, d := range waiting {
		if r.searches == tries {
			break
		}
		if since := r.clock.Since(d.since); since < r.args.WaitedFor.Duration {
			logger.V(1).Info("Not looking for moves yet: pending for less than waitedFor", "for", d.name,
				"waits", since, "waitedFor", r.args.WaitedFor.Duration)
			continue
		}
		if p := r.planned(d, plans); p != nil {
			logger.Info("There is a plan already, or one ended not long ago", "for", d.name, "plan", p.Name, "phase",
				p.Status.Phase, "coolDownTime", r.args.CoolDownTime.Duration)
			continue
		}
		d.maxMoves, d.maxGangs, d.minGain = int(*r.args.MaxMoves), int(*r.args.MaxGangs), int64(*r.args.MinGain)
		found, why, err := r.solve(ctx, d)
		if err != nil {
			errs = append(errs, fmt.Errorf("seeking room for %s: %w", d.name, err))
			continue
		}
		if found != nil && len(found.moves) == 0 {
			logger.V(1).Info("There is room without a move: the scheduler places it", "for", d.name)
			continue
		}
		if found != nil {
			why = r.tooLittle(found)
		}
		if why != "" {
			logger.Info("No moves lead to room", "for", d.name, "why", why)
			continue
		}
		return errors.Join(append(errs, r.write(ctx, d, found))...)
	}
	return errors.Join(errs...)
}

// reservations returns the Reservations that were not made for a plan.
func (pl *Defragmentation) reservations(ctx context.Context) (sets.Set[types.UID], error) {
	var list v1alpha1.ReservationList
	if err := pl.scheduler.Client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("listing Reservations: %w", err)
	}
	foreign := sets.New[types.UID]()
	for i := range list.Items {
		if labels := list.Items[i].Labels; labels[v1alpha1.MigrationLabel] == "" && labels[v1alpha1.PlanLabel] == "" {
			foreign.Insert(list.Items[i].UID)
		}
	}
	return foreign, nil
}

// planned returns a plan for a demand that exists, or ended not long ago; nil for none. A plan that was outdated before
// any pod was moved does not count: it is made anew.
func (r *round) planned(d *demand, plans []v1alpha1.DefragmentationPlan) *v1alpha1.DefragmentationPlan {
	for i := range plans {
		p := &plans[i]
		complete := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.DefragmentationComplete)
		outdated := p.Status.EndTime != nil && p.Status.MovedCount == 0 &&
			complete != nil && complete.Reason == v1alpha1.DefragmentationReasonOutdated
		if d.isFor(p.Spec.Goal) && !r.cooledDown(p) && !outdated {
			return p
		}
	}
	return nil
}

// carriedOut reports whether a plan is carried out: others may never be, and are checked first if they are.
func carriedOut(p *v1alpha1.DefragmentationPlan) bool {
	return p.Spec.Mode == v1alpha1.DefragmentationExecute || p.Spec.Approved
}

// cooledDown reports whether a plan ended so long ago that it no longer counts.
func (pl *Defragmentation) cooledDown(p *v1alpha1.DefragmentationPlan) bool {
	return p.Status.EndTime != nil && pl.clock.Since(p.Status.EndTime.Time) >= pl.args.CoolDownTime.Duration
}

// restingNodes returns the nodes of plans that ended not long ago, or have not ended: only the plans record them.
func (pl *Defragmentation) restingNodes(plans []v1alpha1.DefragmentationPlan) sets.Set[string] {
	nodes := sets.New[string]()
	for i := range plans {
		p := &plans[i]
		if !carriedOut(p) || pl.cooledDown(p) {
			continue
		}
		for _, move := range p.Status.Moves {
			if !migration.PlanEnded(p.Status.Phase) || move.Phase == v1alpha1.MigrationSucceeded ||
				move.Phase == v1alpha1.MigrationRunning {
				nodes.Insert(move.SourceNode, move.TargetNode)
			}
		}
	}
	return nodes
}

// answer gives a plan that a user asked for its moves. It reports whether there are any.
func (r *round) answer(ctx context.Context, p *v1alpha1.DefragmentationPlan, waiting []*demand) (bool, error) {
	maxMoves, maxGangs := int(*r.args.MaxMoves), int(*r.args.MaxGangs)
	if n := p.Spec.Budget.MaxMoves; n > 0 {
		maxMoves = min(maxMoves, int(n))
	}
	if n := p.Spec.Budget.MaxGangs; n != nil {
		maxGangs = min(maxGangs, int(*n))
	}
	var found *proposal
	var why string
	var err error
	if p.Spec.Goal.Empty != nil {
		found, why, err = r.planEmptying(ctx, p, maxMoves, maxGangs)
	} else {
		var d *demand
		if d, why = r.asked(p, waiting); d != nil {
			d.maxMoves, d.maxGangs = maxMoves, maxGangs
			found, why, err = r.solve(ctx, d)
		}
	}
	switch {
	case err != nil:
		return false, fmt.Errorf("seeking moves for plan %s: %w", p.Name, err)
	case found == nil:
		return false, r.writeFound(ctx, p, nil, v1alpha1.DefragmentationReasonNone, why)
	case len(found.moves) == 0:
		return false, r.writeFound(ctx, p, nil, v1alpha1.DefragmentationReasonNothing, cmp.Or(why, "the goal already holds"))
	}
	err = r.writeFound(ctx, p, found, v1alpha1.DefragmentationReasonFound, found.words())
	if apierrors.IsConflict(err) {
		return true, nil // it is handled next round
	}
	return err == nil, err
}

// asked returns the demand that a plan is to make room for; without one, the reason.
func (r *round) asked(p *v1alpha1.DefragmentationPlan, waiting []*demand) (*demand, string) {
	if shape := p.Spec.Goal.Shape; shape != nil {
		if fault := resource.Check("spec.goal.shape.requests", shape.Requests, resource.MaxOfOne); fault != nil {
			return nil, fmt.Sprintf("no node can have what each member of the goal asks for: %s", fault)
		}
		fw, why := r.profile(p)
		if fw == nil {
			return nil, why
		}
		return demandOfShape(fw, p), ""
	}
	at := slices.IndexFunc(waiting, func(d *demand) bool { return d.isFor(p.Spec.Goal) })
	if pod := p.Spec.Goal.Pod; at < 0 && pod != nil {
		return nil,
			fmt.Sprintf("spec.goal.pod: no pod %s/%s with UID %s waits for room: there is none, or it has got a node, or is "+
				"in a gang, or its schedulerName is none of the profiles of %s",
				pod.Namespace, pod.Name, pod.UID, strings.Join(sortedKeys(r.scheduler.Profiles), ", "))
	}
	if at < 0 {
		return nil,
			"spec.goal.podGroup: no gang of that name waits for room: it has no members yet, or lacks some, or has got " +
				"nodes, or its schedulerName is none of the profiles of " + strings.Join(sortedKeys(r.scheduler.Profiles), ", ")
	}
	return waiting[at], ""
}
