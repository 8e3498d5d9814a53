package gang

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/utils/clock"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/apis/config/validation"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/cacheevents"
	"github.com/lockstep-sh/lockstep/plugins/extension"
	"github.com/lockstep-sh/lockstep/plugins/holds"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
	"github.com/lockstep-sh/lockstep/plugins/order"
	"github.com/lockstep-sh/lockstep/plugins/planner"
	"github.com/lockstep-sh/lockstep/plugins/roster"
	"github.com/lockstep-sh/lockstep/plugins/watches"
)

// Name is the name of the plugin in a KubeSchedulerConfiguration.
const Name = "Gang"

// Gang is the plugin, one for each profile.
type Gang struct {
	handle fwk.Handle
	fw     framework.Framework
	clock  clock.WithTicker
	holds  *holds.Holds
	order  *order.Order
	// plugins are those of all profiles that have more to say than kube-scheduler asks.
	plugins *extension.Plugins
	roster  *roster.Roster

	// planner is made at the first plan, when the profile's plugins are all there.
	planner     *planner.Planner
	plannerOnce sync.Once
	// bindsFirst tells that the barrier at Bind comes before any binder.
	bindsFirst bool
	// preempts tells that the plugin at PostFilter that comes next and evicts makes room
	// for whole gangs.
	preempts bool

	// leaveNative: the scheduler runs native pod groups itself.
	leaveNative bool

	// mu guards gangs. It is never held across a call into the framework, the
	// queue or the API server: the queue calls PreEnqueue with its own lock held.
	mu    sync.Mutex
	gangs *gang.Gangs
	// freed is what the ledger's count of freed capacity was when it was last noted.
	freed uint64
	// wake has run look whether a group is to be tried again.
	wake chan struct{}
	// victims is how many victims of a holder have not ended; nil where nobody evicts.
	victims func(holder hold.Holder) int

	// opened: members have been let through.
	opened atomic.Bool
	// synced tell that the watches have delivered what there was at the start.
	synced []cache.InformerSynced

	barrier barrier
	tell    *teller
	watches *watches.Watches
	// strangers are the pods of its gangs that name other schedulers.
	strangers strangers
}

var (
	_ fwk.PreEnqueuePlugin  = &Gang{}
	_ fwk.EnqueueExtensions = &Gang{}
	_ fwk.PreFilterPlugin   = &Gang{}
	_ fwk.FilterPlugin      = &Gang{}
	_ fwk.PostFilterPlugin  = &Gang{}
	_ fwk.PreScorePlugin    = &Gang{}
	_ fwk.ScorePlugin       = &Gang{}
	_ fwk.ReservePlugin     = &Gang{}
	_ fwk.PermitPlugin      = &Gang{}
	_ fwk.BindPlugin        = &Gang{}
	_ fwk.PostBindPlugin    = &Gang{}
	_ fwk.SignPlugin        = &Gang{}
)

// Name returns the name of the plugin.
func (pl *Gang) Name() string { return Name }

// Shared is what the profiles of a process share.
type Shared struct {
	Holds   *holds.Holds
	Order   *order.Order
	Plugins *extension.Plugins
	// Roster learns the gangs of each profile.
	Roster *roster.Roster
	// Events tells what the scheduler's cache has taken in.
	Events *cacheevents.Events
	// Watches learns what the plugin watches; nil where nobody asks.
	Watches *watches.Watches
	// Victims is how many victims of a holder in the ledger have not ended; nil where
	// nobody evicts for holders.
	Victims func(holder hold.Holder) int
	// Leading is closed once this process schedules. Until then another process may,
	// and the plugin says nothing to users.
	Leading <-chan struct{}
}

