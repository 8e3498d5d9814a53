package fairshare

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/pools"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/usage"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// window is how many jobs may have their turn at once.
const window = 5

// chaosQueues may be described or not; "none" never is.
var chaosQueues = []string{v1alpha1.DefaultQueue, "a", "b", "c", "d", "none"}

// chaos is a cluster, with a scheduler that lags as much as a scheduler may.
type chaos struct {
	*rand.Rand
	t      *testing.T
	seed   uint64
	step   int
	clock  *testingclock.FakeClock
	d      *Dispatcher
	store  cache.Indexer
	lives  []*life
	queues map[string]queueing.Queue
	// gangs are the queues that their PodGroups name.
	gangs map[string]string
	nodes map[string]*v1.Node
	pools []config.Pool
	// events are those that the Dispatcher has not got yet, in order.
	events []func(*Dispatcher)
	// jobs are the names of all jobs that were ever offered.
	jobs map[string]bool
}

func newChaos(t *testing.T, seed uint64) *chaos {
	c := &chaos{
		Rand: rand.New(rand.NewPCG(seed, 7)), t: t, seed: seed, clock: testingclock.NewFakeClock(time.Unix(1000, 0)), jobs: map[string]bool{},
		store:  cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
		queues: map[string]queueing.Queue{v1alpha1.DefaultQueue: {Name: v1alpha1.DefaultQueue, Weight: 1}}, nodes: map[string]*v1.Node{}, gangs: map[string]string{},
	}
	if seed%2 == 0 {
		for _, model := range []string{"x", "y"} {
			c.pools = append(c.pools, config.Pool{Name: model, NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"model": model}}})
		}
	}
	c.d = c.dispatcher()
	return c
}

// dispatcher returns a Dispatcher that knows nothing of the cluster yet.
func (c *chaos) dispatcher() *Dispatcher {
	d := newDispatcher(c.t, 0, window)
	d.clock = c.clock
	nodes, err := pools.New(c.pools)
	must.Succeed(c.t, err)
	d.share(nodes, nil)
	d.book.Configure(queueing.Limits{Window: window, BypassHold: time.Minute}, policiesOf(d.args.Tiers))
	d.gangs = gangsOf{c: c}
	d.Preempts(profile)
	d.pods = podLister{corelisters.NewPodLister(c.store), c.store}
	return d
}

// restarted returns a Dispatcher that has seen everything once, as the API server has it.
func (c *chaos) restarted() *Dispatcher {
	d := c.dispatcher()
	d.opened = false
	for _, i := range c.Perm(len(c.lives)) {
		if l := c.lives[i]; !l.gone {
			d.podSeen(l.now())
		}
	}
	for _, n := range c.nodes {
		d.nodeSeen(n)
	}
	for _, q := range c.queues {
		d.change(func() { d.book.SetQueues(q) })
	}
	d.change(func() { d.opened = true })
	return d
}

// old returns one of the last versions of a pod.
func (c *chaos) old(l *life) *v1.Pod {
	return l.versions[max(0, len(l.versions)-1-c.IntN(2))]
}

// create makes a pod, perhaps with a name that another had.
func (c *chaos) create() {
	name := fmt.Sprint("p", c.IntN(40))
	if _, taken, _ := c.store.GetByKey("default/" + name); taken {
		return
	}
	p := pod(name, chaosQueues[c.IntN(len(chaosQueues))], 1+c.IntN(4), "")
	p.UID = types.UID(fmt.Sprint("u", len(c.lives)))
	p.CreationTimestamp.Time = time.Unix(int64(c.step), 0)
	p.Generation = 1
	p.Spec.Priority = ptr.To(int32(c.IntN(3)))
	if c.IntN(3) == 0 {
		p.Spec.Tolerations = []v1.Toleration{{Key: "gangs", Operator: v1.TolerationOpExists}}
	}
	if c.IntN(3) == 0 {
		p.Spec.NodeSelector = map[string]string{"model": []string{"x", "y", "z"}[c.IntN(3)]}
	}
	switch c.IntN(8) {
	case 0:
		p.Spec.SchedulerName = "another"
	case 1:
		p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "later"}}
	case 2, 3:
		p.Labels["gang"] = fmt.Sprint("g", c.IntN(3))
		p.Labels[v1alpha1.PodGroupLabel] = p.Labels["gang"]
		if c.IntN(2) == 0 {
			delete(p.Labels, v1alpha1.QueueLabel)
		}
	}
	l := &life{uid: p.UID}
	c.lives = append(c.lives, l)
	c.write(l, p)
}

