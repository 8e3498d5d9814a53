package fairshare

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/holds"
	"github.com/lockstep-sh/lockstep/plugins/internal/dispatch"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/internal/resource"
	"github.com/lockstep-sh/lockstep/plugins/roster"
)

// Dispatcher is the queues of a process, and whose turn it is in all its profiles. It is
// safe for concurrent use.
type Dispatcher struct {
	roster *roster.Roster
	holds  *holds.Holds
	clock  clock.WithTicker
	// leading is closed once this process schedules.
	leading <-chan struct{}

	// mu is held for look-ups and arithmetic only. It is taken under the scheduling queue's
	// lock, and the lock of gangs under it, never the other way round.
	mu     sync.Mutex
	book   *dispatch.Book
	args   *config.FairShareArgs
	window int
	total  capacity
	// opened: all that there was at the start is in the book.
	opened bool
	// handles are those of the profiles with the plugin.
	handles    map[string]fwk.Handle
	namespaces corelisters.NamespaceLister
	pods       corelisters.PodLister
	// waiting are the jobs that wait.
	waiting map[string]*waiter
	// since is when a job's turn began.
	since map[string]time.Time
	// waited are the jobs that others wait for, and since when; after bypassHold they do no
	// longer, the next time after twice that, and so on.
	waited     map[string]time.Time
	bypassHold time.Duration
	// preempts are the profiles in which others make way for a job if it finds whom to evict.
	preempts map[string]bool
	// refused are the pods that PreFilter refused, until their cycle is over; patient are the
	// jobs for which nobody made way, and since when.
	refused map[types.UID]bool
	patient map[string]time.Time
	// failed are the jobs that did not fit, until they come again.
	failed map[string]*failure
	// hopeless are the members of which the gang was found to be, until their cycle is over.
	hopeless map[types.UID]bool
	// assumed are the pods that have a node which their status does not tell yet.
	assumed map[types.UID]bool
	// seen are the pods that are counted.
	seen map[types.UID]sighting
	// members are those of them that are in a gang, by groupOf.
	members map[string]map[types.UID]bool
	// called are pods whose turn it is, to be activated.
	called  []*v1.Pod
	calling chan struct{}
	once    sync.Once
}

// waiter is a job that waits.
type waiter struct {
	// pod is the one to activate; pods are all that would be placed.
	pod   *v1.Pod
	pods  []*v1.Pod
	since time.Time
	// gangs are those that the pods are the minimum of: Gang tells them. None for others.
	gangs []gang.Key
	// reason and told are what its users were told, and when.
	reason, told string
	at           time.Time
}

// sighting is what is remembered of a pod that is counted, beside what the book has: its name,
// and its version when it was counted.
type sighting struct{ namespace, name, version string }

// NewDispatcher makes one without queues but the default one.
func NewDispatcher(gangs *roster.Roster, ledger *holds.Holds, leading <-chan struct{}) *Dispatcher {
	return &Dispatcher{
		roster: gangs, holds: ledger, leading: leading, book: dispatch.NewBook(v1alpha1.DefaultQueue), total: newCapacity(), handles: map[string]fwk.Handle{},
		waiting: map[string]*waiter{}, since: map[string]time.Time{}, waited: map[string]time.Time{}, clock: clock.RealClock{}, preempts: map[string]bool{}, refused: map[types.UID]bool{}, patient: map[string]time.Time{}, hopeless: map[types.UID]bool{}, failed: map[string]*failure{}, assumed: map[types.UID]bool{}, seen: map[types.UID]sighting{}, members: map[string]map[types.UID]bool{}, calling: make(chan struct{}, 1),
	}
}