// New makes the factory of the plugin.
func New(shared Shared) frameworkruntime.PluginFactory {
	return func(ctx context.Context, object runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		args, ok := object.(*config.GangArgs)
		if !ok {
			return nil, fmt.Errorf("reading arguments of %s: want GangArgs, got %T", Name, object)
		}
		if err := validation.GangArgs(validation.Path(handle.ProfileName(), Name), args).ToAggregate(); err != nil {
			return nil, fmt.Errorf("validating arguments of %s: %w", Name, err)
		}
		fw, ok := handle.(framework.Framework)
		if !ok {
			return nil, fmt.Errorf("making %s: want the framework of kube-scheduler as its handle, got %T", Name, handle)
		}
		registerMetrics()
		pl := &Gang{
			handle: handle, fw: fw, clock: clock.RealClock{}, holds: shared.Holds, order: shared.Order, plugins: shared.Plugins, roster: shared.Roster,
			leaveNative: utilfeature.DefaultFeatureGate.Enabled(features.GenericWorkload),
			wake:        make(chan struct{}, 1), victims: shared.Victims, watches: shared.Watches,
			gangs: gang.New(args.DefaultWaitTime.Duration, gang.Backoff{Initial: args.InitialBackoff.Duration, Max: args.MaxBackoff.Duration}),
		}
		pl.barrier.doors = map[types.UID]*door{}
		pl.tell = newTeller(pl, args.ExplanationQPS, shared.Leading)
		if err := pl.watch(ctx); err != nil {
			return nil, err
		}
		pl.gangs.Close()
		shared.Roster.Register(handle.ProfileName(), pl)
		shared.Events.Listen(pl)
		go pl.start(ctx)
		go pl.tell.run(ctx)
		return pl, nil
	}
}

// ready makes what needs the complete profile.
func (pl *Gang) ready() *planner.Planner {
	pl.plannerOnce.Do(func() {
		pl.planner = planner.New(pl.fw, pl.holds, pl.plugins)
		own, gangs, stock := pl.atPostFilter(Name), pl.atPostFilter(gangPreemption), pl.atPostFilter(names.DefaultPreemption)
		pl.preempts = gangs > own && (stock < own || stock > gangs)
		binders := pl.fw.ListPlugins().Bind.Enabled
		// An extender that binds is asked before any Bind plugin, and passes the
		// barrier there by.
		pl.bindsFirst = len(binders) > 0 && binders[0].Name == Name &&
			!slices.ContainsFunc(pl.fw.Extenders(), func(e fwk.Extender) bool { return e.IsBinder() })
	})
	return pl.planner
}

// Hoards lists the holders of less than a priority, of this profile, that hold capacity
// without being complete.
func (pl *Gang) Hoards(below int32) []hold.Holder {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	var holders []hold.Holder
	for _, group := range pl.gangs.Hoards(below) {
		holders = append(holders, pl.holder(group))
	}
	return holders
}

// Yield has holders of this profile give back what they hold without being complete.
func (pl *Gang) Yield(ctx context.Context, holders []hold.Holder) {
	var names []string
	for _, holder := range holders {
		if holder.Profile == pl.handle.ProfileName() {
			names = append(names, holder.Group)
		}
	}
	if len(names) > 0 {
		pl.input(ctx, func(s *gang.Gangs, _ time.Time) gang.Effects { return s.Yield(names) })
	}
}

// Wants returns what is to be placed if a pod of this profile is scheduled; false where its
// place is decided.
func (pl *Gang) Wants(pod *v1.Pod) (gang.Want, bool) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	return pl.gangs.Wants(pod)
}

// QueueOf is the queue that the PodGroup of a gang names; empty for none.
func (pl *Gang) QueueOf(key gang.Key) string {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	return pl.gangs.QueueOf(key)
}

// Explain has the users of gangs told why they wait, if that has changed.
func (pl *Gang) Explain(keys []gang.Key) { pl.tell.note(gang.Effects{Changed: keys}) }

// explain is why a gang waits, as far as its state tells, and the pods of other schedulers.
func (pl *Gang) explain(key gang.Key) (gang.Explanation, bool) {
	pl.mu.Lock()
	e, ok := pl.gangs.Explain(key)
	pl.mu.Unlock()
	if e.Reason == v1alpha1.ReasonGangIncomplete {
		e.Message += pl.strangers.of(key, pl.handle.ProfileName())
	}
	return e, ok
}

