package fairshare

import (
	order "cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/internal/dispatch"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
	"github.com/lockstep-sh/lockstep/plugins/internal/pool"
	"github.com/lockstep-sh/lockstep/plugins/internal/share"
	"github.com/lockstep-sh/lockstep/plugins/roster"
)

// window is how many jobs may have their turn at once.
const window = 5

// chaosQueues may be described or not; "none" never is.
var chaosQueues = []string{v1alpha1.DefaultQueue, "a", "b", "c", "d", "none"}

// life is a pod as the API server has it, and how far the scheduler is with it.
type life struct {
	uid types.UID
	// versions are what the API server had, the last one last.
	versions []*v1.Pod
	gone     bool
	// cycle is the copy that the scheduler works on; reserved reports whether it has a node.
	cycle    *v1.Pod
	reserved bool
}

func (l *life) now() *v1.Pod { return l.versions[len(l.versions)-1] }

// ends tells that nothing is asked for any more.
func (l *life) ends() bool { return l.gone || l.now().Status.Phase == v1.PodSucceeded }

// ours reports whether a pod counts for a queue, foreign whether it takes from what there is.
func (l *life) ours() bool {
	return !l.ends() && l.now().Spec.SchedulerName == profile && len(l.now().Spec.SchedulingGates) == 0
}

func (l *life) foreign() bool {
	return !l.ends() && l.now().Spec.SchedulerName != profile && l.now().Spec.NodeName != ""
}

func (l *life) runs() bool { return l.now().Spec.NodeName != "" || l.reserved }

// asks counts by hand: what the container is to have, or what it has, whichever is more.
func (l *life) asks() int64 {
	amount := l.now().Spec.Containers[0].Resources.Requests[gpu]
	most := amount.Value()
	for _, status := range l.now().Status.ContainerStatuses {
		has := status.Resources.Requests[gpu]
		most = max(most, has.Value())
	}
	return most
}

func (c *chaos) queue(l *life) string {
	return order.Or(l.now().Labels[v1alpha1.QueueLabel], c.gangs[l.now().Labels["gang"]], v1alpha1.DefaultQueue)
}

// chaos is a cluster, and a scheduler that is as late as one may be.
type chaos struct {
	*rand.Rand
	t      *testing.T
	seed   uint64
	step   int
	clock  *testingclock.FakeClock
	d      *Dispatcher
	store  cache.Indexer
	lives  []*life
	queues map[string]dispatch.Queue
	// gangs are the queues that their PodGroups name.
	gangs map[string]string
	nodes map[string]*v1.Node
	pools []config.Pool
	// events are those that the Dispatcher has not had yet, in their order.
	events []func(*Dispatcher)
	// jobs are the names of all that was ever offered.
	jobs map[string]bool
}

func newChaos(t *testing.T, seed uint64) *chaos {
	c := &chaos{
		Rand: rand.New(rand.NewPCG(seed, 7)), t: t, seed: seed, clock: testingclock.NewFakeClock(time.Unix(1000, 0)), jobs: map[string]bool{},
		store:  cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
		queues: map[string]dispatch.Queue{v1alpha1.DefaultQueue: {Name: v1alpha1.DefaultQueue, Weight: 1}}, nodes: map[string]*v1.Node{}, gangs: map[string]string{},
	}
	if seed%2 == 0 {
		for _, model := range []string{"x", "y"} {
			c.pools = append(c.pools, config.Pool{Name: model, NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"model": model}}})
		}
	}
	c.d = c.dispatcher()
	return c
}

// dispatcher is one that knows nothing of the cluster yet.
func (c *chaos) dispatcher() *Dispatcher {
	d := newDispatcher(c.t, 0, window)
	d.clock = c.clock
	var err error
	if d.nodes, err = pool.New(c.pools); err != nil {
		c.t.Fatal(err)
	}
	d.book.SetLimits(dispatch.Limits{Window: window, BypassHold: time.Minute})
	d.roster.Register(profile, gangsOf{c: c})
	d.Preempts(profile)
	d.roster.OnMove(d.gangMoved)
	d.pods = podLister{corelisters.NewPodLister(c.store), c.store}
	return d
}