// serve adds a profile. The arguments have to be the same in all.
func (d *Dispatcher) serve(ctx context.Context, handle fwk.Handle, args *config.FairShareArgs) error {
	d.mu.Lock()
	if d.args != nil && !equality.Semantic.DeepEqual(d.args, args) {
		defer d.mu.Unlock()
		return errors.New("differs from the arguments of another profile; say the same in all")
	}
	d.args, d.window, d.bypassHold = args, int(args.Window), args.BypassHold.Duration
	d.book.SetBypass(int(args.MaxBypass))
	d.book.SetPolicies(args.Tiers)
	d.handles[handle.ProfileName()] = handle
	d.mu.Unlock()
	var err error
	d.once.Do(func() {
		registerMetrics(d)
		for _, doubt := range doubts(args.Tiers) {
			klog.FromContext(ctx).Info("Doubtful configuration", "plugin", Name, "why", doubt)
		}
		go d.call(ctx)
		go d.tell(ctx)
		err = d.watch(ctx, handle)
	})
	return err
}

// Preempts says that in a profile GangPreemption makes room for jobs.
func (d *Dispatcher) Preempts(profile string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.preempts[profile] = true
}

// longestTurn is how long a turn lasts of which nothing comes: the pod may have been kept
// back by another gate meanwhile. It comes again.
const longestTurn = 30 * time.Second

// expire ends turns of which nothing came, and whatever else time ends. It answers whether gangs
// that failed may fit by now.
func (d *Dispatcher) expire() (retry bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, since := range d.since {
		switch {
		case !d.book.Admitted(name):
			delete(d.since, name)
		case d.clock.Since(since) > longestTurn:
			d.book.Done(name)
			delete(d.since, name)
		}
	}
	for name, w := range d.waiting {
		if !d.waits(w.pod) {
			d.leave(name)
		}
	}
	d.letOff()
	d.hurry()
	gangs := d.retry()
	d.turn("")
	return gangs
}

// patience is how long a job waits, after nobody made way for it, until somebody may.
const patience = 30 * time.Second

// hurry ends the patience of jobs.
func (d *Dispatcher) hurry() {
	for name, since := range d.patient {
		if d.clock.Since(since) < patience {
			continue
		}
		delete(d.patient, name)
		if w := d.waiting[name]; w != nil {
			if want, undecided := d.roster.Wants(w.pod); undecided {
				d.enter(name, w.pod, want)
			}
		}
	}
}

// letOff ends the waiting for jobs that have been waited for long enough.
func (d *Dispatcher) letOff() {
	waited := d.book.Waited()
	maps.DeleteFunc(d.waited, func(name string, _ time.Time) bool { _, still := waited[name]; return !still })
	for name, rounds := range waited {
		switch since, known := d.waited[name]; {
		case !known:
			d.waited[name] = d.clock.Now()
		case d.clock.Since(since) > d.bypassHold<<rounds:
			d.book.LetOff(name)
			delete(d.waited, name)
		}
	}
}

// call activates pods whose turn it is: not from where that is found out, which may be
// inside the scheduling queue.
func (d *Dispatcher) call(ctx context.Context) {
	ticker := d.clock.NewTicker(longestTurn / 10)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			if d.expire() {
				d.roster.Changed()
			}
		case <-d.calling:
		}
		d.mu.Lock()
		pods := d.called
		d.called = nil
		d.mu.Unlock()
		byProfile := map[string]map[string]*v1.Pod{}
		for _, pod := range pods {
			profile := pod.Spec.SchedulerName
			if byProfile[profile] == nil {
				byProfile[profile] = map[string]*v1.Pod{}
			}
			byProfile[profile][pod.Namespace+"/"+pod.Name] = pod
		}
		for profile, pods := range byProfile {
			d.handle(profile).Activate(klog.FromContext(ctx), pods)
		}
	}
}

func (d *Dispatcher) handle(profile string) fwk.Handle {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.handles[profile]
}

