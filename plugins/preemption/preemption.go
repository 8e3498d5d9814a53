package preemption

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	policylisters "k8s.io/client-go/listers/policy/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/utils/clock"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/apis/config/validation"
	"github.com/lockstep-sh/lockstep/plugins/decisions"
	"github.com/lockstep-sh/lockstep/plugins/eviction"
	"github.com/lockstep-sh/lockstep/plugins/extension"
	"github.com/lockstep-sh/lockstep/plugins/holds"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
	"github.com/lockstep-sh/lockstep/plugins/leading"
	"github.com/lockstep-sh/lockstep/plugins/planner"
	"github.com/lockstep-sh/lockstep/plugins/watches"
)

// Name is the name of the plugin in a KubeSchedulerConfiguration.
const Name = "GangPreemption"

// Messages of attempts that evict nothing. They stay the same while the fact does.
const (
	msgWaiting = "waiting for victims to terminate"
	msgNever   = "not eligible to preempt: a member, or the PodGroup, has preemptionPolicy Never"
	msgSpared  = "no victims: evicting every eligible pod would still not fit the minimum; some are not eligible yet, because their gang began to run, or lost pods to an eviction, not long ago"
	msgNobody  = "no victims: evicting every eligible pod would still not fit the minimum"
	msgDelay   = "the gang's preemption delay has not passed"
	msgAgain   = "what was decided could not be carried out; trying again in a while"
)

// Shared is what the profiles of a process share.
type Shared struct {
	Holds   *holds.Holds
	Gangs   Gangs
	Plugins *extension.Plugins
	// Promises are what is held for pods that are yet to come; nil for none.
	Promises Promises
	// Underway is the evictions of all profiles.
	Underway *eviction.Underway
	// Watches learns what the plugin watches; nil to keep no record of it.
	Watches *watches.Watches
	// Leading is closed once this process schedules; before, it writes nothing.
	Leading leading.Signal
	// Decisions remembers what is decided; nil to remember nothing.
	Decisions *decisions.Log
}

// GangPreemption is the plugin, one for each profile.
type GangPreemption struct {
	Shared
	args    *config.GangPreemptionArgs
	handle  fwk.Handle
	fw      framework.Framework
	budgets policylisters.PodDisruptionBudgetLister
	clock   clock.WithTicker
	pauses  pauses
	// later are preemptors to be looked at again, by their leaders.
	later workqueue.TypedDelayingInterface[types.UID]

	// stale are pods whose status may say something else of their nomination than the ledger.
	stale workqueue.TypedRateLimitingInterface[types.UID]

	evictor *eviction.Evictor
	// podByUID finds a pod.
	podByUID func(types.UID) (*v1.Pod, bool)
	// idle is since when a holder could not use what it holds; only tidy uses it.
	idle map[hold.Holder]time.Time

	// planner and points are made at the first attempt, when the profile's plugins are
	// all there.
	once    sync.Once
	planner *planner.Planner
	points  planner.Points
}

var (
	_ fwk.PostFilterPlugin = &GangPreemption{}
)

// Name returns the name of the plugin.
func (pl *GangPreemption) Name() string { return Name }

// Gangs is what is asked about the gangs of all profiles.
type Gangs interface {
	// Running returns what runs of a gang of a profile, and of those that start together with it, by key; none where the
	// gang is not known.
	Running(profile string, key gang.Key) []gang.Footprint
	// Single reports whether a pod is evicted by itself, whichever profile schedules it.
	Single(pod *v1.Pod) bool
	// Wants returns what is to be placed if a pod is scheduled; false where its place is decided.
	Wants(pod *v1.Pod) (gang.Want, bool)
	// Placing reports whether a holder is a group that waits for nothing but room.
	Placing(holder hold.Holder) bool
	// Hoards lists the holders of less than a priority, in all profiles but one, that hold capacity without being complete;
	// Yield makes holders give that back.
	Hoards(below int32, but string) []hold.Holder
	Yield(ctx context.Context, holders []hold.Holder)
	// Synced reports whether all gangs are known that there were at the start.
	Synced() bool
	// Changed notes that something has changed that may help gangs which did not fit.
	Changed()
}

