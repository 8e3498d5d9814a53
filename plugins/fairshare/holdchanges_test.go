package fairshare

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
)

// hoarding knows one gang; its placed members follow a plan.
type hoarding struct {
	noGangs
	pods   []*v1.Pod
	placed map[string]bool
	begun  bool
}

func (h *hoarding) Wants(pod *v1.Pod) (gangstate.PlacementRequest, bool) {
	if pod.Labels["gang"] == "" {
		return gangstate.PlacementRequest{Pods: []*v1.Pod{pod}}, true
	}
	want := gangstate.PlacementRequest{Job: "g", Begun: h.begun}
	for _, p := range h.pods {
		if !h.placed[p.Name] {
			want.Pods = append(want.Pods, p)
		}
	}
	return want, !h.placed[pod.Name]
}

// TestHoards: what a gang holds without being complete counts as used by its queue, from when it is held until it
// is given back, and while it is being reserved.
func TestHoards(t *testing.T) {
	d := newDispatcher(t, 20, 9, queueing.Queue{Name: "a", Capability: gpus(8)})
	h := &hoarding{placed: map[string]bool{}}
	d.gangs = h
	for i := range 8 {
		p := pod(fmt.Sprint("g", i), "a", 1, "")
		p.Labels["gang"] = "g"
		h.pods = append(h.pods, p)
	}
	d.seeAll(h.pods...)
	if why := d.comes(h.pods[0]); why != "" {
		t.Fatal(why)
	}
	for _, p := range h.pods[:4] {
		h.placed[p.Name] = true
		put(d.holds, hold.Hold{For: p.UID, Holder: hold.Holder{Group: "g"}, Node: "all", Reason: hold.Plan})
	}
	d.Failed(h.pods[7], unfit(fwk.Unschedulable))
	another := pod("another", "a", 5, "")
	d.seeAll(another)
	waits := func(sentence, want string) {
		t.Helper()
		if why := d.comes(another); !strings.Contains(why, want) || why == "" && want != "" {
			t.Errorf("%s: another one hears %q, want %q", sentence, why, want)
		}
	}
	waits("four are held", "4 nvidia.com/gpu used, 5 nvidia.com/gpu asked for")
	drop(d.holds, "g0") // its place is being reserved for it now
	waits("one is being reserved", "4 nvidia.com/gpu used, 5 nvidia.com/gpu asked for")
	d.reserve(h.pods[0], "all")
	waits("one is reserved", "4 nvidia.com/gpu used, 5 nvidia.com/gpu asked for")
	d.unreserve(silent, h.pods[0])
	delete(h.placed, "g0")
	if got := d.calledNow(); got != "another" {
		t.Errorf("called %q once one gave back its place, want another", got)
	}
}

// TestHeldIsHeard: a hold that is given back admits the job that waits for it, without any other event.
func TestHeldIsHeard(t *testing.T) {
	d := newDispatcher(t, 20, 9, queueing.Queue{Name: "a", Capability: gpus(8)})
	h := &hoarding{placed: map[string]bool{}}
	d.gangs = h
	member := pod("g0", "a", 4, "")
	member.Labels["gang"] = "g"
	h.pods = []*v1.Pod{member}
	another := pod("another", "a", 5, "")
	d.seeAll(member, another)
	h.placed["g0"] = true
	put(d.holds, hold.Hold{For: "g0", Holder: hold.Holder{Group: "g"}, Node: "all", Reason: hold.Plan})
	if why := d.comes(another); why == "" {
		t.Fatal("it enters")
	}
	for len(d.activating) > 0 {
		<-d.activating
	}
	h.placed["g0"] = false
	drop(d.holds, "g0")
	select {
	case <-d.activating:
	default:
		t.Fatal("nobody is told that a hold has ended")
	}
	if got := d.calledNow(); got != "another" {
		t.Errorf("called %q, want another", got)
	}
}