// write stores a version of a pod. Its event comes later.
func (c *chaos) write(l *life, p *v1.Pod) {
	p.ResourceVersion = fmt.Sprint(c.step)
	l.versions = append(l.versions, p)
	must.Succeed(c.t, c.store.Update(p))
	c.events = append(c.events, func(d *Dispatcher) {
		if d.podSeen(p); p.Status.Phase == v1.PodSucceeded {
			d.Left(p) // as the scheduler's cache says
		}
	})
}

// update changes a pod that exists.
func (c *chaos) update(l *life, do func(*v1.Pod)) {
	if !l.gone {
		p := l.now().DeepCopy()
		do(p)
		c.write(l, p)
	}
}

func (c *chaos) remove(l *life) {
	if l.gone {
		return
	}
	l.gone = true
	must.Succeed(c.t, c.store.Delete(l.now()))
	c.events = append(c.events, func(d *Dispatcher) { d.podGone(l.now()) })
}

// deliver passes some events to the Dispatcher.
func (c *chaos) deliver(n int) {
	for range min(n, len(c.events)) {
		c.events[0](c.d)
		c.events = c.events[1:]
	}
}

// change changes a pod as users and kubelets do.
func (c *chaos) change(l *life) {
	switch c.IntN(12) {
	case 10:
		c.update(l, func(p *v1.Pod) { p.Status.NominatedNodeName = c.someNode() })
	case 11:
		c.update(l, func(p *v1.Pod) { p.Status.NominatedNodeName = "" })
	case 0, 1:
		c.remove(l)
	case 2:
		c.update(l, func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded })
	case 3, 4:
		c.update(l, func(p *v1.Pod) { p.Labels[v1alpha1.QueueLabel] = chaosQueues[c.IntN(len(chaosQueues))] })
	case 5:
		c.update(l, func(p *v1.Pod) {
			has := p.Spec.Containers[0].Resources.Requests
			if impossible(has) {
				has[gpu] = *apiresource.NewQuantity(2, apiresource.DecimalSI)
				return
			}
			if c.IntN(4) == 0 {
				has[gpu] = apiresource.MustParse("1e30")
				return
			}
			p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: p.Spec.Containers[0].Name, Resources: &v1.ResourceRequirements{Requests: has}}}
			p.Spec.Containers[0].Resources.Requests = v1.ResourceList{gpu: *apiresource.NewQuantity(1+c.Int64N(4), apiresource.DecimalSI)}
			p.Generation++
		})
	case 6:
		c.update(l, func(p *v1.Pod) { p.Status.ContainerStatuses = nil }) // the resize is done
	case 7:
		c.update(l, func(p *v1.Pod) { p.Spec.SchedulingGates = nil })
	default:
		c.update(l, func(p *v1.Pod) { // bound by another scheduler
			if len(p.Spec.SchedulingGates) == 0 && p.Spec.NodeName == "" {
				p.Spec.NodeName = c.someNode()
			}
		})
	}
}

// schedule takes the scheduler's next step with a pod, with a version of it that may be old.
func (c *chaos) schedule(l *life) {
	p := c.old(l)
	if p.Spec.SchedulerName != profile || len(p.Spec.SchedulingGates) > 0 {
		return
	}
	switch {
	case l.cycle == nil && p.Spec.NodeName == "":
		for _, alone := range []bool{false, true} {
			c.jobs[usage.NameOf(p, gangstate.PlacementRequest{Job: p.Labels["gang"], Alone: alone})] = true
		}
		if c.d.comes(p) == "" {
			l.cycle = p.DeepCopy()
		}
	case l.cycle == nil:
	case !l.reserved && c.IntN(4) == 0:
		l.cycle = nil
		c.d.limits(p, false)
		if c.d.Failed(p, unfit(fwk.Unschedulable)) {
			c.d.Again(p)
		}
	case !l.reserved:
		l.cycle.Spec.NodeName = c.someNode() // kube-scheduler assumes it before it calls Reserve
		l.reserved = true
		if c.IntN(2) == 0 {
			drop(c.d.holds, l.uid) // as Gang does
		}
		c.d.reserve(l.cycle, l.cycle.Spec.NodeName)
	default:
		c.finish(l)
	}
}

// finish binds a pod that is reserved, or gives its node back, or both.
func (c *chaos) finish(l *life) {
	how := c.IntN(3)
	if how > 0 && !l.ends() {
		c.update(l, func(p *v1.Pod) {
			if p.Spec.NodeName == "" { // unless another scheduler was first
				p.Spec.NodeName = l.cycle.Spec.NodeName
			}
		})
		if how == 1 {
			l.cycle, l.reserved = nil, false
			return
		}
		c.deliver(c.IntN(2) * len(c.events)) // the answer was lost
	}
	assumed := l.cycle
	l.cycle, l.reserved = nil, false
	c.d.unreserve(silent, assumed)
	c.d.Failed(c.old(l), unfit(fwk.Unschedulable))
}