// restarted is a Dispatcher that was told everything once, as the API server has it.
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
		d.change(func() { d.book.SetQueue(q) })
	}
	d.change(func() { d.opened = true })
	return d
}

// node makes one of a model, that may have a taint, or be cordoned.
func (c *chaos) node(name string) *v1.Node {
	n := st.MakeNode().Name(name).Label("model", []string{"x", "y", "z"}[c.IntN(3)]).Capacity(map[v1.ResourceName]string{gpu: fmt.Sprint(2 * c.Int64N(8))})
	if c.IntN(3) == 0 {
		n.Taints([]v1.Taint{{Key: "gangs", Effect: v1.TaintEffectNoSchedule}})
	}
	return n.Unschedulable(c.IntN(6) == 0).Obj()
}

// someNode is the name of a node that may be there.
func (c *chaos) someNode() string { return fmt.Sprint("n", c.IntN(4)) }

// poolOf is the pool of a node.
func (c *chaos) poolOf(n *v1.Node) string {
	if model := n.Labels["model"]; len(c.pools) > 0 && model != "z" {
		return model
	}
	return "default"
}

// poolsOf are those that a pod may use, by a look at all nodes.
func (c *chaos) poolsOf(p *v1.Pod) []string {
	var pools []string
	for _, name := range []string{"x", "y", "default"} {
		for _, n := range c.nodes {
			if c.poolOf(n) == name && !n.Spec.Unschedulable && (len(n.Spec.Taints) == 0 || len(p.Spec.Tolerations) > 0) &&
				(p.Spec.NodeSelector == nil || p.Spec.NodeSelector["model"] == n.Labels["model"]) {
				pools = append(pools, name)
				break
			}
		}
	}
	switch named := p.Spec.NodeSelector["model"]; {
	case len(c.pools) == 0, len(pools) == 0 && (named == "" || named == "z"):
		return []string{"default"}
	case len(pools) == 0:
		return []string{named}
	}
	return pools
}

// on is the node of a pod, or that which is held for it or promised to it; empty for none.
func (c *chaos) on(l *life) string {
	switch one, held := c.d.holds.Of(l.uid); {
	case l.now().Spec.NodeName != "":
		return l.now().Spec.NodeName
	case l.reserved:
		return l.cycle.Spec.NodeName
	case held:
		return one.Node
	default:
		return l.now().Status.NominatedNodeName
	}
}

// has is what a pod has or asks for: in the pool of its node, or of that which is held for it, or in all that it
// may use.
func (c *chaos) has(l *life) []dispatch.Vector {
	node := c.on(l)
	if n := c.nodes[node]; n != nil {
		return []dispatch.Vector{gpus(l.asks()).In(c.poolOf(n))}
	}
	var list []dispatch.Vector
	for _, p := range c.poolsOf(l.now()) {
		if node == "" || list == nil {
			list = append(list, gpus(l.asks()).In(p))
		}
	}
	return list
}

// total is what is there to be shared.
func (c *chaos) total() dispatch.Vector {
	total := dispatch.Vector{}
	for name, n := range c.nodes {
		tolerated := len(n.Spec.Taints) == 0 || slices.ContainsFunc(c.lives, func(l *life) bool { return l.ours() && len(l.now().Spec.Tolerations) > 0 })
		free := n.Status.Allocatable[gpu]
		left := free.Value()
		if n.Spec.Unschedulable || !tolerated {
			used := int64(0)
			for _, l := range c.lives {
				if l.ours() && c.on(l) == name {
					used += l.asks()
				}
			}
			total.Add(gpus(min(left, used)).In(c.poolOf(n)), 1)
			continue
		}
		for _, l := range c.lives {
			if l.foreign() && l.now().Spec.NodeName == name {
				left -= l.asks()
			}
		}
		total.Add(gpus(left).In(c.poolOf(n)), 1)
	}
	return total
}

