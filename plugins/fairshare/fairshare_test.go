package fairshare

import (
	"context"
	"errors"
	"fmt"
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
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/apis/config"
	configv1 "github.com/lockstep-sh/lockstep/apis/config/v1"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/gangpoint"
	"github.com/lockstep-sh/lockstep/plugins/holds"
	"github.com/lockstep-sh/lockstep/plugins/internal/dispatch"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
	"github.com/lockstep-sh/lockstep/plugins/planner"
	"github.com/lockstep-sh/lockstep/plugins/roster"
	"github.com/lockstep-sh/lockstep/plugins/victim"
)

const (
	profile = "lockstep-scheduler"
	// turnsEnd is long enough for turns to end of which nothing comes.
	turnsEnd = 30 * time.Second
	gpu      = v1.ResourceName("nvidia.com/gpu")
)

var silent klog.Logger

func gpus(n int64) dispatch.Vector { return dispatch.Vector{gpu: n} }

// newDispatcher is one with so many GPUs, a window, queues of weight 1 unless they say otherwise, and nothing
// that runs by itself.
func newDispatcher(t *testing.T, total int64, window int, queues ...dispatch.Queue) *Dispatcher {
	t.Helper()
	d := NewDispatcher(roster.New(), holds.New(), func(hold.Holder) int { return 0 }, make(chan struct{}), nil)
	d.holds.OnChange(d.holdsChanged)
	d.clock = testingclock.NewFakeClock(time.Unix(1000, 0))
	namespaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	if err := namespaces.Add(&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "of-a", Annotations: map[string]string{v1alpha1.QueueLabel: "a"}}}); err != nil {
		t.Fatal(err)
	}
	d.namespaces = namespaceLister{corelisters.NewNamespaceLister(namespaces), namespaces}
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	d.pods = podLister{corelisters.NewPodLister(store), store}
	d.handles[profile] = nil
	d.args = defaultArgs()
	d.book.SetPolicies(policiesOf(d.args.Tiers))
	d.book.SetLimits(dispatch.Limits{Window: window})
	d.opened = true
	for _, q := range queues {
		q.Weight = max(q.Weight, 1)
		d.book.SetQueue(q)
	}
	if total > 0 {
		d.has(gpus(total))
	}
	return d
}

// has has all that is there to be shared on one node.
func (d *Dispatcher) has(amount dispatch.Vector) {
	list := amount.List()
	list[v1.ResourcePods] = *apiresource.NewQuantity(1<<40, apiresource.DecimalSI) // nobody asks for it
	d.nodeSeen(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Status: v1.NodeStatus{Allocatable: list}})
}

// defaultArgs are those of who says nothing.
func defaultArgs() *config.FairShareArgs {
	given, args := &configv1.FairShareArgs{}, &config.FairShareArgs{}
	configv1.SetDefaults_FairShareArgs(given)
	if err := configv1.Convert_v1_FairShareArgs_To_config_FairShareArgs(given, args, nil); err != nil {
		panic(err)
	}
	return args
}

// namespaceLister lists the namespaces of a store.
type namespaceLister struct {
	corelisters.NamespaceLister
	store cache.Indexer
}

// unfit is what the scheduler says of a pod that finds no place: none of three nodes takes it, for one kind of reason.
func unfit(code fwk.Code) error {
	err := &framework.FitError{NumAllNodes: 3, Diagnosis: framework.Diagnosis{NodeToStatus: framework.NewDefaultNodeToStatus()}}
	err.Diagnosis.NodeToStatus.Set("a", fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "of no use"))
	err.Diagnosis.NodeToStatus.Set("b", fwk.NewStatus(code, "full"))
	return err
}

// podLister lists the pods of a store.
type podLister struct {
	corelisters.PodLister
	store cache.Indexer
}

// know has the API server have these pods.
func (d *Dispatcher) know(pods ...*v1.Pod) {
	for _, p := range pods {
		_ = d.pods.(podLister).store.Update(p) // it fails for what has no name only
	}
}

// lose has the API server have a pod no longer.
func (d *Dispatcher) lose(pod *v1.Pod) {
	_ = d.pods.(podLister).store.Delete(pod)
	d.podGone(pod)
}

