// Package usage counts what queues use and ask for: pods, where they run or where a node is held for them, and capacity
// that is held for pods to come. Scheduler and controller count with it, so that both say the same of a queue.
//
// What is counted follows from the present objects, in whatever order they come and go. It looks nothing up: its caller
// says in which queue a pod is, and where it is to go.
package usage

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/deviceclaims"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/pools"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
	"github.com/lockstep-sh/lockstep/pkg/util/nested"
)

// Caller is what a Counter asks its caller.
type Caller interface {
	// Ours reports whether the pods of a scheduler are in queues. What other pods have is not shared.
	Ours(schedulerName string) bool
	// QueueOf returns the queue of a pod.
	QueueOf(pod *v1.Pod) string
	// GangOf returns the gang that a pod is in; false for none. See gangspec.GangOf.
	GangOf(pod *v1.Pod) (gangspec.Key, bool)
	// HeldChanged is called when capacity that is held for pods to come counts otherwise than before.
	HeldChanged()
	// Recounted is called when a pod of a job asks for something else than when it was counted, for its claims have
	// changed, or which of its claims count for it.
	Recounted(job string)
}

// Counter keeps the usages of a book, and what the nodes have to share, up to date. It is not safe for concurrent use.
type Counter struct {
	caller Caller
	book   *queueing.Book
	nodes  *pools.Cluster
	claims *deviceclaims.Claims
	pods   map[types.UID]Pod
	// foreign are the pods of other schedulers.
	foreign map[types.UID]*v1.Pod
	// onNode are the counted pods that have a node, or for which one is held; ofClass are all, by what they ask of nodes.
	onNode  Index[string]
	ofClass Index[*pools.Class]
	holds
}

// Pod is what is counted of a pod, beside its usage in the book.
type Pod struct {
	// Object is the version that was counted.
	Object *v1.Pod
	// Amount is what it asks for, devices included, and Class what it asks of nodes.
	Amount resource.Vector
	Class  *pools.Class
	// Node is the node that it has, or that is held for it; empty for none.
	Node string
}

// New returns a counter without pods, whose usages are in the book.
func New(caller Caller, book *queueing.Book, nodes *pools.Cluster, claimed *deviceclaims.Claims) *Counter {
	return &Counter{
		caller: caller, book: book, nodes: nodes, claims: claimed, pods: map[types.UID]Pod{},
		foreign: map[types.UID]*v1.Pod{},
		onNode:  Index[string]{}, ofClass: Index[*pools.Class]{}, holds: newHolds(),
	}
}

// Pod returns what is counted of a pod; false if it is not counted.
func (c *Counter) Pod(uid types.UID) (Pod, bool) {
	p, counted := c.pods[uid]
	return p, counted
}

// Pods returns all counted pods. The map must not be changed.
func (c *Counter) Pods() map[types.UID]Pod { return c.pods }

// Place is where a pod is, or is to go.
type Place struct {
	// Node is empty for none.
	Node string
	// Runs: the pod has the node. Promised and Held are as in [queueing.Usage].
	Runs, Promised, Held bool
}

// Count counts a pod as part of a job, in place of what was counted of it. A member of a gang that is in no job and has
// no place asks for nothing until its gang is complete. The amount is that in the pool of the node which the pod has,
// or which is held for it; without a node, the amounts in each pool that it may use.
func (c *Counter) Count(pod *v1.Pod, at Place, job string) {
	gang := c.GangOf(pod)
	others := c.claims.SetPod(pod, gang)
	before, known := c.book.Counted(string(pod.UID))
	u := queueing.Usage{
		Queue: c.caller.QueueOf(pod), Job: job, Gang: gang, Priority: corev1helpers.PodPriority(pod),
		Demand: before.Demand, Runs: at.Runs, Promised: at.Promised, Held: at.Held,
	}
	if !known && job == "" && u.Gang != "" && at.Node == "" {
		u.Demand = queueing.Hopeless
	}
	p, counted := c.pods[pod.UID]
	if !counted || p.Object.ResourceVersion != pod.ResourceVersion || before.Gang != gang {
		p.Object, p.Amount = pod, c.claims.Amount(pod) // a resize may be done, or another member pay for shared claims
		if class := p.Class; class == nil || !c.nodes.Is(pod, class) {
			p.Class = c.nodes.Enter(pod)
			c.ofClass.Move(pod.UID, class, p.Class)
			c.leave(class)
			c.share() // its class may use nodes that no other may
		}
	}
	c.onNode.Move(pod.UID, p.Node, at.Node)
	p.Node = at.Node
	c.set(pod.UID, p, u)
	c.ClaimsChanged(others)
}

