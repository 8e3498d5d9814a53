// Package waitingroom lets one job after the other into the scheduling queue: gangs that start together, and jobs of
// queues. Whose turn it is is decided in pkg/rules/turns; this package tells it what happens, and carries out what it
// decides.
package waitingroom

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
)

// Room has the jobs of all profiles that wait. It is safe for concurrent use.
type Room struct {
	gangs Gangs
	holds *ledger.Shared
	// evictions knows the victims of preemptors; nil where nothing is evicted.
	evictions Evictions
	queues    Queues
	queue     SchedulingQueue
	pods      corelisters.PodLister
	clock     clock.WithTicker

	// asking serialises Next. It is held while pods are activated: mu and the locks of the scheduling queue are taken
	// under it, never the other way round.
	asking sync.Mutex
	// mu guards what follows. The lock of the gangs is taken under it, never the other way round.
	mu   sync.Mutex
	line *turns.Line
	// touched are the groups that may have changed since the last refresh.
	touched map[hold.Holder]bool
	// leader is the pod that has its turn, where the queues have its job; taken is it once the thread has taken it.
	leader, taken types.UID
	// cycleBegan is when the last cycle began. unfit is the pod placed alone of which found was found in it.
	cycleBegan time.Time
	unfit      types.UID
	found      turns.AttemptFailure
	// passing is how many events are being passed on to the scheduling queue, and since when there was always one.
	passing      int
	passingSince time.Time

	// freed: the ledger has freed capacity since [Room.noteFreed] was called.
	freed atomic.Bool
	// idle: the scheduling thread waits for a pod.
	idle atomic.Bool
	// wake makes run ask who is next, and so does timer when another job may be by time alone.
	wake  chan struct{}
	timer clock.Timer
}

// Gangs are the gangs of all profiles.
type Gangs interface {
	// Turn returns a group that waits for its turn, or has it; false if it does neither.
	Turn(group hold.Holder) (gangstate.Turn, bool)
	// Lead gives a group its turn, and activates its leader, which it returns; nil if the group does not wait.
	Lead(ctx context.Context, group hold.Holder) *v1.Pod
	// GiveBack takes the turn from a group that has not used it: the group waits for another.
	GiveBack(ctx context.Context, group hold.Holder)
	// IsPlacedAlone reports whether a profile that has gangs places a pod alone.
	IsPlacedAlone(pod *v1.Pod) bool
	// PlacedWith returns the group with which a pod is placed; false if there is none.
	PlacedWith(pod *v1.Pod) (group hold.Holder, together bool)
	// RankAlone returns the rank of a pod that is placed alone.
	RankAlone(pod *v1.Pod) turns.Rank
	// Failed is called when the cycle of a pod, or its binding, failed.
	Failed(ctx context.Context, pod *v1.Pod, why error)
}

// Evictions knows the victims of preemptors.
type Evictions interface {
	// Victims returns how many victims of a holder have not ended.
	Victims(holder hold.Holder) int
	// RecordEnd is called when a pod has ended, and the scheduler's cache no longer has it. It reports whether the pod was
	// evicted to make room for others.
	RecordEnd(pod types.UID, now time.Time) bool
}

// Queues are the queues of all profiles.
type Queues interface {
	turns.Policy
	// QueueOf returns the queue of a pod; empty where its profile has none.
	QueueOf(pod *v1.Pod) string
	// Admit begins the turn of a job that First has returned, and returns its pod; nil if the job does not wait.
	Admit(ctx context.Context, job string) *v1.Pod
	// TakePodsToActivate takes the pods that have to come to the gate again.
	TakePodsToActivate() []*v1.Pod
	// RetryFirst has TakePodsToActivate return, of each queue, the first pod that did not fit.
	RetryFirst()
	// Left is called when the scheduler's cache no longer has a pod on a node.
	Left(pod *v1.Pod)
}

// SchedulingQueue is where pods are let into.
type SchedulingQueue interface {
	Activate(logger klog.Logger, pods map[string]*v1.Pod)
	// Gated reports whether a pod waits at a gate, as any PreEnqueue plugin decides.
	Gated(pod *v1.Pod) bool
}

// New returns an empty room. evictions is nil where nothing is evicted.
func New(gangs Gangs, queues Queues, holds *ledger.Shared, evictions Evictions, by clock.WithTicker) *Room {
	r := &Room{
		gangs: gangs, queues: queues, holds: holds, evictions: evictions, clock: by,
		touched: map[hold.Holder]bool{}, wake: make(chan struct{}, 1),
	}
	r.line = turns.New(queues, elsewhere{r})
	r.timer = r.clock.NewTimer(never)
	holds.OnReport(func() {
		r.freed.Store(true)
		r.RequestNext()
	})
	return r
}