// pod asks for some GPUs in a queue. Without a node it waits.
func pod(name, queue string, n int, on string) *v1.Pod {
	p := st.MakePod().Namespace("default").Name(name).UID(name).SchedulerName(profile).Req(map[v1.ResourceName]string{gpu: fmt.Sprint(n)})
	if queue != "" {
		p.Label(v1alpha1.QueueLabel, queue)
	}
	if on != "" {
		p.Node(on)
	}
	return p.Obj()
}

// called names the pods that were called since it was last asked.
func (d *Dispatcher) calledNow() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var names []string
	for _, p := range d.called {
		names = append(names, p.Name)
	}
	d.called = nil
	return strings.Join(names, " ")
}

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

// TestTurns tells the story of pods that come, are scheduled, fail and go.
func TestTurns(t *testing.T) {
	d := newDispatcher(t, 8, 2, dispatch.Queue{Name: "a"}, dispatch.Queue{Name: "b"})
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
	offer := func(name string) func() string { return func() string { return d.offer(pods[name]) } }
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
	step("who has a place already does not wait", func() string { return d.offer(nominated) }, true, "")
}

// TestMissedAndGone: nobody waits for a job that is gone, and for none longer than so long.
func TestMissedAndGone(t *testing.T) {
	for sentence, end := range map[string]func(*Dispatcher, *v1.Pod){
		"it is deleted": func(d *Dispatcher, big *v1.Pod) { d.lose(big) },
		"it was waited for long enough": func(d *Dispatcher, _ *v1.Pod) {
			d.expire()
			d.clock.(*testingclock.FakeClock).Step(2 * time.Minute)
			d.expire()
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			d := newDispatcher(t, 8, 9)
			d.book.SetLimits(dispatch.Limits{Window: 9, MaxBypass: 1, BypassHold: time.Minute})
			big, small, next := pod("big", "", 8, ""), pod("small", "", 1, ""), pod("tiny", "", 1, "")
			for i, p := range []*v1.Pod{big, small, next} {
				p.CreationTimestamp = metav1.Unix(int64(i), 0)
				d.know(p)
			}
			if why := d.offer(big); why != "" {
				t.Fatal(why)
			}
			d.Failed(big, unfit(fwk.Unschedulable))
			if why := d.offer(small); why != "" {
				t.Fatal(why)
			}
			d.reserve(small, "all")
			if why := d.offer(next); !strings.HasPrefix(why, "waiting behind pod default/big") {
				t.Errorf("the next one hears %q", why)
			}
			end(d, big)
			if got := d.calledNow(); got != "tiny" {
				t.Errorf("called %q, want tiny", got)
			}
		})
	}
}

// TestHopeless: nobody waits for what would not fit on an empty cluster.
func TestHopeless(t *testing.T) {
	for sentence, c := range map[string]struct {
		gang string
		fail func(d *Dispatcher, pod *v1.Pod)
		want bool // that others wait
	}{
		"a pod for which nodes are full":    {fail: func(d *Dispatcher, p *v1.Pod) { d.Failed(p, unfit(fwk.Unschedulable)) }, want: true},
		"a pod that no node will ever take": {fail: func(d *Dispatcher, p *v1.Pod) { d.Failed(p, unfit(fwk.UnschedulableAndUnresolvable)) }},
		"a pod that failed otherwise":       {fail: func(d *Dispatcher, p *v1.Pod) { d.Failed(p, errors.New("binding: refused")) }, want: true},
		"a pod that fitted before": {fail: func(d *Dispatcher, p *v1.Pod) {
			d.Failed(p, unfit(fwk.Unschedulable))
			d.offer(p)
			d.Failed(p, unfit(fwk.UnschedulableAndUnresolvable))
		}},
		"a gang":               {gang: "g", fail: func(d *Dispatcher, p *v1.Pod) { d.Failed(p, unfit(fwk.UnschedulableAndUnresolvable)) }, want: true},
		"a gang without hope":  {gang: "g", fail: func(d *Dispatcher, p *v1.Pod) { d.Hopeless(p); d.Failed(p, unfit(fwk.UnschedulableAndUnresolvable)) }},
		"a gang that has hope": {gang: "g", fail: func(d *Dispatcher, p *v1.Pod) { d.Hopeless(p); d.Failed(p, nil); d.offer(p); d.Failed(p, nil) }, want: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			d := newDispatcher(t, 8, 9)
			d.book.SetLimits(dispatch.Limits{Window: 9, MaxBypass: 1, BypassHold: time.Minute})
			d.roster.Register(profile, gangsByLabel{})
			big, small, next := pod("big", "", 8, ""), pod("small", "", 1, ""), pod("tiny", "", 1, "")
			if c.gang != "" {
				big.Labels = map[string]string{"gang": c.gang}
			}
			for i, p := range []*v1.Pod{big, small, next} {
				p.CreationTimestamp = metav1.Unix(int64(i), 0)
				d.know(p)
				d.podSeen(p)
			}
			if why := d.offer(big); why != "" {
				t.Fatal(why)
			}
			c.fail(d, big)
			if why := d.offer(small); why != "" {
				t.Fatal(why)
			}
			d.reserve(small, "all")
			if why := d.offer(next); (why != "") != c.want {
				t.Errorf("the next one hears %q, want that it waits: %v", why, c.want)
			}
		})
	}
}

