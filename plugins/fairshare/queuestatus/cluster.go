package queuestatus

import (
	"maps"
	"math"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/devices"
	"github.com/lockstep-sh/lockstep/plugins/internal/dispatch"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/internal/pool"
	"github.com/lockstep-sh/lockstep/plugins/internal/reservation"
	"github.com/lockstep-sh/lockstep/plugins/internal/resource"
	"github.com/lockstep-sh/lockstep/plugins/internal/share"
)

// cluster is what the status of all queues is computed from.
type cluster struct {
	queues []*v1alpha1.Queue
	pods   []*v1.Pod
	nodes  []*v1.Node
	// devices are the devices that nodes have behind extended resources.
	devices *devices.Counts
	// reserved are pods that stand for Reservations: what they hold, and what they still look for. They are no gangs.
	reserved []*v1.Pod
	// byNamespace and byGang are the queues that namespaces and PodGroups name.
	byNamespace map[string]string
	byGang      map[gang.Key]string
	// schedulers are those that use queues, by the scheduler name of pods.
	schedulers map[string]bool
	rules      share.Rules
	pools      []config.Pool
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
	gang      gang.Key
	pod       types.UID
}

func memberOf(pod *v1.Pod) member {
	if key, _, ok := gang.KeyOf(pod); ok {
		return member{scheduler: pod.Spec.SchedulerName, gang: key}
	}
	return member{pod: pod.UID}
}

// statuses returns the status of each queue, by name. now is the transition time of conditions that change. What
// queues deserve follows from what is counted, as in the scheduler: by the same book.
func (c *cluster) statuses(now metav1.Time) (map[string]v1alpha1.QueueStatus, error) {
	nodes, pods, err := c.shared()
	if err != nil {
		return nil, err
	}
	tree, total, book := c.tree(), nodes.Total(), c.book(nodes.Total())
	sums := map[string]*sum{}
	for name := range tree {
		sums[name] = &sum{allocated: resource.Vector{}, requested: resource.Vector{}, gangs: map[member]bool{}}
	}
	chains := map[string][]string{}
	for i, pod := range slices.Concat(c.pods, c.reserved) {
		what, counts := pods[pod.UID]
		if !counts {
			continue
		}
		usage := dispatch.Usage{Queue: c.queueOf(pod), Runs: pod.Spec.NodeName != "", Demand: demandOf(pod)}
		usage.Amount, usage.Or = nodes.Charge(what.amount, what.kind, pod.Spec.NodeName)
		book.Count(string(pod.UID), usage)
		if _, known := chains[usage.Queue]; !known {
			chains[usage.Queue] = chain(tree, usage.Queue)
		}
		for _, at := range chains[usage.Queue] {
			sums[at].add(usage)
			if i < len(c.pods) {
				sums[at].member(memberOf(pod), usage.Runs)
			}
		}
	}
	closed := map[string]bool{}
	for _, q := range c.queues {
		closed[q.Name] = q.Spec.Closed
	}
	shares := book.Shares()
	statuses := make(map[string]v1alpha1.QueueStatus, len(c.queues))
	for _, q := range c.queues {
		status := sums[q.Name].status(shares[q.Name].Deserved, total, len(c.pools) > 0)
		status.Conditions = slices.Clone(q.Status.Conditions)
		condition := ready(q, tree, closed, c.pools)
		condition.LastTransitionTime = now
		meta.SetStatusCondition(&status.Conditions, condition)
		statuses[q.Name] = status
	}
	return statuses, nil
}

// inPlace returns, for each counted pod that moves to what is held for it, the first pod in its queue that stands for that and is on
// a node. That one counts only beyond what the moving pod has.
func (c *cluster) inPlace() map[types.UID]types.UID {
	first := map[types.UID]types.UID{}
	for _, held := range c.reserved {
		if of := reservation.InPlaceOf(held); of != "" && held.Spec.NodeName != "" {
			first[of] = ""
		}
	}
	if len(first) == 0 {
		return first
	}
	queues := map[types.UID]string{}
	for _, pod := range c.pods {
		if _, moves := first[pod.UID]; moves && c.counts(pod) && pod.Spec.NodeName != "" {
			queues[pod.UID] = c.queueOf(pod)
		}
	}
	for _, held := range c.reserved {
		of := reservation.InPlaceOf(held)
		queue, counts := queues[of]
		if counts && held.Spec.NodeName != "" && c.counts(held) && c.queueOf(held) == queue && (first[of] == "" || held.UID < first[of]) {
			first[of] = held.UID
		}
	}
	return first
}

