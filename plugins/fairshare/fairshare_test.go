package fairshare

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
	"github.com/lockstep-sh/lockstep/test/helpers/sample/queuecases"
)

const (
	profile = "lockstep-scheduler"
	// turnsEnd is long enough for turns without result to end.
	turnsEnd = 30 * time.Second
	gpu      = v1.ResourceName("nvidia.com/gpu")
)

var silent klog.Logger

func TestQueueOf(t *testing.T) {
	d := newDispatcher(t, 8, 1)
	elsewhere := pod("p", "", 1, "")
	elsewhere.Namespace = "of-a"
	labelled := pod("p", "b", 1, "")
	labelled.Namespace = "of-a"
	for want, p := range map[string]*v1.Pod{"default": pod("p", "", 1, ""), "a": elsewhere, "b": labelled} {
		if got := d.queueOf(p); got != want {
			t.Errorf("queue %q, want %q", got, want)
		}
	}
}

// TestQueueOfPodGroups: the registry of gangs knows the PodGroups.
func TestQueueOfPodGroups(t *testing.T) {
	for sentence, c := range queuecases.Cases() {
		var of gangspec.PodGroups
		if c.Community != nil {
			of[gangspec.Community] = gangspec.ReadPodGroup(c.Community, &c.Community.Spec)
		}
		if c.Native != nil {
			of[gangspec.Native] = gangspec.ReadNative(c.Native)
		}
		d := newDispatcher(t, 8, 1)
		d.gangs = podGroups{of: of}
		must.Succeed(t, d.namespaces.(namespaceLister).store.Add(&v1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: queuecases.Namespace, Annotations: map[string]string{v1alpha1.QueueLabel: queuecases.OfNamespace}}}))
		if got := d.queueOf(c.Pod); got != c.Want {
			t.Errorf("%s: queue %q, want %q", sentence, got, c.Want)
		}
	}
}

// TestTurns follows pods that come, are scheduled, fail and go.
func TestTurns(t *testing.T) {
	d := newDispatcher(t, 8, 2, queueing.Queue{Name: "a"}, queueing.Queue{Name: "b"})
	pods := map[string]*v1.Pod{}
	for _, name := range []string{"a1", "a2", "a3", "b1"} {
		pods[name] = pod(name, name[:1], 1, "")
		d.know(pods[name])
	}
	step := func(sentence string, do func() string, passes bool, called string) {
		t.Helper()
		why := do()
		if (why == "") != passes {
			t.Errorf("%s: %q, want that it passes: %v", sentence, why, passes)
		}
		if got := d.calledNow(); got != called {
			t.Errorf("%s: called %q, want %q", sentence, got, called)
		}
	}
	offer := func(name string) func() string { return func() string { return d.comes(pods[name]) } }
	quietly := func(do func()) func() string { return func() string { do(); return "" } }
	step("the first enters", offer("a1"), true, "")
	step("the window has room for one more", offer("a2"), true, "")
	step("and then for none", offer("a3"), false, "")
	step("for none of another queue either", offer("b1"), false, "")
	step("asking again changes nothing", offer("a1"), true, "")
	step("one is placed: whoever is served least comes next", quietly(func() { d.reserve(pods["a1"], "all") }), true, "b1")
	step("it passes now", offer("b1"), true, "")
	step("one fails", quietly(func() { d.Failed(pods["a2"], unfit(fwk.Unschedulable)) }), true, "a3")
	step("and comes again, last", offer("a2"), false, "")
	step("one gives back its node, and has no turn any more", quietly(func() { d.unreserve(silent, pods["a1"]) }), true, "")
	step("one is deleted in its turn", quietly(func() { d.lose(pods["b1"]) }), true, "a2")
	step("what comes of nothing ends", quietly(func() {
		d.clock.(*testingclock.FakeClock).Step(2 * turnsEnd)
		d.expire()
	}), true, "")
	nominated := pod("n", "a", 1, "")
	nominated.Status.NominatedNodeName = "node"
	step("who has a place already does not wait", func() string { return d.comes(nominated) }, true, "")
}