// pending is a member as it was last seen, and whether it still waits.
func (pl *Gang) pending(uid types.UID) (*v1.Pod, bool) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	return pl.gangs.Pending(uid)
}

// Synced reports whether all gangs are known that there were at the start, and have come to the
// gates after this plugin's.
func (pl *Gang) Synced() bool {
	return pl.opened.Load()
}

// Placing reports whether a holder is a group of this profile that waits for nothing but room.
func (pl *Gang) Placing(holder hold.Holder) bool {
	if holder.Profile != pl.handle.ProfileName() {
		return false
	}
	pl.mu.Lock()
	defer pl.mu.Unlock()
	return pl.gangs.Placing(holder.Group)
}

// atPostFilter is the position of a plugin there; -1 if it is not.
func (pl *Gang) atPostFilter(name string) int {
	return slices.IndexFunc(pl.fw.ListPlugins().PostFilter.Enabled, func(p schedconfig.Plugin) bool { return p.Name == name })
}

// gangPreemption is the name of the plugin that makes room for whole gangs.
const gangPreemption = "GangPreemption"

// Running returns what runs of a gang of this profile, and of those that start together
// with it.
func (pl *Gang) Running(key gang.Key) []gang.Footprint {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	return pl.gangs.Footprints(key)
}

// holder is the name of a group in the ledger, which all profiles share.
func (pl *Gang) holder(group string) hold.Holder {
	return hold.Holder{Profile: pl.handle.ProfileName(), Group: group}
}

// outside tells pods that are none of this plugin's business.
func (pl *Gang) outside(pod *v1.Pod) bool {
	_, source, ok := gang.KeyOf(pod)
	return !ok || source == gang.FromSchedulingGroup && pl.leaveNative
}

// input gives the state machine an input and acts on what follows. The ledger
// changes together with the state; everything else follows once the lock is
// free.
func (pl *Gang) input(ctx context.Context, f func(*gang.Gangs, time.Time) gang.Effects) {
	pl.mu.Lock()
	e := f(pl.gangs, pl.clock.Now())
	pl.settle(&e)
	_, due := pl.gangs.Due()
	pl.mu.Unlock()
	if due {
		pl.look()
	}
	pl.act(ctx, e)
}

// settle does the part of effects that belongs under the lock.
func (pl *Gang) settle(e *gang.Effects) {
	for _, h := range e.Rehold {
		pl.rehold(h)
	}
	if len(e.Unhold) > 0 {
		pl.holds.GiveBack(e.Unhold...)
	}
	if e.Freed {
		pl.holds.NoteFreed()
	}
}

// act does the rest.
func (pl *Gang) act(ctx context.Context, e gang.Effects) {
	if e.Idle() {
		return
	}
	for _, uid := range e.Release {
		pl.open(uid, "")
	}
	roundsFailed.Add(float64(e.RoundsFailed))
	for _, uid := range e.Reject {
		pl.open(uid, reasonGivenBack)
	}
	for _, took := range e.Started {
		startDuration.Observe(took.Seconds())
	}
	pl.tell.note(e)
	pl.activate(ctx, e.Activate)
}

// rehold puts a member's place into the ledger again, before the scheduler's cache
// forgets the member.
func (pl *Gang) rehold(h gang.Hold) {
	info, err := framework.NewPodInfo(h.Pod)
	if err != nil {
		return // such a pod was never reserved
	}
	d := holds.DemandOf(info)
	pl.holds.Follow(pl.holder(h.Holder), []types.UID{h.Pod.UID}, []hold.Hold{{For: h.Pod.UID, Node: h.Node, Request: d.Request, Ports: d.Ports}})
}

// activate asks the queue to look at pods again. What is not in it is ignored:
// it will ask PreEnqueue when it comes.
func (pl *Gang) activate(ctx context.Context, pods []*v1.Pod) {
	if len(pods) == 0 {
		return
	}
	byName := make(map[string]*v1.Pod, len(pods))
	for _, pod := range pods {
		byName[pod.Namespace+"/"+pod.Name] = pod
	}
	pl.handle.Activate(klog.FromContext(ctx), byName)
}
