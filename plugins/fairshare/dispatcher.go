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
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	corelisters "k8s.io/client-go/listers/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/holds"
	"github.com/lockstep-sh/lockstep/plugins/internal/dispatch"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/internal/pool"
	"github.com/lockstep-sh/lockstep/plugins/roster"
	"github.com/lockstep-sh/lockstep/plugins/watches"
)

// Dispatcher is the queues of a process, and whose turn it is in all its profiles. It is
// safe for concurrent use.
type Dispatcher struct {
	roster *roster.Roster
	holds  *holds.Holds
	clock  clock.WithTicker
	// victims is how many victims of a holder in the ledger have not ended.
	victims func(holder string) int
	// leading is closed once this process schedules.
	leading <-chan struct{}
	// watches learns what is watched; nil where nobody asks.
	watches *watches.Watches

	// mu is held for look-ups and arithmetic only. It is taken under the scheduling queue's
	// lock, and the lock of gangs under it, never the other way round.
	mu     sync.Mutex
	book   *dispatch.Book
	args   *config.FairShareArgs
	window int
	// nodes are what there is to be shared, and which of it pods may use.
	nodes *pool.Cluster
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
	// making are the jobs for which others are evicted that have not all ended, by their holders
	// in the ledger.
	making map[string]string
	// failed are the jobs that did not fit, until they come again.
	failed map[string]*failure
	// hopeless are the members of which the gang was found to be, until their cycle is over.
	hopeless map[types.UID]bool
	// assumed are the pods that have a node which their status does not tell yet, by its name.
	assumed map[types.UID]string
	// places are the nodes that are held for pods, as the ledger says; heard are pods of which
	// it has more to say.
	places map[types.UID]place
	heard  heard
	// seen are the pods that are counted.
	seen map[types.UID]sighting
	// members are those of them that are in a gang, by groupOf; jobs are all by their job, and
	// on those that have a node by that.
	members, jobs, on index
	// kinds are all by what they ask of nodes.
	kinds map[*pool.Class]map[types.UID]bool
	// freed: there may be room since the last turn.
	freed bool
	// called are pods whose turn it is, to be activated.
	called  []*v1.Pod
	calling chan struct{}
	once    sync.Once
	teller  *teller
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

// sighting is what is remembered of a pod that is counted, beside what the book has.
type sighting struct {
	namespace, name string
	// version is that in which it was counted; amount is what it asked for then, and kind what
	// it asked of nodes.
	version string
	amount  dispatch.Vector
	kind    *pool.Class
	// node is the one that it has, or that is held for it or promised to it; empty for none.
	node string
}

// NewDispatcher makes one without queues but the default one. victims is how many victims of a
// holder in the ledger have not ended; it is asked with no lock held.
func NewDispatcher(gangs *roster.Roster, ledger *holds.Holds, victims func(holder string) int, leading <-chan struct{}, watched *watches.Watches) *Dispatcher {
	return &Dispatcher{
		roster: gangs, holds: ledger, victims: victims, leading: leading, watches: watched, clock: clock.RealClock{},
		book: dispatch.NewBook(v1alpha1.DefaultQueue), nodes: withoutPools(), handles: map[string]fwk.Handle{}, preempts: map[string]bool{},
		waiting: map[string]*waiter{}, since: map[string]time.Time{}, waited: map[string]time.Time{},
		patient: map[string]time.Time{}, making: map[string]string{}, failed: map[string]*failure{}, refused: map[types.UID]bool{}, hopeless: map[types.UID]bool{},
		assumed: map[types.UID]string{}, places: map[types.UID]place{}, seen: map[types.UID]sighting{}, members: index{}, jobs: index{}, on: index{},
		kinds: map[*pool.Class]map[types.UID]bool{}, calling: make(chan struct{}, 1),
	}
}

func withoutPools() *pool.Cluster {
	nodes, err := pool.New(nil)
	utilruntime.Must(err) // no selector can be wrong
	return nodes
}

// lock takes the lock, and takes in what the ledger has to say.
func (d *Dispatcher) lock() {
	d.mu.Lock()
	d.hear()
}

// serve adds a profile. The arguments have to be the same in all.
func (d *Dispatcher) serve(ctx context.Context, handle fwk.Handle, args *config.FairShareArgs) error {
	nodes, err := pool.New(args.Pools)
	if err != nil {
		return err
	}
	d.mu.Lock()
	if d.args != nil && !equality.Semantic.DeepEqual(d.args, args) {
		defer d.mu.Unlock()
		return errors.New("differs from the arguments of another profile; say the same in all")
	}
	if d.args == nil {
		d.nodes = nodes
	}
	d.args, d.window, d.bypassHold = args, int(args.Window), args.BypassHold.Duration
	d.book.SetBypass(int(args.MaxBypass))
	d.book.SetPolicies(policiesOf(args.Tiers))
	d.handles[handle.ProfileName()] = handle
	d.mu.Unlock()
	d.once.Do(func() {
		d.holds.OnChange(d.holdsChanged)
		registerMetrics(d)
		for _, doubt := range doubts(args.Tiers) {
			klog.FromContext(ctx).Info("Risky configuration", "plugin", Name, "why", doubt)
		}
		d.teller = newTeller(d, args.ExplanationQPS, d.writeCondition)
		go d.call(ctx)
		go d.tell(ctx)
		err = d.watch(ctx, handle)
	})
	return err
}

// Preempts says that in a profile GangPreemption makes room for jobs.
func (d *Dispatcher) Preempts(profile string) {
	d.lock()
	defer d.mu.Unlock()
	d.preempts[profile] = true
}

// jobOf names what a pod is placed with.
func jobOf(pod *v1.Pod, want gang.Want) string {
	if want.Job == "" {
		return holds.PodGroup(pod.UID)
	}
	if want.Alone {
		return pod.Spec.SchedulerName + "/" + want.Job + "/" + string(pod.UID)
	}
	return pod.Spec.SchedulerName + "/" + want.Job
}

// offer tells why a pod has to wait; empty if it need not.
func (d *Dispatcher) offer(pod *v1.Pod) string {
	if len(pod.Spec.SchedulingGates) > 0 {
		return "" // another gate keeps it
	}
	want, undecided := d.roster.Wants(pod)
	if !undecided {
		return ""
	}
	name, making := jobOf(pod, want), d.makes(pod, want)
	promised := pod.Status.NominatedNodeName != ""
	if promised && making == "" {
		return "" // it has a place already
	}
	d.lock()
	defer d.mu.Unlock()
	d.noteMaking(name, making)
	if d.book.Admitted(name) {
		return ""
	}
	if !d.waits(pod) {
		return "pod is deleted or already bound" // the scheduling queue will hear of it
	}
	if promised {
		if exceeded, _ := d.book.Ceilings(d.job(name, pod, want)); len(exceeded) == 0 {
			return "" // others end for a node, not for what its queue may have
		}
	}
	d.enter(name, pod, want)
	if !d.opened {
		return "waiting for queue and pod caches to sync" // the shares would be reckoned for each
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
		if key, _, ok := gang.KeyOf(one); ok && !want.Alone && !slices.Contains(w.gangs, key) {
			w.gangs = append(w.gangs, key)
		}
	}
}

// job is what waits with a pod.
func (d *Dispatcher) job(name string, pod *v1.Pod, want gang.Want) dispatch.Job {
	j := dispatch.Job{
		Name: name, Title: titleOf(pod), Queue: d.queueOf(pod), Group: groupOf(pod), Priority: corev1helpers.PodPriority(pod), Created: pod.CreationTimestamp.Time, Ready: want.Ready, Begun: want.Begun, Making: d.making[name] != "",
	}
	_, tried := d.patient[name]
	j.Patient = tried || !d.preempts[pod.Spec.SchedulerName]
	var asked []dispatch.Usage
	for _, one := range want.Pods {
		j.Patient = j.Patient || one.Spec.PreemptionPolicy != nil && *one.Spec.PreemptionPolicy == v1.PreemptNever
		if now := d.current(one); now != nil {
			asked = append(asked, d.count(now, name))
		}
	}
	options := dispatch.Options(asked)
	j.Need, j.Or = options[0], options[1:]
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

// running returns what a pod that runs has, and its queue and those above it.
func (d *Dispatcher) running(uid types.UID) (dispatch.Usage, []string) {
	d.lock()
	defer d.mu.Unlock()
	usage, ok := d.book.Counted(string(uid))
	if !ok || !usage.Runs {
		return usage, nil
	}
	return usage, d.book.Path(usage.Queue)
}
