package invariant

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

// Keys by which users describe gangs, repeated here: code that asked the code under test would prove
// nothing.
const (
	keyGang     = "gang.scheduling.koordinator.sh/name"
	keyMin      = "gang.scheduling.koordinator.sh/min-available"
	keyMode     = "gang.scheduling.koordinator.sh/mode"
	keyGroups   = "gang.scheduling.koordinator.sh/groups"
	keyTimeout  = "gang.scheduling.koordinator.sh/timeout"
	keyGroup    = "pod-group.scheduling.sigs.k8s.io"
	keyGroupX   = "scheduling.x-k8s.io/pod-group"
	keyTopology = "scheduling.lockstep.dev/required-topology"
	keyQueue    = "scheduling.lockstep.dev/queue"
	// keyReservation names the only Reservation that a pod may use, keyAllocated is what it uses.
	keyReservation = "scheduling.lockstep.dev/reservation"
	keyAllocated   = "scheduling.lockstep.dev/reservation-allocated"
	// keyBadInput is on pods that need not be bound: what they say makes no sense.
	keyBadInput = "chaos.lockstep.dev/bad-input"

	defaultQueue = "default"

	// refused is how a kubelet begins to say why it does not admit a pod.
	refused = "Pod was rejected: "
)

// amounts are resources: thousandths of a CPU, bytes, pieces; at most most. Pods count as v1.ResourcePods.
type amounts map[v1.ResourceName]int64

// most is more than any cluster has, and little enough that sums do not overflow.
const most = 1 << 50

func amountsOf(list v1.ResourceList) amounts {
	a := amounts{}
	for name, quantity := range list {
		switch {
		case quantity.CmpInt64(most) >= 0:
			a[name] = most
		case name == v1.ResourceCPU:
			a[name] = min(quantity.MilliValue(), most)
		default:
			a[name] = quantity.Value()
		}
	}
	return a
}

func (a amounts) add(b amounts, times int64) {
	for name, n := range b {
		a[name] += n * times
	}
}

// requestsOf sums up containers. Init containers, overhead and pod-level requests are not used here.
func requestsOf(p *v1.Pod) amounts {
	sum := amounts{v1.ResourcePods: 1}
	for i := range p.Spec.Containers {
		sum.add(amountsOf(p.Spec.Containers[i].Resources.Requests), 1)
	}
	return sum
}

// pod is what is known of one pod.
type pod struct {
	uid      types.UID
	name     string // with the namespace
	gang     *gang
	requests amounts
	priority int32
	queue    string
	identity identity
	// wants is the only Reservation that it may use; empty where it may go anywhere.
	wants string

	node      string
	nominated string
	phase     v1.PodPhase
	deleting  bool
	timedOut  bool
	// told is why it waits, as its condition says.
	told string
	// lost: its node is gone.
	lost bool
	// marked: the scheduler has written that it evicts it, since this moment of healthy time.
	marked      bool
	markedSince moment
	markMessage string
}

// ended reports whether the pod uses its node no more.
func (p *pod) ended() bool { return p.phase == v1.PodSucceeded || p.phase == v1.PodFailed }

// counts reports whether the pod counts towards the minimum of its gang: it is on a node, or was to
// the successful end.
func (p *pod) counts() bool {
	return p.phase == v1.PodSucceeded || p.node != "" && !p.deleting && p.phase != v1.PodFailed
}

// pending reports whether the pod waits for a node.
func (p *pod) pending() bool { return p.node == "" && !p.deleting && !p.ended() }

// mark returns the condition message of an eviction that the scheduler has begun.
func mark(p *v1.Pod) (message string, ok bool) {
	_, c := podutil.GetPodCondition(&p.Status, v1.DisruptionTarget)
	if c == nil {
		return "", false
	}
	return c.Message, c.Status == v1.ConditionTrue && c.Reason == v1.PodReasonPreemptionByScheduler
}

// told returns why a pod waits, from its condition.
func told(p *v1.Pod) string {
	if _, c := podutil.GetPodCondition(&p.Status, v1.PodScheduled); c != nil {
		return c.Reason + ": " + c.Message
	}
	return ""
}

func (o PodSeen) apply(c *Checker) { c.see(o.Pod, false) }

// see takes in a pod. Where it comes from a list, its changes happened some time before.
func (c *Checker) see(seen *v1.Pod, listed bool) {
	c.claim(seen, false)
	p := c.pods[seen.UID]
	if p == nil {
		p = c.join(seen)
	}
	before := *p
	p.phase, p.nominated = seen.Status.Phase, seen.Status.NominatedNodeName
	p.deleting = seen.DeletionTimestamp != nil
	p.timedOut = seen.Annotations[keyTimeout] == "true"
	p.told = told(seen)
	message, marked := mark(seen)
	c.setMark(p, marked, message)
	if p.node == "" && seen.Spec.NodeName != "" {
		c.bind(p, seen.Spec.NodeName)
	}
	if p.ended() && !before.ended() {
		c.free(p)
		c.note(&p.gang.past, p.gang.String(), "pod %s %s", p.name, p.phase)
		if p.phase == v1.PodSucceeded {
			c.finished = c.moment()
		}
		if p.phase == v1.PodFailed && !p.deleting {
			c.lose(p)
		}
		if strings.HasPrefix(seen.Status.Message, refused) {
			c.violate(NodeRefuses, "pod "+p.name, string(p.uid), c.node(p.node).past, "node %s says %s: %s", p.node, seen.Status.Reason, seen.Status.Message)
		}
	}
	c.seeMoved(p, seen)
	if p.deleting && !before.deleting {
		c.deleted(p, listed, before.counts())
	}
	if p.nominated != before.nominated && p.node == "" {
		c.note(&p.gang.past, p.gang.String(), "pod %s nominated to %q", p.name, p.nominated)
	}
	c.nominatedTo(p)
	c.read(p.gang)
	c.judge(p.gang)
}