// jobOf names what a pod is placed with.
func jobOf(pod *v1.Pod, want gang.Want) string {
	if want.Job == "" {
		return holds.PodGroup(pod.UID)
	}
	if want.Ready {
		return pod.Spec.SchedulerName + "/" + want.Job + "/" + string(pod.UID)
	}
	return pod.Spec.SchedulerName + "/" + want.Job
}

// offer tells why a pod has to wait; empty if it need not.
func (d *Dispatcher) offer(pod *v1.Pod) string {
	if pod.Status.NominatedNodeName != "" || len(pod.Spec.SchedulingGates) > 0 {
		return "" // it has a place already, or another gate keeps it
	}
	want, undecided := d.roster.Wants(pod)
	if !undecided {
		return ""
	}
	name := jobOf(pod, want)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.book.Admitted(name) {
		return ""
	}
	if !d.waits(pod) {
		return "it is gone, or has a node" // the scheduling queue will hear of it
	}
	d.enter(name, pod, want)
	d.turn(name)
	_, why := d.book.Why(name)
	return why
}

// enter has a job wait for its turn.
func (d *Dispatcher) enter(job string, pod *v1.Pod, want gang.Want) {
	delete(d.failed, job)
	offered := d.job(job, pod, want)
	d.demand(want.Pods, job, dispatch.Full)
	d.book.Offer(offered)
	w := d.waiting[job]
	if w == nil {
		w = &waiter{since: d.clock.Now()}
		d.waiting[job] = w
	}
	w.pod, w.pods, w.gangs = pod, want.Pods, nil
	for _, one := range want.Pods {
		if key, _, ok := gang.KeyOf(one); ok && !want.Ready && !slices.Contains(w.gangs, key) {
			w.gangs = append(w.gangs, key)
		}
	}
}

// job is what waits with a pod.
func (d *Dispatcher) job(name string, pod *v1.Pod, want gang.Want) dispatch.Job {
	j := dispatch.Job{
		Name: name, Title: titleOf(pod), Queue: d.queueOf(pod), Group: groupOf(pod), Priority: corev1helpers.PodPriority(pod), Created: pod.CreationTimestamp.Time, Ready: want.Ready, Need: dispatch.Needs{},
	}
	_, tried := d.patient[name]
	j.Patient = tried || !d.preempts[pod.Spec.SchedulerName]
	for _, one := range want.Pods {
		j.Patient = j.Patient || one.Spec.PreemptionPolicy != nil && *one.Spec.PreemptionPolicy == v1.PreemptNever
		if now := d.current(one); now != nil {
			j.Need.Add(d.queueOf(now), d.count(now, name))
		}
	}
	return j
}

// titleOf is what users know a job by.
func titleOf(pod *v1.Pod) string {
	if key, _, ok := gang.KeyOf(pod); ok {
		return "gang " + key.String()
	}
	return "pod " + pod.Namespace + "/" + pod.Name
}

// groupOf is the gang of a pod; empty for none.
func groupOf(pod *v1.Pod) string {
	if key, _, ok := gang.KeyOf(pod); ok {
		return groupName(pod.Spec.SchedulerName, key)
	}
	return ""
}

func groupName(profile string, key gang.Key) string { return profile + "/" + key.String() }

// current is the last version of a pod that is known; nil if it is gone or has ended. The
// scheduler and the gangs may go on for a while with one that is older, or gone.
func (d *Dispatcher) current(pod *v1.Pod) *v1.Pod {
	now, err := d.pods.Pods(pod.Namespace).Get(pod.Name)
	if err != nil || now.UID != pod.UID || podutil.IsPodTerminal(now) {
		return nil
	}
	return now
}

// waits tells whether a pod is there and has no node.
func (d *Dispatcher) waits(pod *v1.Pod) bool {
	now := d.current(pod)
	return now != nil && now.Spec.NodeName == ""
}

