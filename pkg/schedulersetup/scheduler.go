// Package schedulersetup puts Lockstep's plugins together with what they share in a
// process: the ledger of held capacity, the order of gangs in the queue, the bound on
// binding calls, and the cards that pods have.
package schedulersetup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/utils/clock"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/admission/gatedqueue"
	"github.com/lockstep-sh/lockstep/pkg/admission/positions"
	"github.com/lockstep-sh/lockstep/pkg/admission/registry"
	"github.com/lockstep-sh/lockstep/pkg/admission/waitingroom"
	"github.com/lockstep-sh/lockstep/pkg/evictions"
	"github.com/lockstep-sh/lockstep/pkg/framework/binding"
	"github.com/lockstep-sh/lockstep/pkg/framework/cacheevents"
	"github.com/lockstep-sh/lockstep/pkg/framework/watches"
	"github.com/lockstep-sh/lockstep/pkg/kube/leadership"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/devicesimulation"
	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/reservations"
	"github.com/lockstep-sh/lockstep/pkg/reservations/reservepods"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
	"github.com/lockstep-sh/lockstep/pkg/schedulersetup/startup"
	"github.com/lockstep-sh/lockstep/pkg/status"
	"github.com/lockstep-sh/lockstep/pkg/status/decisions"
	"github.com/lockstep-sh/lockstep/plugins/binder"
	"github.com/lockstep-sh/lockstep/plugins/fairshare"
	"github.com/lockstep-sh/lockstep/plugins/gang"
	"github.com/lockstep-sh/lockstep/plugins/gpushare"
	"github.com/lockstep-sh/lockstep/plugins/heldcapacity"
	"github.com/lockstep-sh/lockstep/plugins/preemption"
	"github.com/lockstep-sh/lockstep/plugins/queuesort"
	"github.com/lockstep-sh/lockstep/plugins/reservation"
)

// Set is the plugins of one scheduler process.
type Set struct {
	gangs     *registry.Registry
	room      *waitingroom.Room
	holds     *ledger.Shared
	slots     *binder.Slots
	positions *positions.Order
	leading   chan struct{}
	lead      sync.Once
	all       *extensionpoints.Plugins
	queues    *fairshare.Dispatcher
	events    *cacheevents.Events
	watched   *watches.Watches
	reserve   *reservepods.Store
	reserved  *reservations.Registry
	decisions *decisions.Log
	external  sets.Set[string] // the names of external plugins
	// Registry has the factories, by the names under which a
	// KubeSchedulerConfiguration enables the plugins.
	Registry frameworkruntime.Registry
}

// NewSet makes the plugins of a process, which all its profiles share.
func NewSet() *Set {
	slots, holds, order, leading := binder.NewSlots(), ledger.New(), positions.New(), make(chan struct{})
	underway, events := evictions.NewActivePreemptions(), cacheevents.New()
	watched, statuses := watches.New(), status.New(leading)
	gangs := registry.New(holds, underway.Victims, watched)
	reserve, decided := reservepods.NewStore(), decisions.New()
	queues := fairshare.NewDispatcher(gangs, holds, underway.Victims, leading, statuses, watched)
	reserved := reservations.New(holds, reserve, watched, leading, queues)
	queues.SetReserved(reserved)
	room := waitingroom.New(gangs, queues, holds, underway, clock.RealClock{})
	queues.OnChange(room.RequestNext)
	gangs.SetRoom(room)
	events.Listen(room)
	s := &Set{
		reserve: reserve, reserved: reserved,
		gangs: gangs, room: room, holds: holds, slots: slots, positions: order, leading: leading, all: extensionpoints.New(),
		events: events, watched: watched,
		queues: queues, decisions: decided, external: sets.New[string](),
	}
	notes := binding.Binder{Name: binder.Name, PassOn: []string{gang.Name, reservation.Name}}
	s.Registry = frameworkruntime.Registry{
		binder.Name: s.all.Watch(binder.New(slots)),
		gang.Name: s.all.Watch(gang.New(gang.Shared{Gangs: gangs, Holds: holds, Order: order, Plugins: s.all,
			Turns: s.queues, Reserved: reserved, Leading: leading, Statuses: statuses, Decisions: decided})),
		heldcapacity.Name: s.all.Watch(heldcapacity.New(holds, events, s.all, watched)),
		queuesort.Name:    s.all.Watch(queuesort.New(order)),
		reservation.Name:  s.all.Watch(reservation.New(holds, gangs, reserved, s.all, notes)),
		preemption.Name: s.all.Watch(preemption.New(preemption.Shared{Holds: holds, Gangs: gangs, Plugins: s.all,
			Promises: reserved, Queues: queues, Underway: underway, Watches: watched, Leading: leading, Decisions: decided})),
		fairshare.Name: s.all.Watch(fairshare.New(s.queues)),
		gpushare.Name:  s.all.Watch(gpushare.New(gpushare.NewLedger(), s.all, watched, notes)),
	}
	return s
}

