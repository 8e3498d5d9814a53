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

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/internal/resource"
	"github.com/lockstep-sh/lockstep/plugins/internal/share"
)

// cluster is what the status of all queues follows from.
type cluster struct {
	queues []*v1alpha1.Queue
	pods   []*v1.Pod
	nodes  []*v1.Node
	// byNamespace and byGang are the queues that namespaces and PodGroups name.
	byNamespace map[string]string
	byGang      map[gang.Key]string
	// schedulers are those that use queues, by the name that pods give.
	schedulers map[string]bool
	rules      share.Rules
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

// statuses answers the status of each queue, by name. now is when conditions change that do.
func (c *cluster) statuses(now metav1.Time) map[string]v1alpha1.QueueStatus {
	tree, total := c.tree(), resource.Vector{}
	cordoned := map[string]bool{} // nothing more comes there
	for _, node := range c.nodes {
		if cordoned[node.Name] = node.Spec.Unschedulable; !node.Spec.Unschedulable {
			total.Add(resource.FromList(node.Status.Allocatable), 1)
		}
	}
	sums := map[string]*sum{}
	for name := range tree {
		sums[name] = &sum{allocated: resource.Vector{}, requested: resource.Vector{}, gangs: map[member]bool{}}
	}
	closed := map[string]bool{}
	for _, q := range c.queues {
		closed[q.Name] = q.Spec.Closed
	}
	chains := map[string][]string{}
	for _, pod := range c.pods {
		switch {
		case c.foreign(pod) && cordoned[pod.Spec.NodeName]:
		case c.foreign(pod):
			total.Add(amountOf(pod), -1)
		case c.counts(pod):
			name := c.queueOf(pod)
			if _, known := chains[name]; !known {
				chains[name] = chain(tree, name)
			}
			c.count(pod, chains[name], tree, sums, shut(chains[name], closed) != "")
		}
	}
	for name, q := range tree {
		q.Deserved = c.rules.Entitled(total, q.Deserved, q.Guarantee)
		tree[name] = q
	}
	shares := share.Deserve(total, tree)
	statuses := make(map[string]v1alpha1.QueueStatus, len(c.queues))
	for _, q := range c.queues {
		status := sums[q.Name].status(shares[q.Name].Deserved, total)
		status.Conditions = slices.Clone(q.Status.Conditions)
		condition := ready(q, tree, closed)
		condition.LastTransitionTime = now
		meta.SetStatusCondition(&status.Conditions, condition)
		statuses[q.Name] = status
	}
	return statuses
}

// tree is all queues as the arithmetic wants them. The default one is there in any case.
func (c *cluster) tree() map[string]share.Queue {
	tree := map[string]share.Queue{v1alpha1.DefaultQueue: {Name: v1alpha1.DefaultQueue, Weight: 1, Request: resource.Vector{}}}
	for _, q := range c.queues {
		tree[q.Name] = share.Queue{
			Name: q.Name, Parent: q.Spec.Parent, Weight: int64(max(q.Spec.Weight, 1)),
			Deserved: resource.FromList(q.Spec.Deserved), Guarantee: resource.FromList(q.Spec.Guarantee), Capability: resource.FromList(q.Spec.Capability),
			Request: resource.Vector{},
		}
	}
	return tree
}

// foreign tells whether a pod has part of a node that queues do not share.
func (c *cluster) foreign(pod *v1.Pod) bool {
	return !c.schedulers[pod.Spec.SchedulerName] && pod.Spec.NodeName != "" && !ended(pod)
}

// counts tells whether a pod is counted in its queue: with gates it asks for nothing yet.
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

// count takes a pod into its queue and those above it. In a queue that does not exist it is
// counted nowhere; in one that is shut it has no share before it runs.
func (c *cluster) count(pod *v1.Pod, chain []string, tree map[string]share.Queue, sums map[string]*sum, shut bool) {
	if len(chain) == 0 {
		return
	}
	amount, runs, as := amountOf(pod), pod.Spec.NodeName != "", memberOf(pod)
	if runs || !shut {
		tree[chain[0]].Request.Add(amount, 1)
	}
	for _, at := range chain {
		s := sums[at]
		s.requested.Add(amount, 1)
		if runs {
			s.allocated.Add(amount, 1)
		}
		s.gangs[as] = s.gangs[as] || runs
	}
}

// chain is a queue and those above it, as far as they exist and none comes twice: of a part
// of the tree that does not hang on the top the numbers add up, too.
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

func (s *sum) status(deserved, total resource.Vector) v1alpha1.QueueStatus {
	status := v1alpha1.QueueStatus{
		Deserved: deserved.List(), Allocated: s.allocated.List(), Requested: s.requested.List(),
		Share: percent(share.Dominant(s.allocated, total)),
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

// percent writes a part, with at most one decimal: "12.5%".
func percent(part float64) string {
	return strconv.FormatFloat(math.Round(part*1000)/10, 'f', -1, 64) + "%"
}