// count takes a pod, in its current version, into the book, as part of a job, and answers
// what it asks for.
func (d *Dispatcher) count(pod *v1.Pod, job string) dispatch.Vector {
	before, known := d.book.Counted(string(pod.UID))
	now := dispatch.Usage{
		Queue: d.queueOf(pod), Job: job, Group: groupOf(pod), Priority: corev1helpers.PodPriority(pod), Amount: before.Amount,
		Runs: pod.Spec.NodeName != "" || d.assumed[pod.UID], Promised: pod.Status.NominatedNodeName != "", Demand: before.Demand,
	}
	if !known && job == "" && now.Group != "" && !now.Promised {
		now.Demand = dispatch.Hopeless // its gang asks for nothing before it is complete
	}
	if !known || d.seen[pod.UID].version != pod.ResourceVersion {
		now.Amount = amountOf(pod) // it may have been resized, or its resize is done
		d.seen[pod.UID] = sighting{namespace: pod.Namespace, name: pod.Name, version: pod.ResourceVersion}
	}
	if !known || !before.Equal(now) {
		d.book.Count(string(pod.UID), now)
		d.regroup(pod.UID, before.Group, now.Group)
	}
	return now.Amount
}

// amountOf is what kube-scheduler counts for a pod.
func amountOf(pod *v1.Pod) dispatch.Vector {
	return resource.FromList(resource.Requests(pod))
}

// regroup notes that a pod has come to a gang, or left one; empty for none.
func (d *Dispatcher) regroup(uid types.UID, from, to string) {
	if from == to {
		return
	}
	if delete(d.members[from], uid); len(d.members[from]) == 0 {
		delete(d.members, from)
	}
	if to == "" {
		return
	}
	if d.members[to] == nil {
		d.members[to] = map[types.UID]bool{}
	}
	d.members[to][uid] = true
}

func (d *Dispatcher) queueOf(pod *v1.Pod) string {
	return gang.QueueOf(pod,
		func(key gang.Key) string { return d.roster.QueueOf(pod.Spec.SchedulerName, key) },
		func(name string) string {
			namespace, err := d.namespaces.Get(name)
			if err != nil {
				return "" // it is gone, and its pods are going
			}
			return namespace.Annotations[v1alpha1.QueueLabel]
		})
}

// turn admits whose turn it is, as long as the window has room. All are activated but the
// one of the given name, which is on its way.
func (d *Dispatcher) turn(except string) {
	for d.opened && d.book.Waiting() > 0 && d.book.Turns() < d.window {
		j, ok := d.book.Next()
		if !ok {
			break
		}
		w := d.waiting[j.Name]
		if w != nil && !d.waits(w.pod) {
			d.leave(j.Name)
			continue
		}
		delete(d.waiting, j.Name)
		d.since[j.Name] = d.clock.Now()
		if w != nil {
			waitDuration.WithLabelValues(j.Queue).Observe(d.clock.Since(w.since).Seconds())
		}
		if j.Name != except && w != nil {
			d.called = append(d.called, w.pod)
		}
	}
	if len(d.called) > 0 {
		select {
		case d.calling <- struct{}{}:
		default: // it has been told
		}
	}
}

// leave ends the waiting of a job of which the pod to activate does not wait any more.
// Another of its pods is activated, if there is one, and offers it again.
func (d *Dispatcher) leave(job string) {
	w := d.waiting[job]
	d.book.Done(job)
	delete(d.waiting, job)
	if i := slices.IndexFunc(w.pods, d.waits); i >= 0 {
		d.called = append(d.called, w.pods[i])
	}
}