// ReservePods returns the store of the pods that look for places of Reservations. The scheduler has to be made with
// it: in its pod informer, its client, and its events.
func (s *Set) ReservePods() *reservepods.Store { return s.reserve }

// Add adds an external plugin. Where it implements the Simulate hooks or the gang
// extension points, they are found automatically. Add fails where the name is taken.
func (s *Set) Add(name string, factory frameworkruntime.PluginFactory) error {
	s.external.Insert(name)
	return s.Registry.Register(name, s.all.WatchExternal(factory))
}

// Install prepares a scheduler that does not run yet for the plugins: pods behind the gate
// of their gang wait in front of the scheduling queue, the first cycle waits
// for the caches, the plugins learn when scheduling begins, and the scheduler gets no further ahead of the API
// server than helps. Install fails where a profile configures the plugins in a way that would do
// harm; the error names the field.
func (s *Set) Install(ctx context.Context, sched *scheduler.Scheduler) error {
	var errs field.ErrorList
	promised := slices.ContainsFunc(slices.Collect(maps.Values(sched.Profiles)), promises)
	for _, profile := range sched.Profiles {
		errs = append(errs, check(profile)...)
		for _, doubt := range warnings(profile, promised) {
			klog.FromContext(ctx).Info("Risky configuration", "profile", profile.ProfileName(), "why", doubt)
		}
	}
	if len(errs) > 0 {
		slices.SortFunc(errs, func(a, b *field.Error) int { return cmp.Compare(a.Field, b.Field) })
		return fmt.Errorf("checking profiles: %w", errs.ToAggregate())
	}
	preempts := map[string]bool{}
	for _, profile := range sched.Profiles {
		if at(profile.ListPlugins().PostFilter, preemption.Name) >= 0 {
			s.queues.Preempts(profile.ProfileName())
			preempts[profile.ProfileName()] = true
		}
	}
	for _, profile := range sched.Profiles {
		profile.SetPodNominator(s.holds.Nominator(sched.SchedulingQueue, func(pod *v1.Pod) bool {
			return preempts[pod.Spec.SchedulerName]
		}))
	}
	api, factory, err := whatIsStored(sched)
	if err != nil {
		return err
	}
	if err := s.listenToOthers(ctx, sched, factory); err != nil {
		return err
	}
	queue := gatedqueue.Install(sched, []string{gang.Name, fairshare.Name}, s.positions.Forget,
		func(event fwk.ClusterEvent, before, after any, pass func()) {
			s.room.PassOn(ctx, func() { s.events.HandleEvent(event, before, after) }, pass)
		}, func(before, now *v1.Pod) bool {
			return gangspec.Moved(before, now) || gangspec.CheckPod(before) != nil && gangspec.CheckPod(now) == nil
		})
	s.wrapFailureHandler(sched)
	if err := s.gangs.Start(ctx); err != nil {
		return err
	}
	s.room.Start(ctx, queue, factory.Core().V1().Pods().Lister())
	s.pace(ctx, sched, queue, api, factory)
	return nil
}

// wrapFailureHandler passes on which pods failed, and corrects what kube-scheduler writes in their conditions.
func (s *Set) wrapFailureHandler(sched *scheduler.Scheduler) {
	failed := sched.FailureHandler
	sched.FailureHandler = func(ctx context.Context, profile framework.Framework, pod *framework.QueuedPodInfo,
		result *fwk.Status, nominating *fwk.NominatingInfo, start time.Time) {
		one := pod.Pod
		if errors.Is(result.AsError(), scheduler.ErrNoNodesAvailable) && s.room.IsSingle(one) {
			result = noNodes(one)
		}
		why := result.AsError()
		again := s.queues.Failed(one, why)
		s.events.HandleFailedCycle(ctx, one, why)
		if deleted(profile, one, why) {
			klog.FromContext(ctx).V(2).Info("Pod was deleted while it was being scheduled", "pod", klog.KObj(one), "why",
				result.Message())
			sched.SchedulingQueue.Done(one.UID)
			return
		}
		failed(ctx, status.OverrideFailedCondition(ctx, profile, s.word), pod, result, nominating, start)
		if nominating.Mode() == fwk.ModeOverride && nominating.NominatedNodeName != "" {
			s.holds.NominationWritten(one.UID)
		}
		if again {
			s.queues.Again(one)
		}
	}
}