// TestMissed: others wait for a job that did not fit, but not for what would not fit on an empty cluster or is gone,
// and for none longer than a fixed time.
func TestMissed(t *testing.T) {
	for sentence, c := range map[string]struct {
		gang string
		fail func(d *Dispatcher, pod *v1.Pod)
		want bool                             // others wait
		ends func(d *Dispatcher, pod *v1.Pod) // their wait; nil if nothing does
	}{
		"a pod that is deleted then": {fail: func(d *Dispatcher, p *v1.Pod) { d.Failed(p, unfit(fwk.Unschedulable)) }, want: true, ends: (*Dispatcher).lose},
		"a pod that was waited for long enough": {fail: func(d *Dispatcher, p *v1.Pod) { d.Failed(p, unfit(fwk.Unschedulable)) }, want: true, ends: func(d *Dispatcher, _ *v1.Pod) {
			d.expire()
			d.clock.(*testingclock.FakeClock).Step(2 * time.Minute)
			d.expire()
		}},
		"a pod for which nodes are full":    {fail: func(d *Dispatcher, p *v1.Pod) { d.Failed(p, unfit(fwk.Unschedulable)) }, want: true},
		"a pod that no node will ever take": {fail: func(d *Dispatcher, p *v1.Pod) { d.Failed(p, unfit(fwk.UnschedulableAndUnresolvable)) }},
		"a pod that goes where others are": {fail: func(d *Dispatcher, p *v1.Pod) {
			p.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{}}
			d.Failed(p, unfit(fwk.UnschedulableAndUnresolvable))
		}, want: true},
		"a pod that failed otherwise": {fail: func(d *Dispatcher, p *v1.Pod) { d.Failed(p, errors.New("binding: refused")) }, want: true},
		"a pod that fitted before": {fail: func(d *Dispatcher, p *v1.Pod) {
			d.Failed(p, unfit(fwk.Unschedulable))
			d.comes(p)
			d.Failed(p, unfit(fwk.UnschedulableAndUnresolvable))
		}},
		"a gang":               {gang: "g", fail: func(d *Dispatcher, p *v1.Pod) { d.Failed(p, unfit(fwk.UnschedulableAndUnresolvable)) }, want: true},
		"a gang without hope":  {gang: "g", fail: func(d *Dispatcher, p *v1.Pod) { d.Hopeless(p); d.Failed(p, unfit(fwk.UnschedulableAndUnresolvable)) }},
		"a gang that has hope": {gang: "g", fail: func(d *Dispatcher, p *v1.Pod) { d.Hopeless(p); d.Failed(p, nil); d.comes(p); d.Failed(p, nil) }, want: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			d := newDispatcher(t, 8, 9)
			d.book.Configure(queueing.Limits{Window: 9, MaxBypass: 1, BypassHold: time.Minute}, policiesOf(d.args.Tiers))
			d.gangs = gangsByLabel{}
			big, small, next := pod("big", "", 8, ""), pod("small", "", 1, ""), pod("tiny", "", 1, "")
			if c.gang != "" {
				big.Labels = map[string]string{"gang": c.gang}
			}
			for i, p := range []*v1.Pod{big, small, next} {
				p.CreationTimestamp = metav1.Unix(int64(i), 0)
				d.seeAll(p)
			}
			if why := d.comes(big); why != "" {
				t.Fatal(why)
			}
			c.fail(d, big)
			if why := d.comes(small); why != "" {
				t.Fatal(why)
			}
			d.reserve(small, "all")
			if why := d.comes(next); (why != "") != c.want || c.want && c.gang == "" && !strings.HasPrefix(why, "waiting behind pod default/big") {
				t.Errorf("the next one hears %q, want that it waits: %v", why, c.want)
			}
			if c.ends == nil {
				return
			}
			if c.ends(d, big); d.calledNow() != "tiny" {
				t.Error("the next one is not called")
			}
		})
	}
}

// gangsByLabel knows gangs of one pod by a label.
type gangsByLabel struct{ noGangs }

func (gangsByLabel) Wants(pod *v1.Pod) (gangstate.PlacementRequest, bool) {
	return gangstate.PlacementRequest{Job: pod.Labels["gang"], Pods: []*v1.Pod{pod}}, true
}

// TestGoneForGood: the scheduler may use a pod for a while that is deleted, or has
// ended. Such a pod counts for nothing.
func TestGoneForGood(t *testing.T) {
	for sentence, end := range map[string]func(*Dispatcher, *v1.Pod){
		"it is deleted": func(d *Dispatcher, p *v1.Pod) { d.lose(p) },
		"another has its name": func(d *Dispatcher, p *v1.Pod) {
			d.lose(p)
			another := p.DeepCopy()
			another.UID = "another"
			d.know(another)
		},
		"it has ended": func(d *Dispatcher, p *v1.Pod) {
			ended := p.DeepCopy()
			ended.Status.Phase = v1.PodSucceeded
			d.seeAll(ended)
		},
		"it is being deleted": func(d *Dispatcher, p *v1.Pod) { d.seeAll(beingDeleted(p)) },
	} {
		for what, do := range map[string]func(*Dispatcher, *v1.Pod){
			"offered":    func(d *Dispatcher, p *v1.Pod) { d.comes(p) },
			"asked for":  func(d *Dispatcher, p *v1.Pod) { d.limits(p, false) },
			"reserved":   func(d *Dispatcher, p *v1.Pod) { d.reserve(p, "all") },
			"unreserved": func(d *Dispatcher, p *v1.Pod) { d.unreserve(silent, p) },
			"seen late":  func(d *Dispatcher, p *v1.Pod) { d.podSeen(p) },
		} {
			t.Run(sentence+" and "+what, func(t *testing.T) {
				d := newDispatcher(t, 8, 9)
				d.opened = false
				p := pod("p", "", 1, "")
				d.seeAll(p)
				end(d, p)
				do(d, p)
				if usage, known := d.book.Counted("p"); known || len(d.book.Jobs(queueing.Waiting))+d.turns() > 0 {
					t.Errorf("counted: %+v; %v wait, %d turns", usage, d.book.Jobs(queueing.Waiting), d.turns())
				}
			})
		}
	}
}

