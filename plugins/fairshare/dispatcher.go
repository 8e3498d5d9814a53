package fairshare

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/framework/watches"
	"github.com/lockstep-sh/lockstep/pkg/kube/leadership"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/clusterdevices"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/deviceclaims"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/pools"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/usage"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
	"github.com/lockstep-sh/lockstep/pkg/status"
)

// Dispatcher has the queues of a process, and decides whose turn it is in all its profiles. It is
// safe for concurrent use.
type Dispatcher struct {
	sources
	clock clock.WithTicker
	// leading is given once this process schedules.
	leading leadership.Signal
	// conditions writes into the status of pods in no gang, by UID, why they wait; statuses is what it writes with.
	conditions *status.ConditionQueue[string]
	statuses   *status.Writer
	// changed makes somebody ask whose turn it is. It does not block.
	changed func()

	// mu is held for look-ups and arithmetic only. It is taken under the scheduling queue's
	// lock, and the lock of gangs under it, never the other way round. It guards what follows.
	mu sync.Mutex
	// book has the jobs and their queues, and decides.
	book *queueing.Book
	// nodes are the capacity to be shared, and which part of it pods may use; usage counts what queues use of it, and
	// devices the devices that nodes have.
	nodes   *pools.Cluster
	usage   *usage.Counter
	devices *clusterdevices.Counts
	// claims are the devices that pods ask for.
	claims *deviceclaims.Claims
	// recounted are jobs that ask for something else than when they came to wait.
	recounted map[string]bool
	// naming are the counted pods that name a gang, by its name, whether or not its PodGroup makes one of them.
	naming usage.Index[string]
	profiles
	opening
	placed
	// toActivate are pods that have to come to the gate again; activating makes call look at them.
	toActivate []*v1.Pod
	// retryFirst: a pod begins to end, so the first pod of each queue that did not fit comes to the gate again.
	retryFirst atomic.Bool
	activating chan struct{}
}

// sources are where a Dispatcher looks things up.
type sources struct {
	gangs Gangs
	holds *ledger.Shared
	// victims returns how many victims of a holder in the ledger have not ended. It takes a lock of its own at most.
	victims func(holder hold.Holder) int
	// reserved finds what is held for pods; nil where nothing does.
	reserved Reserved
	// watches gets what is watched; nil where it is not needed.
	watches    *watches.Watches
	nodeLister corelisters.NodeLister
	namespaces corelisters.NamespaceLister
	pods       corelisters.PodLister
}

// profiles are those that have queues, with their arguments, which are the same for all.
type profiles struct {
	args *config.FairShareArgs
	// served are the profiles with the plugin.
	served map[string]bool
	// preempts are the profiles in which pods are evicted for a job if there are victims for it.
	preempts map[string]bool
}

// opening is whether everything that existed at the start is in the book.
type opening struct {
	opened bool
	// mayOpen is closed once that may be; begun once it is.
	mayOpen, begun chan struct{}
}

// placed is which pods have a place, or have left one, beyond what the API server shows.
type placed struct {
	// assumed has the node names of pods that have a node which their status does not show yet.
	assumed map[types.UID]string
	// places are the nodes that are held for pods, by the ledger; heard are pods whose holds have
	// changed since.
	places map[types.UID]ledger.Place
	heard  heard
	// rechecks: everything that waiting jobs ask for may be held for them by now.
	rechecks bool
	// ended are pods that have ended since dropEnded was called, and overdue those that had ended before.
	ended, overdue []*v1.Pod
}

// Gangs is what the Dispatcher needs to know of the gangs of all profiles.
type Gangs interface {
	// Wants returns what must be placed if a pod is scheduled; false where its place is decided.
	Wants(pod *v1.Pod) (gangstate.PlacementRequest, bool)
	// GangOf returns the gang of a pod; false where it is in none.
	GangOf(pod *v1.Pod) (gangspec.Key, bool)
	// PodGroups returns what the PodGroups say that have the name of a gang. OnMove registers a function that is called
	// when they say something else than before of its queue or its eviction, or GangOf does of its pods.
	PodGroups(profile string, key gangspec.Key) gangspec.PodGroups
	OnMove(moved func(profile string, key gangspec.Key))
	// Running returns what runs of a gang, and of the gangs that start together with it; none where the gang is not known.
	Running(profile string, key gangspec.Key) []gangstate.RunningGang
	// Progress returns how far the gang of a pod has come; false where the pod is in none that is known.
	Progress(pod *v1.Pod) (gangstate.Progress, bool)
	// Synced reports whether all gangs are known that existed at the start.
	Synced() bool
	// Changed is called when something has changed that may help gangs which did not fit.
	Changed()
	// Yield makes gangs give back what they hold without being complete.
	Yield(ctx context.Context, holders []hold.Holder)
	// Explain reports to the users of gangs why they wait, if that has changed.
	Explain(ctx context.Context, profile string, keys []gangspec.Key)
}

// NewDispatcher returns a Dispatcher with only the default queue. victims returns how many victims of a
// holder in the ledger have not ended. It is called with locks held, and calls nothing of a Dispatcher or of gangs.
func NewDispatcher(gangs Gangs, holds *ledger.Shared, victims func(holder hold.Holder) int, leads leadership.Signal,
	statuses *status.Writer, watched *watches.Watches) *Dispatcher {
	d := &Dispatcher{
		sources: sources{gangs: gangs, holds: holds, victims: victims, watches: watched},
		clock:   clock.RealClock{}, leading: leads, statuses: statuses, changed: func() {},
		recounted: map[string]bool{}, naming: usage.Index[string]{},
		profiles:   profiles{served: map[string]bool{}, preempts: map[string]bool{}},
		opening:    opening{mayOpen: make(chan struct{}), begun: make(chan struct{})},
		placed:     placed{assumed: map[types.UID]string{}, places: map[types.UID]ledger.Place{}},
		activating: make(chan struct{}, 1),
	}
	d.book = queueing.NewBook(v1alpha1.DefaultQueue, func(holder hold.Holder) int { return d.victims(holder) })
	nodes, err := pools.New(nil)
	utilruntime.Must(err) // no selector can be wrong
	d.share(nodes, nil)
	return d
}