// gangsByLabel knows gangs of one by a label.
type gangsByLabel struct{ roster.Source }

func (gangsByLabel) QueueOf(gang.Key) string { return "" }

func (gangsByLabel) Wants(pod *v1.Pod) (gang.Want, bool) {
	return gang.Want{Job: pod.Labels["gang"], Pods: []*v1.Pod{pod}}, true
}

// TestGoneForGood: the scheduler may go on for a while with a pod that is deleted, or has
// ended. That counts for nothing.
func TestGoneForGood(t *testing.T) {
	for sentence, end := range map[string]func(*Dispatcher, *v1.Pod){
		"it is deleted": func(d *Dispatcher, p *v1.Pod) { d.lose(p) },
		"another has its name": func(d *Dispatcher, p *v1.Pod) {
			d.lose(p)
			another := p.DeepCopy()
			another.UID = "another"
			d.know(another)
		},
		"another has its name, and nothing was heard in between": func(d *Dispatcher, p *v1.Pod) {
			another := p.DeepCopy()
			another.UID = "another"
			d.know(another)
			d.podChanged(p, another)
		},
		"it has ended": func(d *Dispatcher, p *v1.Pod) {
			ended := p.DeepCopy()
			ended.Status.Phase = v1.PodSucceeded
			d.know(ended)
			d.podSeen(ended)
		},
	} {
		for what, do := range map[string]func(*Dispatcher, *v1.Pod){
			"offered":    func(d *Dispatcher, p *v1.Pod) { d.offer(p) },
			"asked for":  func(d *Dispatcher, p *v1.Pod) { d.crowded(p, false) },
			"reserved":   func(d *Dispatcher, p *v1.Pod) { d.reserve(p, "all") },
			"unreserved": func(d *Dispatcher, p *v1.Pod) { d.unreserve(silent, p) },
			"seen late":  func(d *Dispatcher, p *v1.Pod) { d.podSeen(p) },
		} {
			t.Run(sentence+" and "+what, func(t *testing.T) {
				d := newDispatcher(t, 8, 9)
				d.opened = false
				p := pod("p", "", 1, "")
				d.know(p)
				d.podSeen(p)
				end(d, p)
				do(d, p)
				if usage, known := d.book.Counted("p"); known || d.book.Waiting()+d.book.Turns() > 0 {
					t.Errorf("counted: %+v; %d wait, %d turns", usage, d.book.Waiting(), d.book.Turns())
				}
			})
		}
	}
}

// TestUnreserveAssumed: kube-scheduler gives the copy that has a node already.
func TestUnreserveAssumed(t *testing.T) {
	d := newDispatcher(t, 8, 9)
	p := pod("p", "", 1, "")
	d.know(p)
	d.podSeen(p)
	assumed := pod("p", "", 1, "node")
	d.reserve(assumed, "node")
	d.unreserve(silent, assumed)
	if usage, _ := d.book.Counted("p"); usage.Runs {
		t.Error("it counts as one that runs")
	}
	d.reserve(assumed, "node")
	d.know(assumed)
	d.podSeen(assumed)
	d.unreserve(silent, assumed) // the answer to the binding was lost
	if usage, _ := d.book.Counted("p"); !usage.Runs {
		t.Error("it is bound, and counts as one that waits")
	}
}

