package gang

import (
	"context"
	"fmt"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/utils/clock"
	pgclientset "sigs.k8s.io/scheduler-plugins/pkg/generated/clientset/versioned"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/apis/config/validation"
	"github.com/lockstep-sh/lockstep/pkg/admission/autoscaling"
	"github.com/lockstep-sh/lockstep/pkg/admission/positions"
	"github.com/lockstep-sh/lockstep/pkg/admission/registry"
	"github.com/lockstep-sh/lockstep/pkg/framework/claimrelease"
	"github.com/lockstep-sh/lockstep/pkg/kube/leadership"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/planning/planner"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
	"github.com/lockstep-sh/lockstep/pkg/status"
	"github.com/lockstep-sh/lockstep/pkg/status/decisions"
)

// Name is the name of the plugin in a KubeSchedulerConfiguration.
const Name = "Gang"

// Gang is the plugin, one for each profile.
type Gang struct {
	fw    framework.Framework
	clock clock.WithTicker
	holds *ledger.Shared
	order *positions.Order
	// plugins are the plugins of all profiles that implement more than kube-scheduler calls.
	plugins *extensionpoints.Plugins
	// gangs are the gangs of the profile.
	gangs    *registry.Profile
	turns    Turns
	reserved Reserved

	// planner is made at the first plan, when all plugins of the profile exist.
	planner     *planner.Planner
	plannerOnce sync.Once
	// bindsFirst: the barrier at Bind comes before any binder.
	bindsFirst bool
	// preempts: the next plugin at PostFilter that evicts makes room
	// for whole gangs.
	preempts bool

	decisions *decisions.Log

	barrier  barrier
	reporter *statusReporter
	// requests requests nodes for gangs that wait for their topology; nil where that is not configured.
	requests *autoscaling.Requester
	// claims takes back what was allocated for members that were not bound.
	claims *claimrelease.Releaser
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
	Gangs   *registry.Registry
	Holds   *ledger.Shared
	Order   *positions.Order
	Plugins *extensionpoints.Plugins
	// Turns keeps gangs waiting that could be placed.
	Turns Turns
	// Reserved knows which pods wait for a Reservation.
	Reserved Reserved
	// Statuses writes into the status of pods why they wait.
	Statuses *status.Writer
	// Leading is closed once this process schedules. Until then another process may,
	// and the plugin reports nothing to users.
	Leading leadership.Signal
	// Decisions remembers what is decided.
	Decisions *decisions.Log
}

// Reserved knows which pods wait for a Reservation.
type Reserved interface {
	// AwaitsReservation reports whether a pod that does not fit waits for a Reservation: more nodes would not help it.
	AwaitsReservation(pod *v1.Pod) bool
}

// Turns keeps gangs waiting that could be placed.
type Turns interface {
	// ReportedWait returns why a member of a gang waits for its turn, as its users are told; nothing if it does not.
	ReportedWait(member *v1.Pod) queueing.Wait
	// Limits returns why members of a gang that does not fit could not be placed on more nodes either; nothing if they
	// could.
	Limits(members []*v1.Pod) queueing.Wait
	// Within returns those of some members of a group, in order, which could be placed together without a queue exceeding
	// its ceiling.
	Within(group hold.Holder, members []*v1.Pod) []*v1.Pod
	// CompareQueues orders two groups by the priorities of their queues; 0 if these are alike, or there are none.
	CompareQueues(a, b hold.Holder) int
	// Hopeless is called for a pod whose job would not fit into an empty cluster: others need not wait for it.
	Hopeless(pod *v1.Pod)
}

