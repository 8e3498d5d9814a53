package preemption

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/utils/clock"
	pgclientset "sigs.k8s.io/scheduler-plugins/pkg/generated/clientset/versioned"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/apis/config/validation"
	"github.com/lockstep-sh/lockstep/pkg/evictions"
	"github.com/lockstep-sh/lockstep/pkg/framework/watches"
	"github.com/lockstep-sh/lockstep/pkg/kube/leadership"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/planning/planner"
	"github.com/lockstep-sh/lockstep/pkg/reservations/reservepods"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate/evictionrecord"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
	"github.com/lockstep-sh/lockstep/pkg/status/decisions"
)

// Name is the name of the plugin in a KubeSchedulerConfiguration.
const Name = evictions.Plugin

// Messages of attempts that evict nothing. They stay the same as long as the fact does.
const (
	msgWaiting  = "waiting for pods to terminate that make room"
	msgNever    = "not eligible to preempt: a member, or the PodGroup, has preemptionPolicy Never"
	msgReserves = "not eligible to preempt: for a Reservation, ReservationArgs need preempt: true, " +
		"and its template no preemptionPolicy Never"
	msgProtected = "no victims: evicting every eligible pod would still not fit the minimum; " +
		"some pods are protected, because their gang started, or lost pods to an eviction, recently"
	msgNoVictims = "no victims: evicting every eligible pod would still not fit the minimum"
	msgBudget    = "no victims: that would take more from other queues, or jobs, than they have beyond their share"
	msgTooLate   = "no victims found within the searchTimeout of %s; the next search has up to twice as long: " +
		"if this stays, raise searchTimeout, or lower maxDomains or maxCandidateNodesAbsolute"
	msgBeyond   = "no victims: extra members evict no pods by priority; they wait for free room"
	msgReclaims = ", and their queue reclaims for them only single pods and extra members of other gangs"
	msgDelay    = "the preemption delay has not passed"
	msgAborted  = "preemption aborted; retrying"
)

// Shared is shared by the profiles of a process.
type Shared struct {
	Holds   *ledger.Shared
	Gangs   Gangs
	Plugins *extensionpoints.Plugins
	// Promises are holds for pods that do not exist yet.
	Promises Promises
	// Queues says what gangs have in their queues.
	Queues Queues
	// Underway tracks the evictions of all profiles.
	Underway *evictions.ActivePreemptions
	// Watches registers the plugin's watches; nil for no registration.
	Watches *watches.Watches
	// Leading is closed once this process schedules; until then it writes nothing.
	Leading leadership.Signal
	// Decisions records decisions.
	Decisions *decisions.Log
}

// GangPreemption is the plugin, one for each profile.
type GangPreemption struct {
	Shared
	args    *config.GangPreemptionArgs
	fw      framework.Framework
	budgets policylisters.PodDisruptionBudgetLister
	// namespaces are for the affinity of preemptors.
	namespaces corelisters.NamespaceLister
	clock      clock.WithTicker
	pauses     pauses
	// ending are the pods on nodes that are being deleted.
	ending endingPods
	// firstMisses is when single pods with a preemption delay first did not fit: a time.Time by UID.
	firstMisses sync.Map
	// retries are preemptors to try again later, by their leaders.
	retries workqueue.TypedDelayingInterface[types.UID]

	// staleNominations are pods whose nomination in the status may differ from the ledger.
	staleNominations workqueue.TypedRateLimitingInterface[types.UID]

	evictor *evictions.Evictor
	// groups writes PodGroups of gangs that were evicted.
	groups pgclientset.Interface
	// idleSince is since when a holder could not use what it holds; only tidy uses it.
	idleSince map[hold.Holder]time.Time

	// planner is created at the first attempt, when all plugins of the profile exist.
	planner func() *planner.Planner
}

var (
	_ fwk.PostFilterPlugin = &GangPreemption{}
)

// Name returns the name of the plugin.
func (pl *GangPreemption) Name() string { return Name }

// Gangs looks up gangs of all profiles.
type Gangs interface {
	evictions.Gangs
	// Wants returns what must be placed if a pod is scheduled; false if its place is decided.
	Wants(pod *v1.Pod) (gangstate.PlacementRequest, bool)
	// Placing reports whether a holder is a group that only waits for capacity.
	Placing(holder hold.Holder) bool
	// PartialHolders returns the ranks of the groups, of all profiles, that hold capacity without being complete; Yield
	// makes holders release it.
	PartialHolders() map[hold.Holder]turns.Rank
	Yield(ctx context.Context, holders []hold.Holder)
	// Synced reports whether all gangs that existed at the start are known.
	Synced() bool
	// Recall has the gang of a pod tried again, although nothing has changed in the cluster.
	Recall(pod *v1.Pod)
}