// TestResized: a pod counts as what it has until its resize is done, and so does one of another scheduler.
func TestResized(t *testing.T) {
	d := newDispatcher(t, 0, 9)
	d.nodeSeen(st.MakeNode().Name("node").Capacity(map[v1.ResourceName]string{gpu: "8"}).Obj())
	for _, scheduler := range []string{profile, "another"} {
		resized := func(version string, to int, from *v1.Pod) *v1.Pod {
			p := pod(scheduler, "", to, "node")
			p.Spec.SchedulerName, p.ResourceVersion = scheduler, version
			if from != nil {
				p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: p.Spec.Containers[0].Name, Resources: &from.Spec.Containers[0].Resources}}
			}
			return p
		}
		before := resized("1", 3, nil)
		for _, p := range []*v1.Pod{before, resized("2", 1, before), resized("3", 1, nil)} {
			d.know(p)
			d.podSeen(p)
		}
	}
	usage, _ := d.book.Counted(profile)
	if usage.Amount[gpu] != 1 || d.nodes.Total()[gpu] != 7 {
		t.Errorf("it counts as %d GPUs, and %d are shared; want 1 and 7", usage.Amount[gpu], d.nodes.Total()[gpu])
	}
}

// TestSpeaker: a gang waits for its turn with one of its pods, which may go; then another
// offers it again.
func TestSpeaker(t *testing.T) {
	first, second := pod("first", "", 1, ""), pod("second", "", 1, "")
	for sentence, end := range map[string]func(*Dispatcher){
		"when it is its turn": func(d *Dispatcher) { d.opened = true; d.turn() },
		"when turns end":      func(d *Dispatcher) { d.expire() },
		"when it hears of it": func(d *Dispatcher) { d.podGone(first) },
	} {
		t.Run(sentence, func(t *testing.T) {
			d := newDispatcher(t, 8, 9)
			d.roster.Register(profile, wanting{pods: []*v1.Pod{first, second}})
			d.know(first, second)
			d.opened = false
			d.offer(first)
			_ = d.pods.(podLister).store.Delete(first)
			end(d)
			if got := d.calledNow(); got != "second" || d.book.Turns() > 0 {
				t.Errorf("called %q, %d turns; want second, and none", got, d.book.Turns())
			}
		})
	}
}

// wanting says of all pods that they are placed with certain others.
type wanting struct {
	roster.Source
	pods []*v1.Pod
}

func (w wanting) Wants(*v1.Pod) (gang.Want, bool) { return gang.Want{Job: "g", Pods: w.pods}, true }

func (w wanting) QueueOf(gang.Key) string { return "" }

// TestOpened: nobody enters before everything is known.
func TestOpened(t *testing.T) {
	d := newDispatcher(t, 8, 2)
	d.opened = false
	p := pod("p", "", 1, "")
	d.know(p)
	if why := d.offer(p); why == "" {
		t.Error("it passes")
	}
	d.change(func() {
		d.opened = true
	})
	if got := d.calledNow(); got != "p" {
		t.Errorf("called %q, want p", got)
	}
}

// TestForeign: what runs by other schedulers is not there to be shared.
func TestForeign(t *testing.T) {
	d := newDispatcher(t, 0, 2)
	d.nodeSeen(st.MakeNode().Name("node").Capacity(map[v1.ResourceName]string{gpu: "8"}).Obj())
	foreign := pod("x", "", 3, "node")
	foreign.Spec.SchedulerName = "another"
	d.podSeen(foreign)
	d.podSeen(foreign)
	mine := pod("mine", "", 8, "")
	d.know(mine)
	d.podSeen(mine)
	if got := d.book.Shares()["default"].Fair[gpu]; got != 5 {
		t.Errorf("%d GPUs are shared, want 5", got)
	}
	d.podGone(foreign)
	if got := d.book.Shares()["default"].Fair[gpu]; got != 8 {
		t.Errorf("%d GPUs are shared after it has ended, want 8", got)
	}
}