// join takes in a new pod.
func (c *Checker) join(seen *v1.Pod) *pod {
	p := &pod{uid: seen.UID, name: seen.Namespace + "/" + seen.Name, requests: requestsOf(seen), queue: seen.Labels[keyQueue], identity: identityOf(seen), wants: seen.Annotations[keyReservation]}
	if seen.Spec.Priority != nil {
		p.priority = *seen.Spec.Priority
	}
	c.counts.Pods++
	c.pods[p.uid] = p
	p.gang = c.gangOf(seen)
	p.gang.pods[p.uid] = p
	c.active[p.gang.key] = p.gang
	c.gangOfPod[p.uid] = p.gang.key
	c.note(&p.gang.past, p.gang.String(), "pod %s created", p.name)
	return p
}

// bind takes in that a pod got a node.
func (c *Checker) bind(p *pod, node string) {
	p.node = node
	c.counts.Binds++
	n := c.node(node)
	p.lost = n.gone
	if !p.ended() {
		n.pods[p.uid] = p
		n.used.add(p.requests, 1)
	}
	c.note(&p.gang.past, p.gang.String(), "pod %s bound to %s", p.name, node)
	c.note(&n.past, "node "+node, "pod %s of %s bound: %s", p.name, p.gang, n.usage())
	c.judgeNode(n)
	c.takenBy(p)
}

// free takes in that a pod uses its node no more.
func (c *Checker) free(p *pod) {
	if p.node == "" {
		return
	}
	n := c.node(p.node)
	if n.pods[p.uid] == nil {
		return
	}
	delete(n.pods, p.uid)
	n.used.add(p.requests, -1)
	c.note(&n.past, "node "+p.node, "pod %s gone: %s", p.name, n.usage())
	c.judgeNode(n)
}

// deleted takes in that a pod is being deleted. It counted until now, or not.
func (c *Checker) deleted(p *pod, listed, counted bool) {
	if p.marked && p.node != "" && !c.ending[string(p.uid)] && !c.ending[p.gang.key] && !p.ended() {
		c.evicted(p, listed, counted)
		return
	}
	c.note(&p.gang.past, p.gang.String(), "pod %s deleted", p.name)
	if !p.ended() {
		c.lose(p)
	}
}

// lose takes in that a gang lost a member in another way than by the scheduler.
func (c *Checker) lose(p *pod) { c.changed(p.gang, fmt.Sprintf("lost pod %s", p.name)) }

func (o PodGone) apply(c *Checker) {
	c.claim(o.Pod, true)
	p := c.pods[o.Pod.UID]
	if p == nil {
		return
	}
	if !p.deleting { // it had no grace period
		c.seeMoved(p, o.Pod)
		counted := p.counts()
		message, marked := mark(o.Pod)
		c.setMark(p, marked, message)
		p.deleting = true
		c.deleted(p, false, counted)
	}
	c.forget(p)
	c.read(p.gang)
	c.judge(p.gang)
}

// forget takes in that a pod is no more.
func (c *Checker) forget(p *pod) {
	c.free(p)
	c.note(&p.gang.past, p.gang.String(), "pod %s gone", p.name)
	if e := c.evictions[p.uid]; e != nil {
		e.gone = c.now
	}
	delete(c.pods, p.uid)
	delete(p.gang.pods, p.uid)
	if p.phase == v1.PodSucceeded {
		p.gang.done++
	}
	if len(p.gang.pods) == 0 {
		p.gang.done = 0
		c.empty(p.gang)
	}
}

func (o PodsListed) apply(c *Checker) {
	there := map[types.UID]bool{}
	for _, p := range o.Pods {
		there[p.UID] = true
	}
	if len(c.pods) > 0 {
		c.counts.Relists++
		c.log("watch", "pods are listed again: %d, %d before", len(o.Pods), len(c.pods))
	}
	lived := map[*gang][]*pod{}
	c.vanished(there)
	for uid, p := range c.pods {
		if !p.deleting && p.phase != v1.PodFailed {
			lived[p.gang] = append(lived[p.gang], p)
		}
		if !there[uid] {
			c.vanish(p)
		}
	}
	// The order of what changed meanwhile is not known: a node is judged when all of it is taken in.
	c.listing = true
	for _, p := range o.Pods {
		c.see(p, true)
	}
	c.listing = false
	for _, n := range c.nodes {
		c.judgeNode(n)
	}
	for g, pods := range lived {
		c.mayHaveStarted(g, pods, there)
	}
	for _, g := range c.active {
		c.judge(g)
	}
}

// vanish takes in that the end of a pod was not seen.
func (c *Checker) vanish(p *pod) {
	c.note(&p.gang.past, p.gang.String(), "pod %s vanished while nobody watched", p.name)
	if !p.deleting {
		p.deleting = true
		c.lose(p)
	}
	c.forget(p)
}

// mayHaveStarted gives a gang the benefit of the doubt after a list: what lived before and does no
// more may have been bound together with what is bound now.
func (c *Checker) mayHaveStarted(g *gang, lived []*pod, there map[types.UID]bool) {
	n := g.have()
	for _, p := range lived {
		if !there[p.uid] || p.deleting || p.phase == v1.PodFailed {
			n++
		}
	}
	if g.known && n >= g.min && n > g.have() {
		g.started = true
	}
}