// without leaves out what is 0.
func without(v dispatch.Vector) dispatch.Vector {
	out := dispatch.Vector{}
	out.Add(v, 1)
	maps.DeleteFunc(out, func(name v1.ResourceName, amount int64) bool {
		return amount == 0 || strings.HasPrefix(string(name), "pods")
	})
	return out
}

// gangsOf knows gangs by a label, and what it knows may be old.
type gangsOf struct {
	roster.Source
	c *chaos
}

func (g gangsOf) QueueOf(key gang.Key) string { return g.c.gangs[key.Name] }

func (g gangsOf) Wants(pod *v1.Pod) (gang.Want, bool) {
	name := pod.Labels["gang"]
	if name == "" {
		return gang.Want{Pods: []*v1.Pod{pod}}, true
	}
	want := gang.Want{Job: name}
	for _, l := range g.c.lives[max(0, len(g.c.lives)-20):] {
		known := g.c.old(l)
		switch {
		case known.Labels["gang"] != name || g.c.IntN(3) > 0 && l.ends():
		case known.Spec.NodeName != "":
			want.Alone, want.Ready = true, true
		case !l.reserved:
			want.Pods = append(want.Pods, known)
		}
	}
	if want.Alone {
		want.Pods = []*v1.Pod{pod}
	}
	return want, true
}

// old is one of the last versions of a pod.
func (c *chaos) old(l *life) *v1.Pod {
	return l.versions[max(0, len(l.versions)-1-c.IntN(2))]
}

// create makes a pod, perhaps of a name that another had.
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
	if err := c.store.Update(p); err != nil {
		c.t.Fatal(err)
	}
	c.events = append(c.events, func(d *Dispatcher) { d.podSeen(p) })
}

// update changes a pod that is there.
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
	if err := c.store.Delete(l.now()); err != nil {
		c.t.Fatal(err)
	}
	c.events = append(c.events, func(d *Dispatcher) { d.podGone(l.now()) })
}

// deliver has the Dispatcher see some events.
func (c *chaos) deliver(n int) {
	for range min(n, len(c.events)) {
		c.events[0](c.d)
		c.events = c.events[1:]
	}
}

// change has users and kubelets do something to a pod.
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
			p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: p.Spec.Containers[0].Name, Resources: &v1.ResourceRequirements{Requests: has}}}
			p.Spec.Containers[0].Resources.Requests = v1.ResourceList{gpu: *apiresource.NewQuantity(1+c.Int64N(4), apiresource.DecimalSI)}
			p.Generation++
		})
	case 6:
		c.update(l, func(p *v1.Pod) { p.Status.ContainerStatuses = nil }) // the resize is done
	case 7:
		c.update(l, func(p *v1.Pod) { p.Spec.SchedulingGates = nil })
	default:
		c.update(l, func(p *v1.Pod) { // bound by somebody else
			if len(p.Spec.SchedulingGates) == 0 && p.Spec.NodeName == "" {
				p.Spec.NodeName = c.someNode()
			}
		})
	}
}