func TestRounds(t *testing.T) {
	for sentence, c := range map[string]struct {
		queues    []dispatch.Queue
		pods      []*v1.Pod // that run, or wait without a node
		preemptor *v1.Pod
		nominated []types.UID
		ending    []types.UID
		gone      string   // is there no more, which was not heard yet
		permitted string   // in the round of reclaiming; "none" where there is none
		granted   []string // by the strict budget, and by the one with parts, in the order of their names
	}{
		"beyond what a queue deserves": {
			queues: []dispatch.Queue{{Name: "a"}, {Name: "b"}},
			pods:   []*v1.Pod{pod("a1", "a", 2, "n"), pod("a2", "a", 2, "n"), pod("a3", "a", 2, "n"), pod("a4", "a", 2, "n")}, preemptor: pod("b1", "b", 2, ""),
			permitted: "a1 a2 a3 a4", granted: []string{"a1", "a1"}, // b deserves what it asks for
		},
		"not what is ending already": {
			queues: []dispatch.Queue{{Name: "a"}, {Name: "b"}},
			pods:   []*v1.Pod{pod("a1", "a", 2, "n"), pod("a2", "a", 2, "n"), pod("a3", "a", 2, "n"), pod("a4", "a", 2, "n")}, preemptor: pod("b1", "b", 2, ""), ending: []types.UID{"a4"},
			permitted: "a1 a2 a3 a4", granted: []string{"", ""},
		},
		"not what is gone, though it counts": {
			queues: []dispatch.Queue{{Name: "a"}, {Name: "b"}},
			pods:   []*v1.Pod{pod("a1", "a", 2, "n"), pod("a2", "a", 2, "n"), pod("a3", "a", 2, "n"), pod("a4", "a", 2, "n")}, preemptor: pod("b1", "b", 2, ""), gone: "a4",
			permitted: "a1 a2 a3 a4", granted: []string{"", ""},
		},
		"not for more than the queue deserves": {
			queues: []dispatch.Queue{{Name: "a"}, {Name: "b"}},
			pods:   []*v1.Pod{pod("a1", "a", 4, "n"), pod("b0", "b", 4, "n"), pod("a2", "a", 4, "")}, preemptor: pod("b1", "b", 1, ""), permitted: "none",
		},
		"what is nominated counts": {
			queues: []dispatch.Queue{{Name: "a"}, {Name: "b"}},
			pods:   []*v1.Pod{pod("a1", "a", 8, "n"), pod("b0", "b", 4, "")}, nominated: []types.UID{"b0"}, preemptor: pod("b1", "b", 1, ""), permitted: "none",
		},
		"a part that is too large where shares are by weight": {
			queues: []dispatch.Queue{{Name: "a"}, {Name: "b"}}, pods: []*v1.Pod{pod("a1", "a", 8, "n")}, preemptor: pod("b1", "b", 4, ""),
			permitted: "a1", granted: []string{"", ""},
		},
		"a part that is too large where the share is stated": {
			queues: []dispatch.Queue{{Name: "a", Deserved: gpus(3)}, {Name: "b", Deserved: gpus(5)}}, pods: []*v1.Pod{pod("a1", "a", 4, "n"), pod("a2", "a", 3, "n")}, preemptor: pod("b1", "b", 4, ""),
			permitted: "a1 a2", granted: []string{"a1", "a1"},
		},
		"the only part is too large": {
			queues: []dispatch.Queue{{Name: "a", Deserved: gpus(3)}, {Name: "b", Deserved: gpus(5)}}, pods: []*v1.Pod{pod("a1", "a", 7, "n")}, preemptor: pod("b1", "b", 4, ""),
			permitted: "a1", granted: []string{"", "a1"},
		},
		"what is kept stays": {
			queues: []dispatch.Queue{{Name: "a", Kept: true}, {Name: "b"}}, pods: []*v1.Pod{pod("a1", "a", 8, "n")}, preemptor: pod("b1", "b", 1, ""), permitted: "",
			granted: []string{"", ""},
		},
		"from the parent's own pods": {
			queues: []dispatch.Queue{{Name: "p"}, {Name: "child", Parent: "p"}},
			pods:   []*v1.Pod{pod("p-1", "p", 2, "n"), pod("p-2", "p", 2, "n"), pod("p-3", "p", 4, "n")}, preemptor: pod("c-1", "child", 4, ""),
			permitted: "p-1 p-2 p-3", granted: []string{"p-1 p-2", "p-1 p-2"},
		},
		"from a child, for the parent's own pods": {
			queues: []dispatch.Queue{{Name: "p"}, {Name: "child", Parent: "p", Weight: 3}, {Name: "other"}},
			pods:   []*v1.Pod{pod("c-1", "child", 2, "n"), pod("c-2", "child", 2, "n"), pod("c-3", "child", 3, "n"), pod("o-1", "other", 1, "n")}, preemptor: pod("p-1", "p", 1, ""),
			permitted: "c-1 c-2 c-3", granted: []string{"", ""}, // 6 of the 7 are what it deserves
		},
		"from siblings only, where the parent has its share": {
			queues: []dispatch.Queue{{Name: "p"}, {Name: "p1", Parent: "p"}, {Name: "p2", Parent: "p"}, {Name: "q"}},
			pods:   []*v1.Pod{pod("p1-1", "p1", 2, "n"), pod("p1-2", "p1", 2, "n"), pod("q-1", "q", 4, "n")}, preemptor: pod("p2-1", "p2", 2, ""),
			permitted: "p1-1 p1-2", granted: []string{"p1-1", "p1-1"},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			d := newDispatcher(t, 8, 9, c.queues...)
			var running []*v1.Pod
			for _, p := range append(slices.Clone(c.pods), c.preemptor) {
				d.know(p)
				d.podSeen(p)
				if p.Name == c.gone {
					_ = d.pods.(podLister).store.Delete(p)
				}
				if p.Spec.NodeName != "" {
					running = append(running, p)
				}
			}
			for _, uid := range c.nominated {
				d.holds.Nominate(hold.Hold{For: uid, Holder: hold.Holder{Profile: profile, Group: string(uid)}, Node: "n"})
			}
			rounds := d.rounds(gangpoint.Gang{Pods: []*v1.Pod{c.preemptor}, Min: 1})
			if rounds[0].Name != "preempt" || slices.ContainsFunc(running, rounds[0].Tiers[0].Permits) {
				t.Errorf("the first round is %s, and takes pods of equal priority or of other queues", rounds[0].Name)
			}
			if c.permitted == "none" {
				if len(rounds) != 1 {
					t.Errorf("%d rounds, want no reclaiming", len(rounds))
				}
				return
			}
			var permitted []string
			var granted []string
			for _, round := range rounds[1:] {
				ending := map[types.UID]bool{}
				for _, uid := range c.ending {
					ending[uid] = true
				}
				budget := round.Tiers[0].Budget(ending)
				permitted = nil
				var names []string
				for _, p := range running {
					if !round.Tiers[0].Permits(p) {
						continue
					}
					permitted = append(permitted, p.Name)
					gang := &victim.Gang{ID: p.Name, Queue: round.Queue(p), Min: 1}
					if !ending[p.UID] && budget.Take(gang, []victim.Pod{{UID: p.UID, Request: victim.Vector(amountOf(p))}}) {
						names = append(names, p.Name)
					}
				}
				granted = append(granted, strings.Join(names, " "))
			}
			if diff := cmp.Diff(c.permitted, strings.Join(permitted, " ")); diff != "" {
				t.Errorf("permitted (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.granted, granted); diff != "" {
				t.Errorf("granted (-want +got):\n%s", diff)
			}
		})
	}
}