// New makes the factory of the plugin.
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
			Shared: shared, args: args, handle: handle, fw: fw, clock: clock.RealClock{}, idle: map[hold.Holder]time.Time{},
			budgets: handle.SharedInformerFactory().Policy().V1().PodDisruptionBudgets().Lister(),
			stale:   workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.UID]()),
			later:   workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[types.UID]{}),
		}
		if err := errors.Join(pl.makeEvictor(), pl.watch()); err != nil {
			return nil, err
		}
		pl.Holds.OnRenominate(pl.renominated)
		go pl.keepStatuses(ctx)
		go pl.Leading.Every(ctx, pl.clock, tidyEvery, func() { pl.tidy(ctx) })
		go pl.bringBack(ctx)
		return pl, nil
	}
}

// makeEvictor makes what ends pods in the name of this profile.
func (pl *GangPreemption) makeEvictor() (err error) {
	pods, profile := pl.handle.SharedInformerFactory().Core().V1().Pods(), pl.fw.ProfileName()
	if pl.podByUID, err = eviction.PodsByUID(pods.Informer()); err != nil {
		return err
	}
	pl.evictor = &eviction.Evictor{
		Profile: profile, Client: pl.handle.ClientSet().CoreV1(), Recorder: pl.handle.EventRecorder(), Clock: pl.clock,
		Pod: pl.podByUID, Pods: pods.Lister(), OnTheirWay: pl.handle, Gangs: pl.Gangs, Underway: pl.Underway,
		Words: eviction.Words{
			Plugin:    Name,
			Begun:     eviction.Condition{Reason: v1.PodReasonPreemptionByScheduler, Message: profile + ": preempting to make room for a pod or gang that comes before it"},
			Withdrawn: eviction.Condition{Reason: ReasonWithdrawn, Message: profile + ": the preemption was not carried out"},
			Evicted:   preempted, Finishing: "completing an interrupted preemption of the gang",
		},
	}
	return nil
}

func (pl *GangPreemption) ready() {
	pl.once.Do(func() {
		pl.planner = planner.New(pl.fw, pl.Holds, pl.Plugins)
		pl.points = planner.PointsOf(pl.Plugins, pl.fw)
	})
}

// PostFilter makes room for the pod, or for the gang that it stands for. It costs a search
// over the domains that it tries, at most; not more than a small part of the scheduling
// goroutine's time goes into searches that find nothing.
func (pl *GangPreemption) PostFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, _ fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	if state.IsPodGroupSchedulingCycle() {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	pl.ready()
	d, err := pl.demandOf(state, pod)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	if message := pl.standsBack(d); message != "" {
		return nil, d.refused(message)
	}
	started := pl.clock.Now()
	delay := d.attempt.EvictsIn(started)
	d.delayed = delay > 0
	found, err := pl.search(ctx, d)
	took := pl.clock.Since(started)
	searchDuration.Observe(took.Seconds())
	logger := klog.FromContext(ctx)
	switch {
	case err != nil:
		pl.pauses.failed(d.group, pl.clock.Now(), took, foundNothing)
		return nil, fwk.AsStatus(fmt.Errorf("looking for victims for %s: %w", d, err))
	case found != nil && found.waits && pl.nominated(d):
		pl.pauses.failed(d.group, pl.clock.Now(), took, waitsForEnding)
		return nil, d.refused(msgWaiting)
	case found == nil && d.delayed:
		pl.Holds.DropNominations(pl.holder(d))
		pl.comeAgain(d.leader, delay)
		return nil, d.refused(msgDelay)
	case found == nil && pl.freeing(d):
		pl.comeAgain(d.leader, freeingAgain)
		return nil, d.refused(msgWaiting)
	case found == nil:
		why := foundNothing
		if !d.spared.IsZero() {
			why = foundSpared
			pl.comeAgain(d.leader, d.spared.Sub(pl.clock.Now()))
		}
		pl.pauses.failed(d.group, pl.clock.Now(), took, why)
		pl.remember(ctx, d, nil, decisions.NoVictims, d.nobody(why))
		logger.V(3).Info("No victims found", "preemptor", d.String(), "took", took)
		// A node that it was nominated to may be gone. What is left must not lie idle for it.
		pl.Holds.DropNominations(pl.holder(d))
		return nil, d.refused(d.nobody(why))
	}
	logger.V(2).Info("Preempting", "preemptor", d.String(), "victims", len(found.victims), "numbers", found.numbers(d), "took", took)
	pl.remember(ctx, d, found, decisions.Evict, "")
	if !pl.act(ctx, d, found) {
		pl.remember(ctx, d, found, decisions.Withdrawn, msgAgain)
		pl.comeAgain(d.leader, pl.pauses.withdrawn(d.group, pl.clock.Now(), 0))
		return nil, d.refused(msgWaiting)
	}
	return framework.NewPostFilterResultWithNominatedNode(found.plan.Nodes[pod.UID]), fwk.NewStatus(fwk.Success)
}