// schedule has the scheduler go on with a pod, with a version of it that may be old.
func (c *chaos) schedule(l *life) {
	p := c.old(l)
	if p.Spec.SchedulerName != profile || len(p.Spec.SchedulingGates) > 0 {
		return
	}
	switch {
	case l.cycle == nil && p.Spec.NodeName == "":
		for _, alone := range []bool{false, true} {
			c.jobs[jobOf(p, gang.Want{Job: p.Labels["gang"], Alone: alone})] = true
		}
		if c.d.offer(p) == "" {
			l.cycle = p.DeepCopy()
		}
	case l.cycle == nil:
	case !l.reserved && c.IntN(4) == 0:
		l.cycle = nil
		c.d.crowded(p, false)
		if c.d.Failed(p, unfit(fwk.Unschedulable)) {
			c.d.Again(p)
		}
	case !l.reserved:
		l.cycle.Spec.NodeName = c.someNode() // kube-scheduler assumes it before it calls Reserve
		l.reserved = true
		if c.IntN(2) == 0 {
			drop(c.d.holds, l.uid) // so does Gang
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
			if p.Spec.NodeName == "" { // unless somebody else was first
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
		c.d.roster.Moved(profile, gang.Key{Namespace: "default", Name: name})
	case 0, 1:
		q := dispatch.Queue{Name: name, Weight: 1 + c.Int64N(3), Priority: int32(c.IntN(2)), Closed: c.IntN(8) == 0, Capability: gpus(40 + c.Int64N(3))}
		if c.IntN(2) == 0 {
			q.Parent = chaosQueues[1+c.IntN(4)] // a loop too
		}
		c.queues[name] = q
		c.d.change(func() { c.d.book.SetQueue(q) })
	case 2:
		delete(c.queues, name)
		if name == v1alpha1.DefaultQueue {
			c.queues[name] = dispatch.Queue{Name: name, Weight: 1}
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
	if n := d.book.Turns(); n > 0 {
		c.fail("%d turns last for ever", n)
	}
}

func (c *chaos) fail(format string, args ...any) {
	c.t.Helper()
	c.t.Fatalf("seed %d, step %d: %s", c.seed, c.step, fmt.Sprintf(format, args...))
}

// TestLedgerChaos: whatever happens, and in whichever order it is heard of, the book says
// what a count of all pods says, and what a process says that starts anew.
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

// hold has the ledger hold a node for a pod, or give it back.
func (c *chaos) hold(l *life) {
	if l.gone || l.reserved || c.IntN(3) == 0 {
		drop(c.d.holds, l.uid)
		return
	}
	put(c.d.holds, hold.Hold{For: l.uid, Holder: hold.Holder{Group: "h"}, Node: c.someNode(), Reason: []hold.Reason{hold.Plan, hold.Plan, hold.Nomination}[c.IntN(3)]})
}

// restart has another process take over, which knows of no cycle.
func (c *chaos) restart() {
	c.deliver(len(c.events))
	c.compareRestarted()
	for _, l := range c.lives {
		l.cycle, l.reserved = nil, false
	}
	c.d = c.restarted()
}

// compare compares with a count of all pods. All events have been delivered.
func (c *chaos) compare(counts map[string]int) {
	c.t.Helper()
	c.d.lock()
	c.d.mu.Unlock()
	total, described := c.total(), map[string]share.Queue{}
	for name, q := range c.queues {
		described[name] = share.Queue{Name: name, Parent: q.Parent, Weight: q.Weight, Capability: q.Capability, Request: dispatch.Vector{}, Idle: dispatch.Vector{}}
	}
	running := map[string]dispatch.Vector{}
	runs := func(queue string, amount dispatch.Vector) {
		if running[queue] == nil {
			running[queue] = dispatch.Vector{}
		}
		running[queue].Add(amount, 1)
	}
	for _, l := range c.lives {
		c.comparePod(l)
		if !l.ours() {
			continue
		}
		if q, ok := described[c.queue(l)]; ok {
			c.demand(l, q)
		}
		if !l.runs() {
			counts["waiting"]++
			if _, held := c.d.holds.Of(l.uid); held {
				counts["held"]++
			}
			if len(c.has(l)) > 1 {
				counts["in several pools"]++
			}
			continue
		}
		counts["running"]++
		runs(dispatch.Own(c.queue(l)), c.has(l)[0])
		for _, at := range c.path(c.queue(l)) {
			runs(at, c.has(l)[0])
		}
	}
	if diff := cmp.Diff(without(total), without(c.d.nodes.Total())); diff != "" {
		c.fail("there to be shared (-want +got):\n%s", diff)
	}
	for name, s := range c.d.book.Standings() {
		if diff := cmp.Diff(without(running[name]), without(s.Running)); diff != "" {
			c.fail("running in queue %s (-want +got):\n%s", name, diff)
		}
	}
	c.compareNotes()
	c.compareShares(share.Deserve(total, described))
	c.compareJobs(counts)
}

// demand adds what a pod asks for: in a closed queue only what it has.
func (c *chaos) demand(l *life, q share.Queue) {
	usage, _ := c.d.book.Counted(string(l.uid))
	shut := slices.ContainsFunc(c.path(q.Name), func(at string) bool { return c.queues[at].Closed })
	switch {
	case l.runs():
		q.Request.Add(c.has(l)[0], 1)
	case shut || !usage.Held && usage.Demand == dispatch.Hopeless:
	default:
		for _, amount := range c.has(l) {
			q.Request.Add(amount, 1)
			if !usage.Held && usage.Demand == dispatch.Idle {
				q.Idle.Add(amount, 1)
			}
		}
	}
}

// path are a queue and those above it; only itself where they do not lead to the top.
func (c *chaos) path(name string) []string {
	path := []string{}
	for at := name; at != ""; at = c.queues[at].Parent {
		if _, ok := c.queues[at]; !ok || slices.Contains(path, at) {
			return []string{name}
		}
		path = append(path, at)
	}
	return path
}

func (c *chaos) comparePod(l *life) {
	c.t.Helper()
	type counted struct {
		Known, Runs, Promised, Held bool
		Queue                       string
		Priority                    int32
		GPUs                        []dispatch.Vector
	}
	var want counted
	if l.ours() {
		one, held := c.d.holds.Of(l.uid)
		held = held && !l.runs()
		want = counted{
			true, l.runs(), l.now().Status.NominatedNodeName != "" || held && one.Reason == hold.Nomination, held && one.Reason == hold.Plan,
			c.queue(l), *l.now().Spec.Priority, c.has(l),
		}
	}
	usage, known := c.d.book.Counted(string(l.uid))
	got := counted{known, usage.Runs, usage.Promised, usage.Held && !usage.Runs, usage.Queue, usage.Priority, nil}
	if known {
		got.GPUs = append([]dispatch.Vector{usage.Amount}, usage.Or...)
	}
	if l.runs() {
		got.Promised, want.Promised = false, false
	}
	if diff := cmp.Diff(want, got); diff != "" {
		c.fail("pod %s (-want +counted):\n%s", l.uid, diff)
	}
}

// compareNotes: nothing is kept of pods of which there is nothing to keep.
func (c *chaos) compareNotes() {
	c.t.Helper()
	assumed, versions := 0, 0
	for _, l := range c.lives {
		if l.ours() {
			versions++
			if l.reserved && c.d.assumed[l.uid] != "" { // not where somebody else has bound it
				assumed++
			}
		}
	}
	if len(c.d.assumed) != assumed || len(c.d.seen) != versions {
		c.fail("%d pods are assumed, want %d; %d versions are known, want %d", len(c.d.assumed), assumed, len(c.d.seen), versions)
	}
}

// compareShares tells wrong requests too: nobody gets more than is asked for.
func (c *chaos) compareShares(want map[string]share.Share) {
	c.t.Helper()
	for name, got := range c.d.book.Shares() {
		if diff := cmp.Diff([]dispatch.Vector{without(want[name].Deserved), without(want[name].Fair)}, []dispatch.Vector{without(got.Deserved), without(got.Fair)}); diff != "" {
			c.fail("what queue %s deserves and may have (-want +got):\n%s", name, diff)
		}
	}
}

// compareJobs: a turn is that of a job, and what waits is a pod that is there.
func (c *chaos) compareJobs(counts map[string]int) {
	c.t.Helper()
	admitted := 0
	for name := range c.jobs {
		if c.d.book.Phase(name) == dispatch.Admitted {
			admitted++
			counts["admitted"]++
		}
	}
	if got := c.d.book.Turns(); got != admitted || got > window {
		c.fail("%d turns, of %d jobs; want no more than %d", got, admitted, window)
	}
	waiting := c.waiting(c.d)
	if got := c.d.book.Waiting(); got != len(waiting) {
		c.fail("%d jobs wait for their turn, %d for somebody to tell", got, len(waiting))
	}
	c.d.expire()
	for name, speaker := range c.waiting(c.d) {
		counts["told to wait"]++
		for _, l := range c.lives {
			if l.uid == speaker && (l.ends() || l.now().Spec.NodeName != "") {
				c.fail("job %s waits for its turn with pod %s, which does not", name, l.uid)
			}
		}
	}
}

// waiting are the jobs that wait for their turn, and the pods to call then.
func (c *chaos) waiting(d *Dispatcher) map[string]types.UID {
	waiting := map[string]types.UID{}
	for name := range c.jobs {
		if speaker := d.book.Speaker(name); speaker != "" {
			waiting[name] = types.UID(speaker)
		}
	}
	return waiting
}

// compareRestarted compares with a process that starts anew: what all queues use, once the
// turns have ended, and who is let in then.
func (c *chaos) compareRestarted() {
	c.t.Helper()
	for _, l := range c.lives {
		drop(c.d.holds, l.uid) // another process would not know of it
		if l.reserved {
			assumed := l.cycle
			l.cycle, l.reserved = nil, false
			c.d.unreserve(silent, assumed)
		}
	}
	c.expire(c.d)
	fresh := c.restarted()
	c.compare(map[string]int{})
	for _, name := range chaosQueues {
		all := dispatch.Job{Queue: name, Need: dispatch.Needs{name: gpus(1000)}}
		want, _ := fresh.book.Ceilings(all)
		got, _ := c.d.book.Ceilings(all)
		if diff := cmp.Diff(want, got); diff != "" {
			c.fail("what queue %s uses (-restarted +as it was):\n%s", name, diff)
		}
	}
	if diff := cmp.Diff(c.letIn(fresh), c.letIn(c.d)); diff != "" {
		c.fail("who is let in (-restarted +as it was):\n%s", diff)
	}
}

// compareEmpty: once all pods are gone and some time has passed, nothing is left of them.
func (c *chaos) compareEmpty() {
	c.t.Helper()
	for _, l := range c.lives {
		c.remove(l)
	}
	c.deliver(len(c.events))
	for range 3 {
		c.clock.Step(time.Hour)
		c.d.expire()
	}
	d := c.d
	book := func(field string) int { return reflect.ValueOf(d.book).Elem().FieldByName(field).Len() }
	for what, n := range map[string]int{
		"jobs": book("jobs"), "jobs that time can move": book("timed"), "jobs for which others are evicted": book("making"), "usages": book("usages"), "missed": book("missed"),
		"assumed": len(d.assumed), "places": len(d.places), "seen": len(d.seen), "members": len(d.members), "on": len(d.on), "kinds": len(d.kinds),
	} {
		if n > 0 {
			c.fail("%d %s are left of nothing", n, what)
		}
	}
	for name := range d.book.Standings() {
		if _, described := c.queues[strings.TrimSuffix(name, dispatch.Own(""))]; !described {
			c.fail("queue %s is left of nothing", name)
		}
	}
}

// letIn has all pods in no gang come to the gate, which opens then, and names those that may enter.
func (c *chaos) letIn(d *Dispatcher) string {
	d.opened = false
	for _, l := range c.lives { // what was tried before does not count
		usage, _ := d.book.Counted(string(l.uid))
		demand := dispatch.Full
		if usage.Group != "" {
			demand = dispatch.Hopeless
		}
		if usage.Demand != demand {
			usage.Demand = demand
			d.book.Count(string(l.uid), usage)
		}
	}
	for _, l := range c.lives {
		if l.ours() && !l.runs() && l.now().Labels["gang"] == "" {
			d.offer(l.now())
		}
	}
	alone := map[string]bool{} // others are in a gang, or may enter anyhow
	for _, l := range c.lives {
		alone[string(l.uid)] = l.now().Labels["gang"] == "" && l.now().Status.NominatedNodeName == ""
	}
	d.book.Tick(dispatch.Moment{Now: c.clock.Now(), Waits: func(pod string) bool { return alone[pod] }})
	d.calledNow() // before
	d.change(func() { d.opened = true })
	return d.calledNow()
}