// TestNominatedByTheLedger: a pod with a nominated node is admitted without a turn; its status may get the nomination
// later, or have lost it.
func TestNominatedByTheLedger(t *testing.T) {
	for sentence, c := range map[string]struct {
		status string
		holds  *hold.Hold
		enters bool
	}{
		"nobody says anything":               {},
		"the ledger says so":                 {holds: &hold.Hold{Reason: hold.Nomination, Node: "all"}, enters: true},
		"its status alone says so":           {status: "all", enters: true},
		"the ledger says so, on another one": {status: "gone", holds: &hold.Hold{Reason: hold.Nomination, Node: "all"}, enters: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			d := newDispatcher(t, 20, 9, queueing.Queue{Name: "a", Closed: true})
			p := pod("p", "a", 4, "")
			p.Status.NominatedNodeName = c.status
			d.seeAll(p)
			if c.holds != nil {
				c.holds.For, c.holds.Holder = p.UID, hold.Holder{Group: "g"}
				put(d.holds, *c.holds)
			}
			if why := d.comes(p); (why == "") != c.enters {
				t.Errorf("it hears %q, want it to enter: %t", why, c.enters)
			}
			counted, _ := d.usage.Pod("p")
			if of, _ := d.book.Counted("p"); of.Promised != c.enters || counted.Node != map[bool]string{true: "all"}[c.enters] {
				t.Errorf("%+v counts on node %q", of, counted.Node)
			}
		})
	}
}

// TestBegun: a gang of which part is bound is admitted at once, whatever the limits of its queue and the jobs before
// it.
func TestBegun(t *testing.T) {
	d := newDispatcher(t, 6, 1, queueing.Queue{Name: "a", Capability: gpus(3)}, queueing.Queue{Name: "b", Priority: 9})
	h := &hoarding{placed: map[string]bool{}, begun: true}
	d.gangs = h
	d.opened = false
	first := pod("first", "b", 1, "")
	d.seeAll(first)
	for i := range 6 {
		p := pod(fmt.Sprint("g", i), "a", 1, map[bool]string{true: "all"}[i < 3])
		p.Labels["gang"] = "g"
		if d.seeAll(p); i >= 3 {
			h.pods = append(h.pods, p)
		}
	}
	for _, p := range []*v1.Pod{first, h.pods[0]} {
		if why := d.comes(p); why == "" {
			t.Fatal("it enters before everything is known")
		}
	}
	d.change(func() { d.opened = true })
	if got := d.calledNow(); got != "g3" {
		t.Errorf("called %q, want g3: the window has room for one", got)
	}
	pl := &FairShare{dispatcher: d}
	if _, status := pl.PreFilter(t.Context(), framework.NewCycleState(), h.pods[0], nil); !status.IsSkip() {
		t.Errorf("it is kept by its queue: %v", status)
	}
	if ceilings, _ := d.book.Ceilings(queueing.Job{Queue: "a", Options: []queueing.Needs{{"a": gpus(1)}}}); len(ceilings) == 0 || ceilings[0].Used != 6 {
		t.Errorf("its queue uses %v, want 6", ceilings)
	}
	d.Failed(h.pods[0], unfit(fwk.Unschedulable))
	d.calledNow()
	if why := d.comes(h.pods[0]); why != "" {
		t.Errorf("it comes again and hears %q", why)
	}
}

// mending knows one gang by the state machine of Gang.
type mending struct {
	noGangs
	gangs *gangstate.Gangs
}

func (m mending) Wants(pod *v1.Pod) (gangstate.PlacementRequest, bool) { return m.gangs.Wants(pod) }