// TestDeletedOnItsWay: a pod that is being deleted counts as long as it has a node.
func TestDeletedOnItsWay(t *testing.T) {
	d := newDispatcher(t, 8, 9)
	p := pod("p", "", 1, "")
	d.seeAll(p)
	d.reserve(p, "all")
	d.seeAll(beingDeleted(p))
	if usage, known := d.book.Counted("p"); !known || !usage.Runs {
		t.Errorf("while it has the node: counted %v: %+v", known, usage)
	}
	d.unreserve(silent, p)
	if usage, known := d.book.Counted("p"); known {
		t.Errorf("when it has given it back: counted: %+v", usage)
	}
}

// TestLeftMeanwhile: a pod may leave the scheduler's cache while others get and give back nodes. It is for the race
// detector.
func TestLeftMeanwhile(t *testing.T) {
	d := newDispatcher(t, 8, 9)
	p, other := pod("p", "", 1, ""), pod("other", "", 1, "")
	d.seeAll(p)
	d.seeAll(other)
	var left sync.WaitGroup
	left.Go(func() {
		for range 100 {
			d.Left(p)
		}
	})
	for range 100 {
		d.reserve(other, "all")
		d.unreserve(silent, other)
	}
	left.Wait()
	if _, known := d.book.Counted("p"); !known {
		t.Error("a pod that exists is not counted")
	}
}

func beingDeleted(pod *v1.Pod) *v1.Pod {
	p := pod.DeepCopy()
	p.DeletionTimestamp = &metav1.Time{}
	return p
}

// TestOpened: no pod is admitted before everything is known.
func TestOpened(t *testing.T) {
	d := newDispatcher(t, 8, 2)
	d.opened = false
	p := pod("p", "", 1, "")
	d.know(p)
	if why := d.comes(p); why == "" {
		t.Error("it passes")
	}
	d.change(func() {
		d.opened = true
	})
	if got := d.calledNow(); got != "p" {
		t.Errorf("called %q, want p", got)
	}
}

// TestNamespaceMoves: when a namespace names another queue, its pods move there, those that wait too.
func TestNamespaceMoves(t *testing.T) {
	d := newDispatcher(t, 8, 9, queueing.Queue{Name: "a"}, queueing.Queue{Name: "b", Closed: true})
	in := func(p *v1.Pod) *v1.Pod { p.Namespace = "moves"; return p }
	running, labelled, waiting := in(pod("running", "", 1, "all")), in(pod("labelled", "a", 1, "all")), in(pod("waiting", "", 1, ""))
	name := func(queue string) {
		t.Helper()
		now := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "moves"}}
		if queue != "" {
			now.Annotations = map[string]string{v1alpha1.QueueLabel: queue}
		}
		store := d.namespaces.(namespaceLister).store
		before := &v1.Namespace{}
		if item, ok, _ := store.GetByKey("moves"); ok {
			before = item.(*v1.Namespace)
		}
		must.Succeed(t, store.Update(now))
		d.namespaceSeen(before, now)
	}
	queues := func() string {
		var list []string
		for _, p := range []*v1.Pod{running, labelled, waiting} {
			usage, _ := d.book.Counted(string(p.UID))
			list = append(list, usage.Queue)
		}
		return strings.Join(list, " ")
	}
	d.seeAll(running, labelled, waiting)
	name("b")
	if got := queues(); got != "b a b" {
		t.Errorf("queues %s, want b a b", got)
	}
	if why := d.comes(waiting); why != `queue "b" is closed` {
		t.Errorf("it waits because %q", why)
	}
	name("a")
	if got := queues(); got != "a a a" {
		t.Errorf("queues %s, want a a a", got)
	}
	if got := d.calledNow(); got != "waiting" {
		t.Errorf("called %q, want waiting", got)
	}
	name("")
	if got := queues(); got != "default a default" {
		t.Errorf("queues %s, want default a default", got)
	}
}