// TestUncontested: what there is enough of for all does not keep a queue from giving back what is contested. Who
// has nothing of that gives nothing.
func TestUncontested(t *testing.T) {
	const cpu = v1.ResourceCPU
	d := newDispatcher(t, 0, 9, dispatch.Queue{Name: "a"}, dispatch.Queue{Name: "b"}, dispatch.Queue{Name: "c"})
	with := func(name, queue string, gpus, cpus int, on string) *v1.Pod {
		p := pod(name, queue, gpus, on)
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{cpu: *apiresource.NewQuantity(int64(cpus), apiresource.DecimalSI)}
		if gpus > 0 {
			p.Spec.Containers[0].Resources.Requests[gpu] = *apiresource.NewQuantity(int64(gpus), apiresource.DecimalSI)
		}
		return p
	}
	pods := []*v1.Pod{with("a1", "a", 4, 2, "n"), with("a2", "a", 4, 2, "n"), with("plain", "a", 0, 1, "n"), with("b1", "b", 4, 5, ""), with("c1", "c", 0, 9, "")}
	for _, p := range pods {
		d.know(p)
		d.podSeen(p)
	}
	for cpus, want := range map[int64]string{
		100: "a1",
		15:  "", // of 19 that are asked for; a has no more than the 5 that it deserves
	} {
		d.has(dispatch.Vector{gpu: 8, cpu: cpus * 1000})
		rounds := d.rounds(gangpoint.Gang{Pods: pods[3:4], Min: 1})
		if len(rounds) < 2 {
			t.Errorf("%d CPUs: nothing may be reclaimed", cpus)
			continue
		}
		tier := rounds[1].Tiers[0]
		budget := tier.Budget(nil)
		var granted []string
		for _, p := range pods[:3] {
			if tier.Permits(p) && budget.Take(&victim.Gang{ID: p.Name, Queue: "a", Min: 1}, []victim.Pod{{UID: p.UID, Request: victim.Vector(amountOf(p))}}) {
				granted = append(granted, p.Name)
			}
		}
		if diff := cmp.Diff(want, strings.Join(granted, " ")); diff != "" {
			t.Errorf("%d CPUs: granted (-want +got):\n%s", cpus, diff)
		}
	}
}