// never is a pause that does not end.
const never = 365 * 24 * time.Hour

// Start begins to ask who is next, until ctx is done, whenever something happens while the scheduling thread waits.
func (r *Room) Start(ctx context.Context, queue SchedulingQueue, pods corelisters.PodLister) {
	r.queue, r.pods = queue, pods
	go r.run(ctx)
}

func (r *Room) run(ctx context.Context) {
	defer r.timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.timer.C():
		case <-r.wake:
		}
		r.asking.Lock()
		r.bringCalled(ctx) // also in a process that does not schedule
		r.asking.Unlock()
		r.ask(ctx)
	}
}

// bringCalled brings to the gate what the queues have called. asking is held.
func (r *Room) bringCalled(ctx context.Context) {
	for _, pod := range r.queues.TakePodsToActivate() {
		r.activate(ctx, pod)
	}
}

// RequestNext makes somebody ask who is next, if the scheduling thread waits. It does not block.
func (r *Room) RequestNext() {
	select {
	case r.wake <- struct{}{}:
	default: // somebody is about to
	}
}

// Wait is called by the scheduling thread before it takes a pod, which may have to wait for one. It lets in the job
// whose turn it is.
func (r *Room) Wait(ctx context.Context) {
	r.idle.Store(true)
	r.Next(ctx)
}

// PassOn delivers a cluster event: hear delivers it to listeners, then pass to the scheduling queue. Until both are
// done, no job of a queue is let in, because the event may still bring one that comes first. Gangs in no queue are let
// in between the two.
func (r *Room) PassOn(ctx context.Context, hear, pass func()) {
	r.locked(func() {
		if r.passing++; r.passing == 1 {
			r.passingSince = r.clock.Now()
		}
	})
	hear()
	r.ask(ctx) // before pods that the event moves to the active queue
	pass()
	r.locked(func() { r.passing-- })
	r.ask(ctx)
}

// longestPassing is how long jobs of queues wait for events that are passed on without a break. It is many times what
// one event takes, also where other programs keep all cores busy.
const longestPassing = 200 * time.Millisecond

// ask lets in the job whose turn it is if the scheduling thread waits for a pod. Otherwise the thread does that before
// it takes the next one.
func (r *Room) ask(ctx context.Context) {
	if r.idle.Load() {
		r.Next(ctx)
	}
}

// KeepsTurn is called by the scheduling thread when it has taken a pod; nil for a native pod group, or none. It reports
// whether the job of the pod keeps its turn, if it has one. Otherwise the pod has to wait at its gate again.
func (r *Room) KeepsTurn(ctx context.Context, pod *v1.Pod) (keeps bool) {
	if pod == nil {
		return true
	}
	holder, together := r.holderOf(pod)
	if turn, begun := r.turn(); begun || turn != holder.String() {
		return true
	}
	if turn, _ := r.gangs.Turn(holder); together && (turn.Leader == nil || turn.Leader.UID != pod.UID) {
		return true // it does not plan its group
	}
	r.asking.Lock()
	defer r.asking.Unlock()
	r.noteFreed()
	r.locked(func() {
		now := r.clock.Now()
		r.refresh(now)
		if keeps = r.line.KeepsTurn(holder.String(), now, r.letsInQueues(now)); !keeps {
			r.leader = ""
		}
	})
	if !keeps && together {
		r.gangs.GiveBack(ctx, holder)
	}
	return keeps
}

// HandleCycleStart is called by the scheduling thread when the cycle of what it has taken begins.
func (r *Room) HandleCycleStart(pod *v1.Pod) {
	r.idle.Store(false)
	r.locked(func() {
		r.taken = ""
		r.line.BeginCycle()
	})
	if pod == nil {
		return
	}
	holder, _ := r.holderOf(pod)
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	r.cycleBegan = now
	r.line.Begin(holder.String(), now)
	if r.leader == pod.UID {
		r.leader, r.taken = "", pod.UID
		name, _ := r.line.Turn()
		r.line.PassOver(name) // its cycle is over when somebody asks again
	}
}

// Next lets in the job whose turn it is, if there is one: its pod is in the scheduling queue when Next returns.
//
// The scheduling thread calls it before it takes a pod, so it takes no pod of lower rank in place of a job that a
// change may help. While the thread waits for a pod, the goroutine that delivers a cluster event calls it, see
// [Room.PassOn]. It costs a look-up, and after a change a look at each job that rests.
func (r *Room) Next(ctx context.Context) {
	r.asking.Lock()
	defer r.asking.Unlock()
	r.noteFreed()
	r.bringCalled(ctx)
	for ctx.Err() == nil {
		job, byPolicy, ok := r.next()
		if !ok {
			return
		}
		if pod := r.letIn(ctx, job, byPolicy); pod != nil && r.queue.Gated(pod) {
			r.locked(func() { r.line.PassOver(job.Name) })
		}
	}
}