// New returns the factory of the plugin.
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
			fw: fw, clock: clock.RealClock{}, holds: shared.Holds, order: shared.Order, plugins: shared.Plugins,
			turns: shared.Turns, reserved: shared.Reserved, decisions: shared.Decisions,
		}
		pl.barrier.doors = map[types.UID]*bindWaiter{}
		groups, err := pgclientset.NewForConfig(handle.KubeConfig())
		if err != nil {
			return nil, fmt.Errorf("making a client for PodGroups: %w", err)
		}
		pl.reporter = newStatusReporter(pl, groups, args.ExplanationQPS, shared.Statuses, shared.Leading)
		backoff := gangstate.Backoff{Initial: args.InitialBackoff.Duration, Max: args.MaxBackoff.Duration}
		pl.gangs = shared.Gangs.Register(handle, defaultsOf(args), backoff, pl)
		if pl.requests, err = pl.newRequester(args.ProvisioningClassName, shared.Leading); err != nil {
			return nil, err
		}
		shared.Holds.OnRenominate(pl.reporter.noteRenominated)
		go pl.reporter.run(ctx)
		if pl.requests != nil {
			go pl.requests.Run(ctx)
		}
		if manager := fw.SharedDRAManager(); manager != nil {
			claims := handle.SharedInformerFactory().Resource().V1().ResourceClaims().Informer()
			if pl.claims, err = claimrelease.NewReleaser(manager.ResourceClaims(), claims, handle.ClientSet().ResourceV1(),
				pl); err != nil {
				return nil, err
			}
			go pl.claims.Run(ctx)
			go pl.queueInheritedClaims(ctx, shared)
		}
		return pl, nil
	}
}

// newRequester returns the requester of nodes by ProvisioningRequests of a class; nil without a class.
func (pl *Gang) newRequester(class string, leads leadership.Signal) (*autoscaling.Requester, error) {
	if class == "" {
		return nil, nil // nodes are not requested
	}
	requests, err := dynamic.NewForConfig(pl.fw.KubeConfig())
	if err != nil {
		return nil, fmt.Errorf("making a client for ProvisioningRequests: %w", err)
	}
	return autoscaling.New(autoscaling.Options{
		SchedulerName: pl.fw.ProfileName(), ClassName: class, Client: pl.fw.ClientSet(), Requests: requests,
		Recorder: pl.fw.EventRecorder(), Clock: pl.clock, Leading: leads, Explain: pl.Explanation,
	}), nil
}

// defaultsOf returns the settings of gangs that set nothing else.
func defaultsOf(args *config.GangArgs) gangspec.Defaults {
	defaults := gangspec.Defaults{WaitTime: args.DefaultWaitTime.Duration,
		Topology: gangspec.Topology{Fill: args.FillDomains}}
	for _, level := range args.TopologyLevels {
		defaults.Topology.Levels = append(defaults.Topology.Levels, gangspec.TopologyLevel{Key: level.Key, Name: level.Name})
	}
	return defaults
}

// ready makes what needs the complete profile, once, and returns the planner.
func (pl *Gang) ready() *planner.Planner {
	pl.plannerOnce.Do(func() {
		pl.planner = planner.New(pl.fw, pl.holds, pl.plugins)
		own, gangs, stock := pl.atPostFilter(Name), pl.atPostFilter(gangPreemption), pl.atPostFilter(names.DefaultPreemption)
		pl.preempts = gangs > own && (stock < own || stock > gangs)
		binders := pl.fw.ListPlugins().Bind.Enabled
		// An extender that binds is called before any Bind plugin, and bypasses the
		// barrier there.
		pl.bindsFirst = len(binders) > 0 && binders[0].Name == Name &&
			!slices.ContainsFunc(pl.fw.Extenders(), func(e fwk.Extender) bool { return e.IsBinder() })
	})
	return pl.planner
}

// atPostFilter returns the position of a plugin at PostFilter; -1 if it is not there.
func (pl *Gang) atPostFilter(name string) int {
	return slices.IndexFunc(pl.fw.ListPlugins().PostFilter.Enabled, func(p schedconfig.Plugin) bool {
		return p.Name == name
	})
}

// gangPreemption is the name of the plugin that makes room for whole gangs.
const gangPreemption = "GangPreemption"

// Gone drops what was to be reported of a pod, or a PodGroup, that is gone.
func (pl *Gang) Gone(uid types.UID) {
	pl.reporter.problems.forget(uid)
}

// Act carries out what follows from the state of gangs.
func (pl *Gang) Act(ctx context.Context, e gangstate.Effects) {
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
	pl.reporter.recordEffects(e)
	pl.activate(ctx, e.Activate)
}

// activate moves pods in the queue to where they are tried again. Pods that are not in the queue are ignored:
// PreEnqueue is called when they come.
func (pl *Gang) activate(ctx context.Context, pods []*v1.Pod) {
	if len(pods) == 0 {
		return
	}
	byName := make(map[string]*v1.Pod, len(pods))
	for _, pod := range pods {
		byName[pod.Namespace+"/"+pod.Name] = pod
	}
	pl.fw.Activate(klog.FromContext(ctx), byName)
}