// describe changes the queues or the nodes.
func (c *chaos) describe() {
	name := chaosQueues[c.IntN(len(chaosQueues)-1)]
	switch c.IntN(6) {
	case 5:
		node := c.someNode()
		if n := c.nodes[node]; n != nil {
			delete(c.nodes, node)
			c.d.nodeGone(n)
		}
	case 4:
		name := fmt.Sprint("g", c.IntN(3))
		c.gangs[name] = chaosQueues[c.IntN(len(chaosQueues))]
		c.d.gangMoved(profile, gangspec.Key{Namespace: "default", Name: name})
	case 0, 1:
		q := queueing.Queue{Name: name, Weight: 1 + c.Int64N(3), Priority: int32(c.IntN(2)), Closed: c.IntN(8) == 0, Capability: gpus(40 + c.Int64N(3))}
		if c.IntN(2) == 0 {
			q.Parent = chaosQueues[1+c.IntN(4)] // a loop too
		}
		c.queues[name] = q
		c.d.change(func() { c.d.book.SetQueues(q) })
	case 2:
		delete(c.queues, name)
		if name == v1alpha1.DefaultQueue {
			c.queues[name] = queueing.Queue{Name: name, Weight: 1}
		}
		c.d.change(func() { c.d.queueGone(name) })
	case 3:
		n := c.node(c.someNode())
		c.nodes[n.Name] = n
		c.d.nodeSeen(n)
	}
}

// expire ends all turns, and closes the gate.
func (c *chaos) expire(d *Dispatcher) {
	d.opened = false
	c.clock.Step(2 * turnsEnd)
	d.expire()
	for _, l := range c.lives {
		if !l.reserved {
			l.cycle = nil
		}
	}
	if n := d.turns(); n > 0 {
		c.fail("%d turns last for ever", n)
	}
}

func (c *chaos) fail(format string, args ...any) {
	c.t.Helper()
	c.t.Fatalf("seed %d, step %d: %s", c.seed, c.step, fmt.Sprintf(format, args...))
}

// TestLedgerChaos: whatever happens, and in whichever order the events come, the book has
// what a count of all pods gives, and what a process has that starts anew.
func TestLedgerChaos(t *testing.T) {
	counts := map[string]int{}
	for seed := range uint64(60) {
		c := newChaos(t, seed)
		for c.step = 1; c.step < 400; c.step++ {
			c.one()
			if c.IntN(3) == 0 {
				c.deliver(len(c.events))
				c.compare(counts)
			}
		}
		c.deliver(len(c.events))
		c.compareRestarted()
		c.compareEmpty()
	}
	for what, least := range map[string]int{"running": 10000, "waiting": 10000, "admitted": 3000, "told to wait": 3000, "held": 1000, "in several pools": 1000} {
		if counts[what] < least {
			t.Errorf("%d %s tell little", counts[what], what)
		}
	}
}

// one does one step.
func (c *chaos) one() {
	if len(c.lives) == 0 || c.IntN(6) == 0 {
		c.create()
		return
	}
	l := c.lives[max(0, len(c.lives)-1-c.IntN(30))]
	switch n := c.IntN(100); {
	case n < 60:
		c.schedule(l)
	case n < 78:
		c.change(l)
	case n < 80:
		c.hold(l)
	case n < 90:
		c.deliver(c.IntN(4))
	case n < 97:
		c.describe()
	case n < 99:
		c.expire(c.d)
		c.d.change(func() { c.d.opened = true })
	default:
		c.restart()
	}
}

// hold makes the ledger hold a node for a pod, or give it back.
func (c *chaos) hold(l *life) {
	if l.gone || l.reserved || c.IntN(3) == 0 {
		drop(c.d.holds, l.uid)
		return
	}
	put(c.d.holds, hold.Hold{For: l.uid, Holder: hold.Holder{Group: "h"}, Node: c.someNode(), Reason: []hold.Reason{hold.Plan, hold.Plan, hold.Nomination}[c.IntN(3)]})
}

// restart replaces the process by another, which knows of no cycle.
func (c *chaos) restart() {
	c.deliver(len(c.events))
	c.compareRestarted()
	for _, l := range c.lives {
		l.cycle, l.reserved = nil, false
	}
	c.d = c.restarted()
}