// Queues says what gangs have in their queues.
type Queues interface {
	// EvictedDemand returns what some pods of a gang have that are about to be evicted, which their queue asks for until
	// they are made again; nothing where it does not.
	EvictedDemand(pods []*v1.Pod) evictionrecord.Demand
	// QueueOf returns the queue of a pod; empty where its profile has no queues.
	QueueOf(pod *v1.Pod) string
	// CurrentWait returns why a pod, or its gang, waits for its turn in its queue now; nothing if it does not wait.
	CurrentWait(pod *v1.Pod) queueing.Wait
}

// New returns the factory of the plugin.
func New(shared Shared) frameworkruntime.PluginFactory {
	return func(ctx context.Context, object runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		args, ok := object.(*config.GangPreemptionArgs)
		if !ok {
			return nil, fmt.Errorf("reading arguments of %s: want GangPreemptionArgs, got %T", Name, object)
		}
		if err := validation.GangPreemptionArgs(validation.Path(handle.ProfileName(), Name), args).ToAggregate(); err != nil {
			return nil, fmt.Errorf("validating arguments of %s: %w", Name, err)
		}
		fw, ok := handle.(framework.Framework)
		if !ok {
			return nil, fmt.Errorf("making %s: want the framework of kube-scheduler as its handle, got %T", Name, handle)
		}
		registerMetrics()
		pl := &GangPreemption{
			Shared: shared, args: args, fw: fw, clock: clock.RealClock{}, idleSince: map[hold.Holder]time.Time{},
			budgets:          handle.SharedInformerFactory().Policy().V1().PodDisruptionBudgets().Lister(),
			namespaces:       handle.SharedInformerFactory().Core().V1().Namespaces().Lister(),
			staleNominations: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.UID]()),
			retries:          workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[types.UID]{}),
			planner:          sync.OnceValue(func() *planner.Planner { return planner.New(fw, shared.Holds, shared.Plugins) }),
		}
		groups, err := pgclientset.NewForConfig(handle.KubeConfig())
		if err != nil {
			return nil, fmt.Errorf("making a client for PodGroups: %w", err)
		}
		pl.groups = groups
		if err := errors.Join(pl.makeEvictor(), pl.watch()); err != nil {
			return nil, err
		}
		pl.Holds.OnRenominate(pl.queueNomination)
		pl.Underway.OnRelease(pl.retryAwaiting)
		go pl.syncNominations(ctx)
		go pl.Leading.Every(ctx, pl.clock, tidyInterval, func() { pl.tidy(ctx) })
		go pl.activateRetries(ctx)
		return pl, nil
	}
}

// makeEvictor creates the evictor of this profile.
func (pl *GangPreemption) makeEvictor() error {
	pods := pl.fw.SharedInformerFactory().Core().V1().Pods()
	byUID, err := evictions.PodsByUID(pods.Informer())
	if err != nil {
		return err
	}
	pl.evictor = &evictions.Evictor{
		Profile: pl.fw.ProfileName(), Client: pl.fw.ClientSet().CoreV1(), Recorder: pl.fw.EventRecorder(),
		Clock: pl.clock,
		Pod:   byUID, Pods: pods.Lister(), InFlight: pl.fw, Gangs: pl.Gangs, Underway: pl.Underway,
		Jobs: evictions.Jobs{Client: pl.fw.ClientSet().BatchV1(), EvictBy: pl.args.EvictBy, Namespaces: pl.namespaces},
	}
	return nil
}

