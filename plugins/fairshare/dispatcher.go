package fairshare

import (
	"context"
	"errors"
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
	// members are those of them that are in a gang, by groupOf, and jobs are all by their job.
	members, jobs index
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
		roster: gangs, holds: ledger, leading: leading, clock: clock.RealClock{},
		book: dispatch.NewBook(v1alpha1.DefaultQueue), total: newCapacity(), handles: map[string]fwk.Handle{}, preempts: map[string]bool{},
		waiting: map[string]*waiter{}, since: map[string]time.Time{}, waited: map[string]time.Time{},
		patient: map[string]time.Time{}, failed: map[string]*failure{}, refused: map[types.UID]bool{}, hopeless: map[types.UID]bool{},
		assumed: map[types.UID]bool{}, seen: map[types.UID]sighting{}, members: index{}, jobs: index{},
		calling: make(chan struct{}, 1),
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
	if !d.opened {
		return "not all queues and pods are known yet" // the shares would be reckoned for each
	}
	d.turn(name)
	_, why := d.book.Why(name)
	return why
}

// enter has a job wait for its turn.
func (d *Dispatcher) enter(job string, pod *v1.Pod, want gang.Want) {
	delete(d.failed, job)
	if now := d.current(pod); now != nil {
		pod = now
	}
	offered := d.job(job, pod, want)
	wanted := map[types.UID]bool{}
	for _, one := range want.Pods {
		wanted[one.UID] = true
	}
	for uid := range d.jobs[job] {
		if wanted[uid] {
			d.ask(uid, job, dispatch.Full)
		} else {
			d.ask(uid, job, dispatch.Hopeless) // it is beyond the minimum by now
		}
	}
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
		d.members.move(pod.UID, before.Group, now.Group)
		d.jobs.move(pod.UID, before.Job, now.Job)
	}
	return now.Amount
}

// amountOf is what kube-scheduler counts for a pod.
func amountOf(pod *v1.Pod) dispatch.Vector {
	return resource.FromList(resource.Requests(pod))
}

// index is pods by what they are part of.
type index map[string]map[types.UID]bool

// move notes that a pod is part of something else; empty for nothing.
func (x index) move(uid types.UID, from, to string) {
	if from == to {
		return
	}
	if delete(x[from], uid); len(x[from]) == 0 {
		delete(x, from)
	}
	if to == "" {
		return
	}
	if x[to] == nil {
		x[to] = map[types.UID]bool{}
	}
	x[to][uid] = true
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