// nobody returns the message of a search that found no victims.
func (d *demand) nobody(why cause) string {
	switch {
	case d.never:
		return msgNever
	case why == foundSpared:
		return msgSpared
	default:
		return msgNobody
	}
}

// refused returns the status of an attempt that evicts no pod. For a gang it is the last word: a plugin that comes after
// this one would evict for its leader alone.
func (d *demand) refused(message string) *fwk.Status {
	code := fwk.Unschedulable
	if d.group != hold.SinglePod(d.leader.UID) {
		code = fwk.UnschedulableAndUnresolvable
	}
	return fwk.NewStatus(code, "preemption: "+message)
}

// holder returns the name of a preemptor in the ledger.
func (pl *GangPreemption) holder(d *demand) hold.Holder {
	return hold.Holder{Profile: pl.fw.ProfileName(), Group: d.group}
}

// standsBack returns why a preemptor may not search for now; empty if it may.
func (pl *GangPreemption) standsBack(d *demand) string {
	if pl.underway(d) || pl.ending(d) {
		return msgWaiting
	}
	left, why := pl.pauses.left(d.group, pl.clock.Now())
	if left <= 0 || why == waitsForEnding && !pl.nominated(d) {
		return ""
	}
	if why == notCarriedOut {
		return msgAgain
	}
	if pl.holder(d).IsSinglePod() {
		// What brought it here may have been of help. A gang comes again by itself.
		pl.comeAgain(d.leader, left)
	}
	if why == waitsForEnding {
		return msgWaiting
	}
	return d.nobody(why) // still
}

const (
	// freeingFor is how long the devices of pods that have ended may still be allocated: kube-controller-manager takes that
	// back when the pods are gone.
	freeingFor = 3 * time.Second
	// freeingAgain is how long a preemptor waits until it looks whether they are free.
	freeingAgain = 250 * time.Millisecond
)

// freeing reports whether places whose devices are about to become free are held for a preemptor.
func (pl *GangPreemption) freeing(d *demand) bool {
	claims := slices.ContainsFunc(d.pods, func(pod *v1.Pod) bool { return len(pod.Spec.ResourceClaims) > 0 })
	return claims && pl.nominated(d) && pl.clock.Since(pl.Underway.Freed(pl.holder(d))) < freeingFor
}

// nominated reports whether places that it waits for are held for a preemptor.
func (pl *GangPreemption) nominated(d *demand) bool {
	return len(pl.Holds.NominationsOf(pl.holder(d))) > 0
}

// comeAgain makes a preemptor be looked at again after a while.
func (pl *GangPreemption) comeAgain(leader *v1.Pod, after time.Duration) {
	pl.later.AddAfter(leader.UID, after)
}

// bringBack activates the preemptors whose time has come, until the process ends.
func (pl *GangPreemption) bringBack(ctx context.Context) {
	defer context.AfterFunc(ctx, pl.later.ShutDown)()
	for {
		uid, done := pl.later.Get()
		if done {
			return
		}
		if pod, ok := pl.podByUID(uid); ok {
			pl.handle.Activate(klog.FromContext(ctx), map[string]*v1.Pod{pod.Namespace + "/" + pod.Name: pod})
			if !eviction.OwnerOf(pl.Gangs, pod).IsPod() {
				pl.Gangs.Changed() // a gang that rests is not activated
			}
		}
		pl.later.Done(uid)
	}
}