// TestRelabelled: a waiting pod takes its job along to another queue.
func TestRelabelled(t *testing.T) {
	d := newDispatcher(t, 10, 9, queueing.Queue{Name: "a", Closed: true}, queueing.Queue{Name: "b"})
	p := pod("p", "a", 4, "")
	d.seeAll(p)
	if why := d.comes(p); !strings.Contains(why, "closed") {
		t.Fatal(why)
	}
	d.seeAll(relabelled(p, "b"))
	d.expire()
	if got := d.calledNow(); got != "p" {
		why := d.book.Why("pod:p", true).Message
		t.Errorf("called %q; jobs waiting %v %s", got, d.book.Jobs(queueing.Waiting), why)
	}
}

// TestRelabelledAfterItFailed: a pod that did not fit is called in a queue that deserves what it asks for.
func TestRelabelledAfterItFailed(t *testing.T) {
	for _, deserves := range []int64{4, 12} {
		d := newDispatcher(t, 16, 9, queueing.Queue{Name: "a", Deserved: gpus(8)}, queueing.Queue{Name: "b", Deserved: gpus(deserves)}, queueing.Queue{Name: "c", Deserved: gpus(0)})
		p := pod("p", "a", 4, "")
		d.seeAll(pod("a1", "a", 6, "all"), pod("c1", "c", 10, "all"), p)
		if why := d.comes(p); why != "" {
			t.Fatal(why)
		}
		d.Failed(p, unfit(fwk.Unschedulable))
		d.expire()
		d.calledNow()
		d.seeAll(relabelled(p, "b"))
		d.expire()
		if got := d.calledNow(); got != "p" {
			t.Errorf("b deserves %d: called %q, want p", deserves, got)
		}
	}
}

// TestRelabelledInItsTurn: a pod that has its turn keeps the ceilings of the queue that it is in by now.
func TestRelabelledInItsTurn(t *testing.T) {
	d := newDispatcher(t, 10, 9, queueing.Queue{Name: "a"}, queueing.Queue{Name: "b", Capability: gpus(1)})
	p := pod("p", "a", 4, "")
	d.seeAll(pod("b1", "b", 1, "all"), p)
	if why := d.comes(p); why != "" {
		t.Fatal(why)
	}
	p = relabelled(p, "b")
	d.seeAll(p)
	if c := d.limits(p, false); c == nil || len(c.bounds) == 0 {
		t.Error("nothing limits it")
	}
}

// relabelled returns a later version of a pod, in another queue.
func relabelled(pod *v1.Pod, queue string) *v1.Pod {
	pod = pod.DeepCopy()
	pod.Labels[v1alpha1.QueueLabel], pod.ResourceVersion = queue, "2"
	return pod
}

// TestImpossibleAmounts: pods that ask for what no pod can have count nowhere, whenever they come to ask for it, and
// leave nothing behind; nor does a node that says that it has so much.
func TestImpossibleAmounts(t *testing.T) {
	d := newDispatcher(t, 0, 9)
	d.nodeSeen(st.MakeNode().Name("node").Capacity(map[v1.ResourceName]string{gpu: "8"}).Obj())
	asking := func(name, node, amount string) *v1.Pod {
		p := pod(name, "", 1, node)
		p.ResourceVersion = amount
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{gpu: resource.MustParse(amount)}
		return p
	}
	for _, p := range []*v1.Pod{asking("w", "", "1e30"), asking("x", "", "4Ei"), asking("late", "", "1"), asking("late", "", "1e30")} {
		d.seeAll(p)
		if why := d.comes(p); p.Name != "late" && why != "" {
			t.Errorf("%s: %s; its cycle is to tell why it waits", p.Name, why)
		}
	}
	for _, name := range []string{"w", "x", "late"} {
		if usage, known := d.book.Counted(name); known {
			t.Errorf("%s counts: %v", name, usage.Amount)
		}
	}
	bad := asking("late", "", "1e30")
	bad.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("1")
	d.know(bad)
	d.unreserve(silent, asking("late", "node", "1")) // its cycle began before
	d.comes(asking("late", "", "1"))
	if usage, known := d.book.Counted("late"); known {
		t.Errorf("half of it counts: %v", usage.Amount)
	}
	grown := []*v1.Pod{asking("r1", "node", "1"), asking("r2", "node", "1"), asking("r1", "node", "1e30"), asking("r2", "node", "1e30")}
	d.seeAll(grown...)
	d.nodeSeen(st.MakeNode().Name("huge").Capacity(map[v1.ResourceName]string{gpu: "1e30"}).Obj())
	if total := d.nodes.Total()[gpu]; total != 8 {
		t.Errorf("%d GPUs are shared, want 8", total)
	}
	for _, p := range grown[:2] {
		d.podGone(p)
	}
	standing := d.book.Standings()["default"]
	if total := d.nodes.Total()[gpu]; total != 8 || !standing.Running.Zero() {
		t.Errorf("when all are gone %d GPUs are shared and %v are used", total, standing.Running)
	}
}