// crowded answers the limits that a pod would exceed if it were placed before others have made
// way; nil if it would exceed none. Unless somebody only asks, the pod is refused then.
func (d *Dispatcher) crowded(pod *v1.Pod, asked bool) *crowd {
	want, undecided := d.roster.Wants(pod)
	if !undecided {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	name := jobOf(pod, want)
	bounds := d.book.Crowded(name)
	if !d.book.Admitted(name) {
		bounds = d.book.Ceilings(d.job(name, pod, want))
	}
	if len(bounds) == 0 {
		return nil
	}
	if !asked {
		d.refused[pod.UID] = true
	}
	return &crowd{bounds: bounds, gone: map[types.UID]bool{}}
}

// running answers what a pod that runs has, and its queue and those above it.
func (d *Dispatcher) running(uid types.UID) (dispatch.Usage, []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	usage, ok := d.book.Counted(string(uid))
	if !ok || !usage.Runs {
		return usage, nil
	}
	return usage, d.book.Path(usage.Queue)
}

func (d *Dispatcher) reserve(pod *v1.Pod) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := d.current(pod); now != nil {
		d.assumed[pod.UID] = true
		d.recount(now)
	}
	d.turn("")
}

func (d *Dispatcher) unreserve(logger klog.Logger, pod *v1.Pod) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.assumed, pod.UID)
	if now := d.current(pod); now != nil {
		d.recount(now)
	}
	d.turn("")
	logger.V(4).Info("Pod waits again", "pod", klog.KObj(pod))
}

// recount counts a pod as part of the job that it is in.
func (d *Dispatcher) recount(pod *v1.Pod) {
	before, _ := d.book.Counted(string(pod.UID))
	d.count(pod, before.Job)
}

// Failed ends the turn of a pod that could not be scheduled. Most come again by themselves.
// One for which others would have to make way, and nobody did, is patient for a while.
//
// Nobody is kept waiting for what would not fit if everything else were gone: err says so of
// pods, and Gang of gangs.
func (d *Dispatcher) Failed(pod *v1.Pod, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	want, undecided := d.roster.Wants(pod)
	hopeless := d.hopeless[pod.UID] || want.Job == "" && unresolvable(err)
	delete(d.hopeless, pod.UID)
	usage, known := d.book.Counted(string(pod.UID))
	refused := d.refused[pod.UID]
	delete(d.refused, pod.UID)
	if !known || d.assumed[pod.UID] {
		return
	}
	if refused || len(d.book.Crowded(usage.Job)) > 0 {
		d.patient[usage.Job] = d.clock.Now()
	}
	demand := dispatch.Idle
	if hopeless {
		demand = dispatch.Hopeless
		d.book.Forget(usage.Job)
	} else {
		d.book.Miss(usage.Job)
	}
	d.demand(want.Pods, usage.Job, demand)
	d.done(usage.Job)
	d.fail(usage.Job, pod, want.Job != "")
	if refused && undecided && want.Job == "" && d.waits(pod) {
		d.enter(usage.Job, pod, want) // nobody else brings it back
	}
}

// demand notes how far what pods of a job ask for counts until it comes again.
func (d *Dispatcher) demand(pods []*v1.Pod, job string, demand dispatch.Demand) {
	for _, pod := range pods {
		if usage, known := d.book.Counted(string(pod.UID)); known && usage.Job == job && usage.Demand != demand {
			usage.Demand = demand
			d.book.Count(string(pod.UID), usage)
		}
	}
}

// unresolvable tells whether a pod failed for reasons that have nothing to do with what runs.
func unresolvable(err error) bool {
	var unfit *framework.FitError
	if !errors.As(err, &unfit) {
		return true // nobody knows why
	}
	statuses := unfit.Diagnosis.NodeToStatus
	possible := statuses.AbsentNodesStatus().Code() == fwk.Unschedulable && statuses.Len() < unfit.NumAllNodes
	statuses.ForEachExplicitNode(func(_ string, status *fwk.Status) {
		possible = possible || status.Code() == fwk.Unschedulable
	})
	return !possible
}

// Hopeless notes that the gang of a member would not fit if everything else were gone.
func (d *Dispatcher) Hopeless(member *v1.Pod) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hopeless[member.UID] = true
}

func (d *Dispatcher) done(job string) {
	d.book.Done(job)
	delete(d.waiting, job)
	d.turn("")
}