// GangOf returns the name of the gang that a pod is in; empty for none.
func (c *Counter) GangOf(pod *v1.Pod) string {
	if key, member := c.caller.GangOf(pod); member {
		return key.In(pod.Spec.SchedulerName)
	}
	return ""
}

// set counts a pod as it is now, in place of what was counted of it, and reports whether its usage has changed.
func (c *Counter) set(uid types.UID, now Pod, u queueing.Usage) (changed bool) {
	c.use(c.pods[uid], now)
	c.pods[uid] = now
	u.Amount, u.Or = c.nodes.Charge(now.Amount, now.Class, now.Node, now.Object.Spec.NodeName != "")
	if u.Runs {
		u.Or = nil // its node is not known yet
	}
	before, counted := c.book.Counted(string(uid))
	if counted && before.Equal(u) {
		return false
	}
	c.book.Count(string(uid), u)
	c.recountHeldFor(uid)
	return true
}

// use updates what a pod has of nodes: a node that takes no more pods shares only what is in use.
func (c *Counter) use(before, now Pod) {
	if before.Node == now.Node && maps.Equal(before.Amount, now.Amount) {
		return
	}
	gives := before.Node != "" && c.nodes.Use(before.Node, before.Amount, -1)
	takes := now.Node != "" && c.nodes.Use(now.Node, now.Amount, 1)
	if gives || takes {
		c.share()
	}
}

// leave ends what a pod asked of nodes; nil for nothing.
func (c *Counter) leave(class *pools.Class) {
	if class != nil {
		c.nodes.Leave(class)
		c.share()
	}
}

// share tells the book what the nodes have to share.
func (c *Counter) share() { c.book.SetTotal(c.nodes.Total()) }

// Drop stops counting a pod, whoever schedules it. It leaves the pod's usage in the book: the caller then calls
// [queueing.Book.PodEnded].
func (c *Counter) Drop(uid types.UID) {
	others := c.claims.DropPod(uid)
	c.dropForeign(uid)
	if p, counted := c.pods[uid]; counted {
		delete(c.pods, uid)
		c.onNode.Move(uid, p.Node, "")
		c.use(p, Pod{})
		c.ofClass.Move(uid, p.Class, nil)
		c.leave(p.Class)
	}
	c.ClaimsChanged(others) // before other jobs of its queue get what it gives back
	c.recountHeldFor(uid)
}

// SetForeign counts what a pod of another scheduler has of its node. It reports whether that has changed.
func (c *Counter) SetForeign(pod *v1.Pod) bool {
	c.foreign[pod.UID] = pod
	c.ClaimsChanged(c.claims.SetPod(pod, c.GangOf(pod)))
	return c.countForeign(pod)
}

func (c *Counter) countForeign(pod *v1.Pod) bool {
	changed := c.nodes.SetForeign(pod.UID, pod.Spec.NodeName, c.claims.Amount(pod))
	if changed {
		c.share()
	}
	return changed
}

// dropForeign ends that.
func (c *Counter) dropForeign(uid types.UID) {
	delete(c.foreign, uid)
	if c.nodes.DropForeign(uid) {
		c.share()
	}
}

// SetNode adds or updates a node. It returns the pods that the caller has to count again: the node is in another pool
// or has other amounts, or they may use other pools.
func (c *Counter) SetNode(node *v1.Node) map[types.UID]bool {
	recount, changed := c.nodes.SetNode(node)
	c.share()
	return c.moved(node.Name, recount, changed)
}

// DropNode removes a node, and returns the pods to count again.
func (c *Counter) DropNode(name string) map[types.UID]bool {
	changed := c.nodes.DropNode(name)
	c.share()
	return c.moved(name, true, changed)
}

// moved returns the pods to count again. With recount these include all pods on the node, and what is held there is
// counted again.
func (c *Counter) moved(node string, recount bool, changed []*pools.Class) map[types.UID]bool {
	again := map[types.UID]bool{}
	for _, class := range changed {
		maps.Copy(again, c.ofClass[class])
	}
	if recount {
		maps.Copy(again, c.onNode[node])
		c.recountHeld(func(h held) bool { return h.node == node })
	}
	return again
}

// Index has pods by what they are part of.
type Index[K comparable] map[K]map[types.UID]bool

// Move records that a pod is part of something else; the zero value is nothing.
func (x Index[K]) Move(uid types.UID, from, to K) {
	var none K
	nested.Delete(x, from, uid)
	if to == none {
		return
	}
	nested.Set(x, to, uid, true)
}