// TestNamespaceMoves: a namespace that names another queue takes its pods there, those that wait too.
func TestNamespaceMoves(t *testing.T) {
	d := newDispatcher(t, 8, 9, dispatch.Queue{Name: "a"}, dispatch.Queue{Name: "b", Closed: true})
	in := func(p *v1.Pod) *v1.Pod { p.Namespace = "moves"; return p }
	running, labelled, waiting := in(pod("running", "", 1, "n")), in(pod("labelled", "a", 1, "n")), in(pod("waiting", "", 1, ""))
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
		if err := store.Update(now); err != nil {
			t.Fatal(err)
		}
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
	for _, p := range []*v1.Pod{running, labelled, waiting} {
		d.know(p)
		d.podSeen(p)
	}
	name("b")
	if got := queues(); got != "b a b" {
		t.Errorf("queues %s, want b a b", got)
	}
	if why := d.offer(waiting); why != `queue "b" is closed` {
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

// TestRetry: what did not fit comes again once its queue deserves more, and not before.
func TestRetry(t *testing.T) {
	d := newDispatcher(t, 9, 9, dispatch.Queue{Name: "a"}, dispatch.Queue{Name: "b"})
	d.roster.Register(profile, gangsByLabel{})
	running, waiting, member := pod("running", "a", 9, "n"), pod("waiting", "b", 6, ""), pod("member", "b", 6, "")
	member.Labels["gang"] = "g"
	for _, p := range []*v1.Pod{running, waiting, member, pod("more", "a", 9, "")} {
		d.know(p)
		d.podSeen(p)
	}
	for _, p := range []*v1.Pod{waiting, member} {
		if why := d.offer(p); why != "" {
			t.Fatal(why)
		}
		d.Failed(p, unfit(fwk.Unschedulable))
	}
	if gangs := d.expire(); gangs || d.calledNow() != "" {
		t.Error("they come again though nothing has changed")
	}
	d.change(func() { d.book.SetQueue(dispatch.Queue{Name: "b", Weight: 2}) })
	if gangs, called := d.expire(), d.calledNow(); !gangs || called != "waiting" {
		t.Errorf("called %q, gangs: %v; want the pod and the gang", called, gangs)
	}
	if gangs := d.expire(); gangs || d.calledNow() != "" {
		t.Error("they come again twice")
	}
}

// TestCrowd: what a what-if takes away counts where it was.
func TestCrowd(t *testing.T) {
	d := newDispatcher(t, 9, 9, dispatch.Queue{Name: "p", Capability: gpus(8)}, dispatch.Queue{Name: "a", Parent: "p"}, dispatch.Queue{Name: "b", Parent: "p"})
	d.Preempts(profile)
	top := pod("top", "a", 2, "")
	top.Spec.Priority = ptr.To(int32(9))
	for _, p := range []*v1.Pod{pod("a1", "a", 2, "n"), pod("a2", "a", 2, "n"), pod("b1", "b", 4, "n"), pod("b2", "b", 4, ""), top} {
		d.know(p)
		d.podSeen(p)
	}
	if why := d.offer(top); why != "" {
		t.Fatalf("it waits for others to make way: %s", why)
	}
	pl := &FairShare{dispatcher: d}
	state := framework.NewCycleState()
	if _, status := pl.PreFilter(t.Context(), state, top, nil); status.Code() != fwk.Unschedulable {
		t.Errorf("it is placed before others have made way: %v", status)
	}
	planner.Ask(state, &planner.Question{})
	if _, status := pl.PreFilter(t.Context(), state, top, nil); !status.IsSuccess() {
		t.Fatalf("nobody may ask what if: %v", status)
	}
	step := func(sentence string, do func(context.Context, fwk.CycleState, *v1.Pod, fwk.PodInfo, fwk.NodeInfo) *fwk.Status, name string, fits bool) {
		t.Helper()
		info, err := framework.NewPodInfo(pod(name, "", 1, ""))
		if err != nil {
			t.Fatal(err)
		}
		do(t.Context(), state, top, info, nil)
		if status := pl.SimulateAllocatable(t.Context(), state, top); status.IsSuccess() != fits {
			t.Errorf("%s: %v", sentence, status)
		}
	}
	step("without one of another queue there is room below the ceiling, but not in its share", pl.SimulateRemoveTask, "b1", false)
	step("it is back", pl.SimulateAddTask, "b1", false)
	step("one for the other", pl.SimulateRemoveTask, "a1", true)
	step("it is back", pl.SimulateAddTask, "a1", false)
	step("who was not removed cannot come back", pl.SimulateAddTask, "a2", false)
	step("who does not run gives nothing", pl.SimulateRemoveTask, "b2", false)
}

// TestQueueGoneInASearch: the children of a queue may go between two looks at what it may lose.
func TestQueueGoneInASearch(t *testing.T) {
	d := newDispatcher(t, 10, 9, dispatch.Queue{Name: "p"}, dispatch.Queue{Name: "c", Parent: "p"}, dispatch.Queue{Name: "q"})
	for _, p := range []*v1.Pod{pod("own", "p", 10, "n"), pod("w", "q", 5, "")} {
		d.know(p)
		d.podSeen(p)
	}
	w := pod("w", "q", 5, "")
	c := d.claim("q", gangpoint.Gang{Pods: []*v1.Pod{w}, Min: 1}, dispatch.Vector{gpu: 5})
	if c == nil {
		t.Fatal("no claim")
	}
	d.change(func() { d.book.RemoveQueue("c") })
	if b := d.budget(c, map[types.UID]bool{"own": true}, nil, false); b.Take(&victim.Gang{ID: "own", Queue: "p", Min: 1}, []victim.Pod{{UID: "own", Request: victim.Vector{gpu: 10}}}) {
		t.Error("what is ending is taken once more")
	}
}

// TestRelabelled: a pod that waits takes its job along to another queue.
func TestRelabelled(t *testing.T) {
	d := newDispatcher(t, 10, 9, dispatch.Queue{Name: "a", Closed: true}, dispatch.Queue{Name: "b"})
	p := pod("p", "a", 4, "")
	d.know(p)
	d.podSeen(p)
	if why := d.offer(p); !strings.Contains(why, "closed") {
		t.Fatal(why)
	}
	q := p.DeepCopy()
	q.Labels[v1alpha1.QueueLabel] = "b"
	q.ResourceVersion = "2"
	d.know(q)
	d.podChanged(p, q)
	d.expire()
	if got := d.calledNow(); got != "p" {
		_, why := d.book.Why("pod:p")
		t.Errorf("called %q; jobs waiting %v %s", got, d.book.Pending(), why)
	}
}

// TestClosedLendsNothing: what runs in a closed queue is its own, whatever waits there.
func TestClosedLendsNothing(t *testing.T) {
	d := newDispatcher(t, 10, 9, dispatch.Queue{Name: "a"}, dispatch.Queue{Name: "b"})
	for _, p := range []*v1.Pod{pod("r", "a", 5, "n"), pod("w", "a", 4, ""), pod("o", "b", 10, "")} {
		d.know(p)
		d.podSeen(p)
	}
	w := pod("w", "a", 4, "")
	d.offer(w)
	d.Failed(w, unfit(fwk.Unschedulable))
	d.change(func() { d.book.SetQueue(dispatch.Queue{Name: "a", Weight: 1, Closed: true}) })
	if got := d.book.Shares()["b"].Fair[gpu]; got != 5 {
		t.Errorf("b may have %d, but 5 of 10 run in a and are deserved", got)
	}
}