// asked is what a counted pod asks for, and of which nodes.
type asked struct {
	amount resource.Vector
	kind   *pool.Class
}

// shared returns what there is to be shared, and what the counted pods ask for.
func (c *cluster) shared() (*pool.Cluster, map[types.UID]asked, error) {
	nodes, err := pool.New(c.pools)
	if err != nil {
		return nil, nil, err
	}
	pods := make(map[types.UID]asked, len(c.pods))
	inPlace := c.inPlace()
	for i, pod := range slices.Concat(c.pods, c.reserved) {
		switch {
		case c.foreign(pod):
			nodes.SetForeign(pod.UID, pod.Spec.NodeName, amountOf(pod))
		case c.counts(pod):
			amount := amountOf(pod)
			if of := reservation.InPlaceOf(pod); i >= len(c.pods) && of != "" && inPlace[of] == pod.UID {
				for name, has := range pods[of].amount {
					amount[name] = max(0, amount[name]-has)
				}
				if amount.Zero() {
					continue
				}
			}
			one := asked{amount, nodes.Enter(pod)}
			pods[pod.UID] = one
			if pod.Spec.NodeName != "" {
				nodes.Use(pod.Spec.NodeName, one.amount, 1)
			}
		}
	}
	for _, node := range c.nodes {
		nodes.SetNode(c.devices.With(node))
	}
	return nodes, pods, nil
}

// book returns a book with all queues, in which nothing is counted yet.
func (c *cluster) book(total resource.Vector) *dispatch.Book {
	book := dispatch.NewBook(v1alpha1.DefaultQueue)
	book.SetPolicies(dispatch.Policies{Rules: c.rules})
	book.SetTotal(total)
	queues := make([]dispatch.Queue, len(c.queues))
	for i, q := range c.queues {
		queues[i] = pool.Queue(q)
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

// demandOf returns how far the request of a pod counts while it waits. Its status shows whether the scheduler
// found its gang incomplete: then it asks for nothing yet.
func demandOf(pod *v1.Pod) dispatch.Demand {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse {
			switch c.Reason {
			case v1alpha1.ReasonGangIncomplete, v1alpha1.ReasonGangUndefined, v1alpha1.ReasonGangUnsupported, v1alpha1.ReasonTimedOut:
				return dispatch.Hopeless
			}
		}
	}
	return dispatch.Full
}

// foreign reports whether a pod has part of a node and is not of a scheduler that uses queues.
func (c *cluster) foreign(pod *v1.Pod) bool {
	return !c.schedulers[pod.Spec.SchedulerName] && pod.Spec.NodeName != "" && !ended(pod)
}

// counts reports whether a pod is counted in its queue: with gates it asks for nothing yet.
func (c *cluster) counts(pod *v1.Pod) bool {
	return c.schedulers[pod.Spec.SchedulerName] && !ended(pod) && len(pod.Spec.SchedulingGates) == 0
}

func ended(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

func (c *cluster) queueOf(pod *v1.Pod) string {
	return gang.QueueOf(pod,
		func(key gang.Key) string { return c.byGang[key] },
		func(name string) string { return c.byNamespace[name] })
}

// add counts a pod of the queue, or of one below it.
func (s *sum) add(usage dispatch.Usage) {
	s.requested.Add(usage.Amount, 1)
	if usage.Runs {
		s.allocated.Add(usage.Amount, 1)
	}
}

// member counts the gang or pod that a pod belongs to.
func (s *sum) member(as member, runs bool) { s.gangs[as] = s.gangs[as] || runs }

// chain returns a queue and those above it, as far as they exist and none comes twice: in a part
// of the tree that is not connected to the top, the numbers add up, too.
func chain(tree map[string]share.Queue, name string) []string {
	var names []string
	for at := name; at != "" && !slices.Contains(names, at); at = tree[at].Parent {
		if _, exists := tree[at]; !exists {
			break
		}
		names = append(names, at)
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
	for runs := range maps.Values(s.gangs) {
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
		one := v1alpha1.QueuePoolStatus{Name: name, Deserved: d[name].List(), Allocated: a[name].List(), Requested: r[name].List()}
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