// noteFreed notes that holds have ended. asking is held.
func (r *Room) noteFreed() {
	if r.freed.Swap(false) {
		r.RecordChange(turns.Freed)
	}
}

// letIn moves the pod of a job to the active queue and returns it, or nil if the job no longer waits. byPolicy says
// whether the queues have to admit it first.
func (r *Room) letIn(ctx context.Context, job turns.Job, byPolicy bool) *v1.Pod {
	if job.Single {
		return r.letInSingle(ctx, job)
	}
	if !byPolicy {
		r.locked(func() { r.leader = "" })
		leader := r.gangs.Lead(ctx, job.Holder)
		if leader == nil {
			r.locked(func() { r.line.Withdraw(job.Name) })
		}
		return leader
	}
	pod := r.queues.Admit(ctx, job.Name)
	if pod == nil {
		r.locked(func() { r.line.PassOver(job.Name) })
		return nil
	}
	r.locked(func() {
		if r.leader = ""; job.Holder.IsNone() { // it is one pod: the turns know nothing of its attempt
			r.leader = pod.UID
		}
	})
	r.activate(ctx, pod)
	return pod
}

func (r *Room) letInSingle(ctx context.Context, job turns.Job) *v1.Pod {
	pod := r.podOf(job)
	if pod == nil || !r.IsSingle(pod) {
		r.locked(func() { r.line.Withdraw(job.Name) })
		if pod != nil {
			r.activate(ctx, pod) // it waits elsewhere from now on
		}
		return nil
	}
	r.locked(func() { r.leader = pod.UID })
	r.activate(ctx, pod)
	return pod
}

func (r *Room) activate(ctx context.Context, pod *v1.Pod) {
	r.queue.Activate(klog.FromContext(ctx), map[string]*v1.Pod{pod.Namespace + "/" + pod.Name: pod})
}

// next returns the job whose turn it is and whether the queues have to admit it first; ok is false if there is none.
func (r *Room) next() (job turns.Job, byPolicy, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	r.refresh(now)
	job, byPolicy, ok, again := r.line.Next(now, r.letsInQueues(now))
	if !again.IsZero() {
		r.timer.Reset(max(again.Sub(now), time.Millisecond))
	}
	return job, byPolicy, ok
}

// letsInQueues reports whether jobs of queues may be let in.
func (r *Room) letsInQueues(now time.Time) bool {
	return r.passing == 0 || now.Sub(r.passingSince) > longestPassing
}

// turn returns the job that was let in last, until its attempt is over, and whether the attempt has begun.
func (r *Room) turn() (name string, begun bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.line.Turn()
}

// holderOf returns the group with which a pod is placed, or what the pod is alone; together is whether there is a
// group.
func (r *Room) holderOf(pod *v1.Pod) (holder hold.Holder, together bool) {
	if group, together := r.gangs.PlacedWith(pod); together {
		return group, true
	}
	return single(pod), false
}

// refresh offers the touched groups that wait for their turn, and withdraws those that no longer do.
func (r *Room) refresh(now time.Time) {
	for group := range r.touched {
		switch turn, waits := r.gangs.Turn(group); {
		case !waits:
			r.line.Withdraw(group.String())
		case !turn.Has:
			r.line.Offer(r.jobOf(group, turn), now)
		}
	}
	clear(r.touched)
}

// locked calls a function with mu held.
func (r *Room) locked(what func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	what()
}

func (r *Room) jobOf(group hold.Holder, turn gangstate.Turn) turns.Job {
	job := turn.Job
	job.Name, job.Holder = group.String(), group
	if turn.Leader != nil {
		job.Queue = r.queues.QueueOf(turn.Leader)
	}
	return job
}

// Awaits reports whether the gang of a pod is being tried, or will be as things are, or victims make room for it or for
// the pod: the present explanation may not be the last. until is when it may be tried at the earliest, or when the
// attempt that keeps it from that is over; zero for at once.
func (r *Room) Awaits(pod *v1.Pod) (awaits bool, until time.Time) {
	holder, _ := r.holderOf(pod)
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	r.refresh(now)
	awaits, until = r.line.Awaits(holder.String(), now)
	return awaits || elsewhere{r}.Making(single(pod)), until // a gang of one is placed alone
}

// elsewhere is what is known of jobs outside the room.
type elsewhere struct{ r *Room }

// Making reports whether victims of a holder have not all ended.
func (e elsewhere) Making(holder hold.Holder) bool {
	return e.r.evictions != nil && e.r.evictions.Victims(holder) > 0
}

// Promised reports whether room is kept for a holder by nominations.
func (e elsewhere) Promised(holder hold.Holder) bool { return e.r.holds.Nominated(holder) }