// PostFilter frees capacity for the pod, or for the gang that it represents. It costs a search over the domains that it
// tries: a look at all pods in each round, and at most searchTimeout, or longer after searches that this cut short
// before they found any. Searches for victims that find nothing take a small part of the scheduling goroutine's time:
// the preemptor pauses, and meanwhile only looks for room where pods begin to end.
func (pl *GangPreemption) PostFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod,
	_ fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	if state.IsPodGroupSchedulingCycle() {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	d, err := pl.demandOf(state, pod)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	if message := pl.mustWait(d); message != "" {
		return nil, d.refused(message)
	}
	started := pl.clock.Now()
	found, err := pl.search(ctx, d)
	took := pl.clock.Since(started)
	searchDuration.Observe(took.Seconds())
	if d.cutShort {
		searchesCutShort.Inc()
	}
	logger := klog.FromContext(ctx)
	switch {
	case err != nil:
		pl.pause(d, took, foundNothing, pl.noVictimsMessage(d))
		return nil, fwk.AsStatus(fmt.Errorf("looking for victims for %s: %w", d, err))
	case found != nil && found.waits() && pl.isNominatedTo(d, found.nodes()):
		pl.pause(d, took, waitsForEnding, msgWaiting)
		return nil, d.refused(msgWaiting)
	case found == nil && d.delay > 0:
		pl.recordEnding(d)
		pl.Holds.DropNominations(pl.holder(d))
		pl.retryAfter(d.leader, d.delay)
		return nil, d.refused(d.delayMessage)
	case found == nil && pl.devicesFreeing(d):
		pl.retryAfter(d.leader, devicesFreeingRetry)
		return nil, d.refused(msgWaiting)
	case found == nil:
		message := pl.noVictimsMessage(d)
		if d.cutShort {
			pl.retryAfter(d.leader, pl.pause(d, took, foundTooLate, message))
		} else {
			pl.pause(d, took, foundNothing, message)
		}
		if !d.protectedUntil.IsZero() {
			pl.retryAfter(d.leader, d.protectedUntil.Sub(pl.clock.Now()))
		}
		pl.recordDecision(ctx, d, nil, decisions.NoVictims, message)
		logger.V(3).Info("No victims found", "preemptor", d.String(), "took", took)
		// A node that it was nominated to may be gone. The other places must not stay idle.
		pl.Holds.DropNominations(pl.holder(d))
		return nil, d.refused(message)
	}
	logger.V(2).Info("Preempting", "preemptor", d.String(), "victims", len(found.victims), "numbers",
		d.textWorth(found.selection.Gain(), found.harm.Cost), "took", took, "cutShort", d.cutShort)
	pl.recordDecision(ctx, d, found, decisions.Evict, pl.cutShortMessage(d))
	if !pl.beginPreemption(ctx, d, found) {
		pl.recordDecision(ctx, d, found, decisions.Withdrawn, msgAborted)
		pl.retryAfter(d.leader, pl.pause(d, 0, aborted, msgAborted))
		return nil, d.refused(msgWaiting)
	}
	return framework.NewPostFilterResultWithNominatedNode(found.plan.Nodes[pod.UID]), fwk.NewStatus(fwk.Success)
}

// noVictimsMessage returns the message of a search that found no victims.
func (pl *GangPreemption) noVictimsMessage(d *demand) string {
	switch {
	case d.never && reservepods.IsReservePod(d.leader):
		return msgReserves
	case d.never:
		return msgNever
	case d.gang.Beyond:
		if pl.Queues.QueueOf(d.leader) != "" {
			return msgBeyond + msgReclaims
		}
		return msgBeyond
	case d.cutShort:
		return fmt.Sprintf(msgTooLate, pl.args.SearchTimeout.Duration)
	case !d.protectedUntil.IsZero():
		return msgProtected
	case d.overBudget:
		return msgBudget
	default:
		return msgNoVictims
	}
}

// cutShortMessage returns that the victims may be more than needed; empty if the search was not cut short.
func (pl *GangPreemption) cutShortMessage(d *demand) string {
	if !d.cutShort {
		return ""
	}
	return fmt.Sprintf("fewer victims might do: the search was cut short after the searchTimeout of %s", d.timeout)
}

// refused returns the status of an attempt that evicts no pod. For a gang, and for a member beyond its minimum, no
// other PostFilter plugin may follow: it would evict for that pod alone.
func (d *demand) refused(message string) *fwk.Status {
	code := fwk.Unschedulable
	if d.attempt.Group != hold.SinglePod(d.leader.UID) || d.gang.Beyond {
		code = fwk.UnschedulableAndUnresolvable
	}
	return fwk.NewStatus(code, "preemption: "+message)
}

// holder returns the preemptor's holder in the ledger.
func (pl *GangPreemption) holder(d *demand) hold.Holder {
	return hold.Holder{Profile: pl.fw.ProfileName(), Group: d.attempt.Group}
}

// pause begins a pause of a preemptor, and returns its length; see [pauses.record].
func (pl *GangPreemption) pause(d *demand, cost time.Duration, why cause, message string) time.Duration {
	length := pl.pauses.record(d.attempt.Group, pl.clock.Now(), cost, why, message)
	pl.recordEnding(d)
	return length
}

const (
	// devicesFreeingFor is how long the devices of ended pods may still be allocated: kube-controller-manager deallocates
	// them once the pods are gone.
	devicesFreeingFor = 3 * time.Second
	// devicesFreeingRetry is how long a preemptor waits before it checks whether they are free.
	devicesFreeingRetry = 250 * time.Millisecond
)

// retryAfter makes a preemptor try again after a while.
func (pl *GangPreemption) retryAfter(leader *v1.Pod, after time.Duration) {
	pl.retries.AddAfter(leader.UID, after)
}

// activateRetries activates preemptors whose retry is due, until ctx is done.
func (pl *GangPreemption) activateRetries(ctx context.Context) {
	defer context.AfterFunc(ctx, pl.retries.ShutDown)()
	for {
		uid, done := pl.retries.Get()
		if done {
			return
		}
		if pod, ok := pl.evictor.Pod(uid); ok {
			pl.fw.Activate(klog.FromContext(ctx), map[string]*v1.Pod{pod.Namespace + "/" + pod.Name: pod})
			pl.Gangs.Recall(pod) // gangs wait outside the scheduling queue
		}
		pl.retries.Done(uid)
	}
}