// noNodes is the result of a pod in a cluster without nodes. kube-scheduler asks no plugin then, and tries the pod
// again after a backoff, as if its cycle had failed. So that the pod waits for its turn, it is as if a plugin had
// refused it.
func noNodes(pod *v1.Pod) *fwk.Status {
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable).WithError(&framework.FitError{Pod: pod,
		Diagnosis: framework.Diagnosis{
			NodeToStatus: framework.NewDefaultNodeToStatus(), UnschedulablePlugins: sets.New(gang.Name),
			PreFilterMsg: scheduler.ErrNoNodesAvailable.Error(),
		}})
}

// listenToOthers makes what schedulers outside this process have nominated count. Where such room is free again, the
// scheduling queue hears of it as if the pod had left the node, as for nominations of this scheduler.
func (s *Set) listenToOthers(ctx context.Context, sched *scheduler.Scheduler,
	factory informers.SharedInformerFactory) error {
	other := func(pod *v1.Pod) bool { return sched.Profiles[pod.Spec.SchedulerName] == nil }
	waiting := sched.SchedulingQueue
	left := func(pod *v1.Pod) {
		waiting.MoveAllToActiveOrBackoffQueue(klog.FromContext(ctx), framework.EventAssignedPodDelete, pod, nil, nil)
	}
	_, err := s.watched.ListenToPods(factory, watches.Nominations, watches.PodListener{
		Seen: func(before, now *v1.Pod) {
			if other(now) && s.holds.OtherSeen(now) {
				left(before)
			}
		},
		Gone: func(last *v1.Pod) {
			if other(last) && s.holds.OtherGone(last) {
				left(last)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watching pods of other schedulers: %w", err)
	}
	return nil
}

// deleted reports whether a pod whose cycle or binding failed was deleted meanwhile, or is being deleted. It is not
// tried again, and has no use for a condition: kube-scheduler would log that it cannot write one as an error.
func deleted(profile framework.Framework, pod *v1.Pod, why error) bool {
	if errors.Is(why, binding.ErrDeleted) {
		return true
	}
	now, err := profile.SharedInformerFactory().Core().V1().Pods().Lister().Pods(pod.Namespace).Get(pod.Name)
	if err != nil {
		return apierrors.IsNotFound(err)
	}
	return now.UID != pod.UID || now.DeletionTimestamp != nil && now.Spec.NodeName == ""
}

// pace makes the first cycle wait until what comes first is known, and each cycle until there is room for another
// binding.
func (s *Set) pace(ctx context.Context, sched *scheduler.Scheduler, queue *gatedqueue.Queue, api startup.API,
	factory informers.SharedInformerFactory) {
	next := sched.NextEntity
	sched.NextEntity = func(logger klog.Logger) (framework.QueuedEntityInfo, error) {
		s.lead.Do(func() { s.begin(ctx, sched, api, factory) })
		if ctx.Err() != nil {
			return nil, nil // the scheduler shuts down, maybe before it began
		}
		s.slots.WaitForRoom(ctx)
		for {
			s.room.Wait(ctx)
			entity, err := next(logger)
			pod := podOf(entity)
			if s.room.KeepsTurn(ctx, pod) {
				s.events.HandleCycleStart(pod)
				return entity, err
			}
			queue.PutBack(ctx, pod, factory.Core().V1().Pods().Lister())
		}
	}
}

// podOf returns the pod of an entity of the scheduling queue; nil for a pod group, or none.
func podOf(entity framework.QueuedEntityInfo) *v1.Pod {
	if one, ok := entity.(*framework.QueuedPodInfo); ok && one != nil {
		return one.Pod
	}
	return nil
}

// word returns what kube-scheduler is to write in a condition of a pod; nil where it is to write nothing. The reason
// is Unschedulable only where more nodes would help.
func (s *Set) word(pod *v1.Pod, condition *v1.PodCondition) *v1.PodCondition {
	word := *condition
	if condition.Reason != v1.PodReasonUnschedulable {
		return &word
	}
	if s.gangs.Serves(pod.Spec.SchedulerName) && gangspec.AsksUnknownGang(pod) {
		word.Reason = v1alpha1.ReasonGangUnsupported
		return &word
	}
	if e, explains := s.gangs.Explains(pod); explains {
		if e.Reason == v1alpha1.ReasonUnschedulable && e.Leader == pod.UID {
			return &word
		}
		return nil // the plugin Gang writes it
	}
	if s.reserved.AwaitsReservation(pod) {
		word.Reason = v1alpha1.ReasonAwaitingReservation
	} else if limit := s.queues.Limits([]*v1.Pod{pod}); limit.Reason != "" {
		word.Reason, word.Message = string(limit.Reason), status.PrefixMessage(limit.Message, word.Message)
	}
	return &word
}

// begin returns when scheduling may begin: the process leads, and its caches and plugins have
// what the leader before it has done.
func (s *Set) begin(ctx context.Context, sched *scheduler.Scheduler, api startup.API,
	factory informers.SharedInformerFactory) {
	if !startup.Wait(ctx, api, factory, sched.Cache, s.watches(sched)...) {
		return
	}
	soon, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	gangs := s.gangs.AwaitOpen(soon)
	if queues := s.queues.Open(soon); (!gangs || !queues) && ctx.Err() == nil {
		klog.FromContext(ctx).Info("Gangs or queues are still being read; "+
			"pods that wait for neither are scheduled before the others",
			"gangs", gangs, "queues", queues, "waited", openWithin)
	}
	close(s.leading)
}

// openWithin is how long the first cycle waits until the gangs that wait, and those that have their turn in their
// queues, are in the scheduling queue: otherwise pods that wait for neither would take their room. A kind that is not
// served, or cannot be read, must not block all scheduling.
const openWithin = 10 * time.Second

// watches returns what has to have taken in what is stored, beside the scheduler's own cache.
func (s *Set) watches(sched *scheduler.Scheduler) (all []startup.Watch) {
	for _, watch := range s.watched.All() {
		all = append(all, watch)
	}
	if profile := anyProfile(sched); profile != nil {
		for _, watch := range devicesimulation.Watches(profile.SharedDRAManager(), profile.SharedInformerFactory()) {
			all = append(all, watch)
		}
	}
	return all
}

// Follow is for a process that never schedules. It returns true when its caches and plugins have what was stored when
// Follow was called, and false when ctx is done. It is called once, when the informers have synced.
func (s *Set) Follow(ctx context.Context, sched *scheduler.Scheduler) (bool, error) {
	api, factory, err := whatIsStored(sched)
	if err != nil {
		return false, err
	}
	return startup.Wait(ctx, api, factory, sched.Cache, s.watches(sched)...), nil
}

// Ready reports whether scheduling has begun, and all gangs that existed then are known.
func (s *Set) Ready() bool {
	return leadership.Signal(s.leading).Given() && s.gangs.Synced()
}

// QueueOf returns the queue of a pod; empty where no profile has queues.
func (s *Set) QueueOf(pod *v1.Pod) string { return s.queues.QueueOf(pod) }

// CurrentWait returns why a pod, or its gang, waits for its turn in its queue now; nothing where it does not wait.
func (s *Set) CurrentWait(pod *v1.Pod) queueing.Wait { return s.queues.CurrentWait(pod) }

// Gangs returns the registry of the gangs of all profiles.
func (s *Set) Gangs() *registry.Registry { return s.gangs }

// Awaits reports whether a pod, or its gang, is being tried, or will be as things are, and when, as [waitingroom.Room]
// says.
func (s *Set) Awaits(pod *v1.Pod) (awaits bool, until time.Time) { return s.room.Awaits(pod) }

// Ledger returns the ledger of all profiles.
func (s *Set) Ledger() *ledger.Shared { return s.holds }

// Decisions returns the log of the last decisions of all profiles.
func (s *Set) Decisions() *decisions.Log { return s.decisions }

// Extensions returns the plugins of all profiles, for questions that kube-scheduler does not ask.
func (s *Set) Extensions() *extensionpoints.Plugins { return s.all }

// whatIsStored returns what all profiles share: clients and informers.
func whatIsStored(sched *scheduler.Scheduler) (startup.API, informers.SharedInformerFactory, error) {
	profile := anyProfile(sched)
	if profile == nil {
		return startup.API{}, nil, errors.New("making a client for what is stored: there is no profile")
	}
	client, err := metadata.NewForConfig(profile.KubeConfig())
	if err != nil {
		return startup.API{}, nil, fmt.Errorf("making a client for what is stored: %w", err)
	}
	return startup.API{Metadata: client, Discovery: profile.ClientSet().Discovery()}, profile.SharedInformerFactory(), nil
}

// anyProfile returns one profile, for what all profiles share; nil where there is none.
func anyProfile(sched *scheduler.Scheduler) framework.Framework {
	for _, profile := range sched.Profiles {
		return profile
	}
	return nil
}
