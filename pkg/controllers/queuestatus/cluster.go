package queuestatus

import (
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/planning/clusterdevices"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate/evictionrecord"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/deviceclaims"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/pools"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/share"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/usage"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// cluster is what the status of all queues is computed from.
type cluster struct {
	queues []*v1alpha1.Queue
	pods   []*v1.Pod
	nodes  []*v1.Node
	// devices are the devices that nodes have; claims, and the templates of those to be made, are what pods ask of them.
	devices   *clusterdevices.Counts
	claims    []*resourceapi.ResourceClaim
	templates []*resourceapi.ResourceClaimTemplate
	// reserved are pods that stand for Reservations: what they hold, and what they still look for. They are no gangs.
	reserved []*v1.Pod
	// byNamespace are the queues that namespaces name, and groups are the PodGroups of gangs.
	byNamespace map[string]string
	groups      map[gangspec.Key]gangspec.PodGroups
	// evicted are gangs that were evicted, and evictedHold is for how long what they had counts.
	evicted     map[gangspec.Key]evictionrecord.Record
	evictedHold time.Duration
	// schedulers are those that use queues, by the scheduler name of pods; leaveNative are those of them that leave native
	// PodGroups to kube-scheduler's own plugins.
	schedulers, leaveNative map[string]bool
	rules                   share.Rules
	pools                   []config.Pool
}

// sum is what is counted in a queue and those below it.
type sum struct {
	allocated, requested resource.Vector
	// gangs that are counted; true for those with a pod on a node.
	gangs map[member]bool
}

// member is what counts as one: a gang of a scheduler, or else a pod.
type member struct {
	scheduler string
	gang      gangspec.Key
	pod       types.UID
}

func (c *cluster) memberOf(pod *v1.Pod) member {
	if key, ok := c.gangOf(pod); ok {
		return member{scheduler: pod.Spec.SchedulerName, gang: key}
	}
	return member{pod: pod.UID}
}

func (c *cluster) gangOf(pod *v1.Pod) (gangspec.Key, bool) {
	key, _, ok := gangspec.GangOf(pod, c.native)
	return key, ok
}

func (c *cluster) native(key gangspec.Key) *gangspec.PodGroupDescription {
	return c.groups[key][gangspec.Native]
}

// isScheduledAlone reports whether a pod is in no gang for its scheduler.
func (c *cluster) isScheduledAlone(pod *v1.Pod) bool {
	return gangspec.IsScheduledAlone(pod, c.native, c.leaveNative[pod.Spec.SchedulerName])
}

// statuses returns the status of each queue, by name. now is the transition time of conditions that change. What
// queues use and deserve is counted as in the scheduler.
func (c *cluster) statuses(now metav1.Time) (map[string]v1alpha1.QueueStatus, error) {
	nodes, err := pools.New(c.pools)
	if err != nil {
		return nil, err
	}
	tree, book := c.tree(), c.book(now.Time)
	offered := c.count(book, nodes, now.Time)
	total := nodes.Total()
	sums := map[string]*sum{}
	for name := range tree {
		sums[name] = &sum{allocated: resource.Vector{}, requested: resource.Vector{}, gangs: map[member]bool{}}
	}
	chains := map[string][]string{}
	for i, pod := range slices.Concat(c.pods, c.reserved) {
		of, counts := book.Counted(string(pod.UID))
		if !counts {
			continue
		}
		if _, known := chains[of.Queue]; !known {
			chains[of.Queue] = chain(tree, of.Queue)
		}
		as := c.memberOf(pod)
		awaited := book.IsAwaited(as.gang.In(as.scheduler))
		for _, at := range chains[of.Queue] {
			s := sums[at]
			if !awaited || of.Demand != queueing.Hopeless { // else it is part of what its gang had
				s.requested.Add(of.Amount, 1)
			}
			if of.Runs {
				s.allocated.Add(of.Amount, 1)
			}
			if i < len(c.pods) {
				s.gangs[as] = s.gangs[as] || of.Runs
			}
		}
	}
	for name, amount := range book.Awaited() {
		for _, at := range chain(tree, name) {
			if sums[at] != nil {
				sums[at].requested.Add(amount, 1)
			}
		}
	}
	queues := map[string]*v1alpha1.Queue{}
	for _, q := range c.queues {
		queues[q.Name] = q
	}
	shares := book.Shares()
	statuses := make(map[string]v1alpha1.QueueStatus, len(c.queues))
	for _, q := range c.queues {
		status := sums[q.Name].status(shares[q.Name].Deserved, total, len(c.pools) > 0)
		status.Conditions = slices.Clone(q.Status.Conditions)
		condition := ready(q, tree, queues, c.pools, offered)
		condition.LastTransitionTime = now
		meta.SetStatusCondition(&status.Conditions, condition)
		statuses[q.Name] = status
	}
	return statuses, nil
}

// count counts all pods, and what is held. It returns the resources that nodes have; none without nodes.
func (c *cluster) count(book *queueing.Book, nodes *pools.Cluster, now time.Time) (offered sets.Set[v1.ResourceName]) {
	claimed := deviceclaims.New(c.devices)
	for _, claim := range c.claims {
		claimed.Set(claim)
	}
	for _, template := range c.templates {
		claimed.SetTemplate(template)
	}
	counter := usage.New(caller{c}, book, nodes, claimed)
	unlimited := c.devices.Unlimited()
	counter.SetUnlimited(unlimited)
	offered = sets.New[v1.ResourceName]()
	if len(c.nodes) > 0 {
		offered = sets.KeySet(unlimited)
	}
	for _, node := range c.nodes {
		with := c.devices.WithDevices(node)
		counter.SetNode(with)
		for name := range with.Status.Allocatable {
			offered.Insert(name)
		}
	}
	waiting := c.waiting(now)
	for i, pod := range slices.Concat(c.pods, c.reserved) {
		switch held := i >= len(c.pods) && pod.Spec.NodeName != ""; {
		case held && c.counts(pod):
			counter.SetHeld(hold.ID(pod.UID), pod, pod.Spec.NodeName, resource.OfPod(pod))
		case c.foreign(pod):
			counter.SetForeign(pod)
		case c.counts(pod):
			node := pod.Spec.NodeName
			counter.Count(pod, usage.Place{Node: node, Runs: node != ""}, waiting.of[pod.UID])
		}
	}
	counter.StartHeld()
	waiting.offer(book, counter)
	return offered
}

// caller is what the counter asks. No job has its turn, so nothing follows from what is counted.
type caller struct{ *cluster }

var _ usage.Caller = caller{}

// Ours implements usage.Caller.
func (c caller) Ours(schedulerName string) bool { return c.schedulers[schedulerName] }

// QueueOf implements usage.Caller.
func (c caller) QueueOf(pod *v1.Pod) string { return c.queueOf(pod) }

// GangOf implements usage.Caller.
func (c caller) GangOf(pod *v1.Pod) (gangspec.Key, bool) { return c.gangOf(pod) }

// HeldChanged implements usage.Caller.
func (caller) HeldChanged() {}

// Recounted implements usage.Caller.
func (caller) Recounted(string) {}

// book returns a book with all queues, and what evicted gangs had, in which nothing else is counted yet.
func (c *cluster) book(now time.Time) *queueing.Book {
	book := queueing.NewBook(v1alpha1.DefaultQueue, nil)
	book.Configure(queueing.Limits{EvictedHold: c.evictedHold}, queueing.Policies{Rules: c.rules})
	for key, e := range c.evicted {
		book.SetEvicted(key.In(e.Scheduler), e, now)
	}
	queues := make([]queueing.Queue, len(c.queues))
	for i, q := range c.queues {
		queues[i] = pools.Queue(q)
	}
	book.SetQueues(queues...)
	return book
}

// tree returns the queues with their parents. The default queue is always there.
func (c *cluster) tree() map[string]share.Queue {
	tree := map[string]share.Queue{v1alpha1.DefaultQueue: {Name: v1alpha1.DefaultQueue}}
	for _, q := range c.queues {
		tree[q.Name] = share.Queue{Name: q.Name, Parent: q.Spec.Parent}
	}
	return tree
}

// foreign reports whether a pod has part of a node and is not of a scheduler that uses queues.
func (c *cluster) foreign(pod *v1.Pod) bool {
	return !c.schedulers[pod.Spec.SchedulerName] && objectstate.OccupiesNode(pod)
}

// counts reports whether a pod is counted in its queue: it has a node or awaits one. With gates it asks for nothing
// yet, nor where it cannot be scheduled as it is.
func (c *cluster) counts(pod *v1.Pod) bool {
	return c.schedulers[pod.Spec.SchedulerName] && (objectstate.OccupiesNode(pod) || objectstate.AwaitsNode(pod)) &&
		len(pod.Spec.SchedulingGates) == 0 && gangspec.CheckPod(pod) == nil
}

func (c *cluster) queueOf(pod *v1.Pod) string {
	return gangspec.QueueOf(pod,
		func(key gangspec.Key) gangspec.PodGroups { return c.groups[key] },
		func(name string) string { return c.byNamespace[name] })
}

// chain returns a queue and those above it, as far as they exist and none comes twice: in a part
// of the tree that is not connected to the top, the numbers add up, too. A queue that is too deep is alone.
func chain(tree map[string]share.Queue, name string) []string {
	names, err := share.Ancestors(tree, name)
	if errors.Is(err, share.ErrDepth) {
		return names[:1]
	}
	return names
}

func (s *sum) status(deserved, total resource.Vector, several bool) v1alpha1.QueueStatus {
	entitled, requested := deserved.Sum(), s.requested.Sum()
	for name, amount := range entitled { // a pod that may use several pools is entitled to a place in each
		entitled[name] = min(amount, requested[name])
	}
	status := v1alpha1.QueueStatus{
		Deserved: entitled.List(), Allocated: s.allocated.Sum().List(), Requested: requested.List(),
		Share: percent(share.Dominant(s.allocated, total)),
	}
	if several {
		status.Pools = byPool(deserved, s.allocated, s.requested)
	}
	for _, runs := range s.gangs {
		if runs {
			status.RunningGangs++
		} else {
			status.PendingGangs++
		}
	}
	return status
}

// byPool returns the same amounts pool by pool, in the order of their names, without pools in which
// there is nothing.
func byPool(deserved, allocated, requested resource.Vector) []v1alpha1.QueuePoolStatus {
	d, a, r := deserved.ByPool(), allocated.ByPool(), requested.ByPool()
	var list []v1alpha1.QueuePoolStatus
	names := slices.Concat(slices.Collect(maps.Keys(d)), slices.Collect(maps.Keys(r)))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		one := v1alpha1.QueuePoolStatus{Name: name, Deserved: d[name].List(), Allocated: a[name].List(),
			Requested: r[name].List()}
		if len(one.Deserved)+len(one.Allocated)+len(one.Requested) > 0 {
			list = append(list, one)
		}
	}
	return list
}

// percent formats a part, with at most one decimal: "12.5%".
func percent(part float64) string {
	return strconv.FormatFloat(math.Round(part*1000)/10, 'f', -1, 64) + "%"
}