// OnChange sets what makes somebody ask whose turn it is; it must not block. That one calls Left. OnChange is called
// before anything is watched.
func (d *Dispatcher) OnChange(changed func()) { d.changed = changed }

// share sets the capacity to be shared. Nothing is counted yet.
func (d *Dispatcher) share(nodes *pools.Cluster, deviceClasses map[string]v1.ResourceName) {
	d.nodes, d.devices = nodes, clusterdevices.NewCounts(deviceClasses)
	d.claims = deviceclaims.New(d.devices)
	d.usage = usage.New(counting{d}, d.book, nodes, d.claims)
}

// lock takes the lock, updates what the ledger holds, and returns the function that unlocks.
func (d *Dispatcher) lock() (unlock func()) {
	d.mu.Lock()
	d.syncHolds()
	return d.mu.Unlock
}

// serve adds a profile. The arguments have to be the same in all profiles.
func (d *Dispatcher) serve(ctx context.Context, handle fwk.Handle, args *config.FairShareArgs) error {
	nodes, err := pools.New(args.Pools)
	if err != nil {
		return err
	}
	d.mu.Lock()
	if d.args != nil && !equality.Semantic.DeepEqual(d.args, args) {
		defer d.mu.Unlock()
		return errors.New("differs from the arguments of another profile; say the same in all")
	}
	first := d.args == nil
	if first {
		d.share(nodes, args.DeviceClasses)
	}
	d.args = args
	d.book.Configure(queueing.Limits{Window: int(args.Window), MaxBypass: int(args.MaxBypass),
		BypassHold:  args.BypassHold.Duration,
		EvictedHold: args.EvictedHold.Duration}, policiesOf(args.Tiers))
	d.served[handle.ProfileName()] = true
	d.mu.Unlock()
	if !first {
		return nil
	}
	d.holds.OnChange(d.holdsChanged)
	registerMetrics(d)
	for _, doubt := range warnings(args.Tiers) {
		klog.FromContext(ctx).Info("Risky configuration", "plugin", Name, "why", doubt)
	}
	d.conditions = status.NewConditionQueue(d.statuses, handle.ClientSet(), args.ExplanationQPS, d.say)
	go d.call(ctx)
	go d.tell(ctx)
	err = d.watch(ctx, handle)
	d.change(d.usage.StartHeld)
	return err
}

// Preempts records that GangPreemption makes room for the jobs of a profile.
func (d *Dispatcher) Preempts(profile string) {
	defer d.lock()()
	d.preempts[profile] = true
}

// offer returns why a pod has to wait; empty if it does not.
func (d *Dispatcher) offer(pod *v1.Pod) string {
	if len(pod.Spec.SchedulingGates) > 0 {
		return "" // another gate keeps it
	}
	if gangspec.CheckPod(pod) != nil {
		return "" // its cycle tells why it waits; it asks for nothing until then
	}
	want, undecided := d.gangs.Wants(pod)
	if !undecided {
		return ""
	}
	if d.covered(pod, want.Pods) {
		return ""
	}
	name := usage.NameOf(pod, want)
	defer d.lock()()
	promised := d.place(pod).Nominated()
	if promised && !slices.ContainsFunc(usage.HoldersOf(pod, want), func(holder hold.Holder) bool {
		return d.victims(holder) > 0
	}) {
		return "" // it has a place already
	}
	if d.book.Phase(name) == queueing.Admitted {
		return ""
	}
	now := d.pendingPod(pod)
	if now == nil {
		return "pod is deleted or already bound" // the scheduling queue will get the event
	}
	if promised {
		if exceeded, _ := d.book.Ceilings(d.job(name, pod, want)); len(exceeded) == 0 {
			return "" // victims end for a node, not for what its queue may have
		}
	}
	d.book.Offer(d.job(name, now, want), d.moment())
	d.signal()
	if !d.opened {
		return "waiting for queue and pod caches to sync" // the shares would be computed for each pod
	}
	return d.book.Why(name, false).Message
}

// job returns the job that waits with a pod. Its pods are counted as part of it.
func (d *Dispatcher) job(name string, pod *v1.Pod, want gangstate.PlacementRequest) queueing.Job {
	var counted []*v1.Pod
	for _, one := range want.Pods {
		if now := d.schedulablePod(one); now != nil {
			d.count(now, name)
			counted = append(counted, now)
		}
	}
	j := d.usage.Job(name, pod, want, counted) // once all are counted: a claim that they share counts for one of them
	j.NeverPreempts = j.NeverPreempts || !d.preempts[pod.Spec.SchedulerName]
	if _, counted := d.usage.Pod(pod.UID); !counted && d.pendingPod(pod) != nil {
		d.recount(pod)
	}
	return j
}

// freed returns what a running pod gives back if others are gone already, with its queue and those above it; no queues
// if the pod does not run.
func (d *Dispatcher) freed(uid types.UID, gone map[types.UID]bool) (resource.Vector, []string) {
	defer d.lock()()
	of, ok := d.book.Counted(string(uid))
	if !ok || !of.Runs {
		return nil, nil
	}
	return d.usage.Freed(uid, gone), d.book.Path(of.Queue)
}