// TestMends: a pod that replaces a lost member of a running gang is admitted at once, however much its queue has by
// now; members beyond the minimum wait.
func TestMends(t *testing.T) {
	d := newDispatcher(t, 20, 9, queueing.Queue{Name: "a", Capability: gpus(4)})
	m := mending{gangs: gangstate.New(gangspec.Defaults{WaitTime: time.Minute}, gangstate.Backoff{Initial: time.Second, Max: time.Second})}
	m.gangs.Open(time.Now())
	d.gangs = m
	see := func(name, node string) *v1.Pod {
		p := pod(name, "a", 1, node)
		p.Annotations = map[string]string{v1alpha1.GangNameAnnotation: "g", v1alpha1.MinAvailableAnnotation: "4"}
		d.seeAll(p)
		m.gangs.ObservePod(p, time.Now())
		return p
	}
	lost := see("g0", "all")
	for i := range 3 {
		see(fmt.Sprint("g", i+1), "all")
	}
	extra := see("g4", "")
	if why := d.comes(extra); why == "" {
		t.Error("one beyond the minimum enters although its queue is at its ceiling")
	}
	d.seeAll(pod("another", "a", 1, "all"))
	d.podGone(lost)
	m.gangs.PodEnded("g0", time.Now())
	if why := d.comes(extra); why != "" {
		t.Errorf("one is lost, and who makes up for it hears %q", why)
	}
	if why := d.comes(see("g5", "")); why == "" {
		t.Error("another one beyond the minimum enters")
	}
}

// TestConstantStatus: the status of a pod for which others have to make way does not change with what they use.
func TestConstantStatus(t *testing.T) {
	for sentence, c := range map[string]struct {
		queue queueing.Queue
		want  string
	}{
		"a share":   {queueing.Queue{Name: "a"}, `queue "a" has its share of nvidia.com/gpu: other jobs of the queue would have to be preempted`},
		"a ceiling": {queueing.Queue{Name: "a", Capability: gpus(4)}, `queue "a" would exceed its capability of 4 nvidia.com/gpu: other jobs of the queue would have to be preempted`},
	} {
		t.Run(sentence, func(t *testing.T) {
			d := newDispatcher(t, 8, 9, c.queue, queueing.Queue{Name: "b"})
			d.Preempts(profile)
			top := pod("top", "a", 2, "")
			top.Spec.Priority = ptr.To(int32(9))
			d.seeAll(pod("a1", "a", 4, "all"), pod("b1", "b", 4, "all"), pod("b2", "b", 4, ""), top)
			if why := d.comes(top); why != "" {
				t.Fatal(why)
			}
			pl := &FairShare{dispatcher: d}
			for _, used := range []int{4, 3} {
				d.seeAll(resizedTo(pod("a1", "a", used, "all")))
				_, status := pl.PreFilter(t.Context(), framework.NewCycleState(), top, nil)
				if used == 4 && status.Message() != c.want || used == 3 && !status.IsSkip() && status.Message() != c.want {
					t.Errorf("%d used: %q, want %q", used, status.Message(), c.want)
				}
			}
		})
	}
}

func resizedTo(p *v1.Pod) *v1.Pod {
	p.ResourceVersion = fmt.Sprint(p.Spec.Containers[0].Resources.Requests)
	return p
}

// TestUnknownQueues: queues that do not exist leave nothing behind once their pods are gone, not even a metric.
func TestUnknownQueues(t *testing.T) {
	registerMetrics(&Dispatcher{})
	d := newDispatcher(t, 8, 9)
	before := len(d.book.Standings())
	waitDuration.WithLabelValues("typo-3").Observe(1) // it existed once
	for i := range 50 {
		p := pod("p", fmt.Sprint("typo-", i), 1, "")
		p.UID = p.UID + "x"
		d.seeAll(p)
		d.comes(p)
		d.lose(p)
	}
	d.clock.(*testingclock.FakeClock).Step(turnsEnd)
	d.expire()
	if got := len(d.book.Standings()); got != before {
		t.Errorf("%d queues are known, want %d", got, before)
	}
	if waitDuration.Delete(map[string]string{"queue": "typo-3"}) {
		t.Error("a queue that is gone has a metric")
	}
}

// put holds a node, and drop gives it back, whatever the reason of the hold.
func put(h *ledger.Shared, one hold.Hold) {
	if one.Reason == hold.Nomination {
		h.Nominate(one)
	} else {
		h.FollowPlan(one.Holder, nil, []hold.Hold{one})
	}
}

func drop(h *ledger.Shared, pod types.UID) {
	h.Release(pod)
	h.DropNomination(pod)
}
