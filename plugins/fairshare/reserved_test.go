package fairshare

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
)

// covers holds one placement for the pods of these names.
type covers map[string]hold.ID

func (c covers) AwaitsReservation(*v1.Pod) bool { return false }

func (c covers) Covers(pods []*v1.Pod) (ids []hold.ID) {
	for _, one := range pods {
		id, ok := c[one.Name]
		if !ok {
			return nil
		}
		ids = append(ids, id)
	}
	return ids
}

func left(n int64) hold.Taken { return hold.Taken{Pods: 1, Request: gpus(n)} }

// used returns what a queue has.
func (d *Dispatcher) used(queue string) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.book.Standings()[queue].Running[gpu]
}

// TestChargesCount: what is held for pods to come counts as used by its queue, as much as is left of it, as long as it
// is held.
func TestChargesCount(t *testing.T) {
	d := newDispatcher(t, 8, 8, queueing.Queue{Name: "a"}, queueing.Queue{Name: "b"})
	d.Charge("before", pod("r", "a", 2, ""), "all", left(2))
	if got := d.used("a"); got != 0 {
		t.Errorf("a uses %d before anything is counted", got)
	}
	d.change(func() {
		d.usage.StartHeld()
	})
	step := func(sentence string, do func(), a, b int64) {
		t.Helper()
		do()
		if gotA, gotB := d.used("a"), d.used("b"); gotA != a || gotB != b {
			t.Errorf("%s: a uses %d, b %d; want %d and %d", sentence, gotA, gotB, a, b)
		}
	}
	step("what was held before", func() {}, 2, 0)
	step("another", func() { d.Charge("more", pod("r", "b", 3, ""), "all", left(3)) }, 2, 3)
	step("an owner uses a part", func() { d.Charge("more", pod("r", "b", 3, ""), "all", left(1)) }, 2, 1)
	step("and gives it back", func() { d.Charge("more", pod("r", "b", 3, ""), "all", left(3)) }, 2, 3)
	step("the queue of a namespace", func() {
		template := pod("r", "", 1, "")
		template.Namespace = "of-a"
		d.Charge("ns", template, "all", left(1))
	}, 3, 3)
	step("it ends", func() { d.Charge("more", nil, "", hold.Taken{}) }, 3, 0)
	step("that of another scheduler is not there to be shared", func() {
		template := pod("r", "a", 1, "")
		template.Spec.SchedulerName = "other"
		d.Charge("foreign", template, "all", left(4))
	}, 3, 0)
	if got := d.nodes.Total()[gpu]; got != 4 {
		t.Errorf("%d are there to be shared, want 4", got)
	}
	step("all end", func() {
		for _, id := range []hold.ID{"before", "ns", "foreign", "never-was"} {
			d.Charge(id, nil, "", hold.Taken{})
		}
	}, 0, 0)
	if got := d.nodes.Total()[gpu]; got != 8 || len(d.left()) > 0 {
		t.Errorf("%d are there to be shared, want 8; left %v", got, d.left())
	}
}

// TestClaimsAreNotHeld: what is held for a pod is not all that it asks for if it has ResourceClaims, too.
func TestClaimsAreNotHeld(t *testing.T) {
	d := newDispatcher(t, 8, 8, queueing.Queue{Name: "a", Capability: gpus(4)})
	d.usage.StartHeld()
	d.SetReserved(covers{"owner": "held"})
	owner := pod("owner", "a", 4, "")
	d.Charge("held", pod("r", "a", 4, ""), "all", left(4))
	if !d.covered(owner, []*v1.Pod{owner}) {
		t.Error("all that it requests is held, and it waits for a turn")
	}
	owner.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpus", ResourceClaimName: new("four")}}
	if d.covered(owner, []*v1.Pod{owner}) {
		t.Error("it needs no turn for the devices of its claim")
	}
}

// TestHeldPodsAreWithin: pods for which all is held keep the ceilings, and one more of their group does not.
func TestHeldPodsAreWithin(t *testing.T) {
	d := newDispatcher(t, 8, 8, queueing.Queue{Name: "a", Capability: gpus(4)})
	d.usage.StartHeld()
	d.SetReserved(covers{"p": "held-1", "q": "held-2"})
	p, q, more := pod("p", "a", 2, ""), pod("q", "a", 2, ""), pod("r", "a", 2, "")
	d.know(p, q, more)
	for _, one := range []*v1.Pod{p, q, more} {
		d.podSeen(one)
	}
	d.Charge("held-1", pod("r", "a", 2, ""), "all", left(2))
	d.Charge("held-2", pod("r", "a", 2, ""), "all", left(2))
	group := hold.Holder{Profile: profile, Group: "default/train"}
	for want, pods := range map[int][]*v1.Pod{2: {p, q}, 0: {p, q, more}} {
		if got := d.Within(group, pods); len(got) != want {
			t.Errorf("%d of %d pods are within the ceiling, want %d", len(got), len(pods), want)
		}
	}
}

// TestClosedQueueAdmitsNoOwners: an owner of what is held waits until its queue is open, and is called then. What comes
// in place of a pod that was moved does not wait.
func TestClosedQueueAdmitsNoOwners(t *testing.T) {
	d := newDispatcher(t, 8, 8, queueing.Queue{Name: "a", Closed: true})
	d.usage.StartHeld()
	d.SetReserved(covers{"owner": "held", "successor": "moved"})
	owner, successor := pod("owner", "a", 4, ""), pod("successor", "a", 4, "")
	d.know(owner, successor)
	d.Charge("held", pod("r", "a", 4, ""), "all", left(4))
	d.Charge("moved", placeOf("a", "before", 4), "all", left(4))
	d.podSeen(owner)
	d.podSeen(successor)
	if why := d.comes(owner); why == "" {
		t.Error("the owner comes in")
	}
	if why := d.comes(successor); why != "" {
		t.Errorf("the successor waits: %s", why)
	}
	d.calledNow()
	d.change(func() { d.setQueue(queueing.Queue{Name: "a"}) })
	d.callCovered()
	if got := d.calledNow(); got != "owner" {
		t.Errorf("called %q once the queue is open, want the owner", got)
	}
	if why := d.comes(owner); why != "" {
		t.Errorf("the owner waits: %s", why)
	}
}

// TestNoTurnForWhatIsHeld: a pod is admitted if everything that it asks for is held by its own queue, though the queue
// is at its ceiling; a pod for which another queue pays is not.
func TestNoTurnForWhatIsHeld(t *testing.T) {
	ceiling := queueing.Queue{Name: "a", Capability: gpus(4)}
	d := newDispatcher(t, 8, 8, ceiling, queueing.Queue{Name: "b", Capability: gpus(1)})
	d.usage.StartHeld()
	d.SetReserved(covers{"owner": "held", "of-b": "held"})
	owner, stranger, ofB := pod("owner", "a", 4, ""), pod("stranger", "a", 4, ""), pod("of-b", "b", 4, "")
	busy := pod("busy", "a", 1, "all")
	d.know(owner, stranger, ofB, busy)
	d.podSeen(busy)
	for _, one := range []*v1.Pod{owner, stranger, ofB} {
		d.podSeen(one)
		if one != stranger && d.comes(one) == "" {
			t.Errorf("%s comes in before anything is held", one.Name)
		}
		d.calledNow()
	}
	d.Charge("held", pod("r", "a", 4, ""), "all", left(4))
	d.callCovered()
	if got := d.calledNow(); got != "of-b owner" && got != "owner of-b" {
		t.Errorf("called %q once something is held", got)
	}
	if d.callCovered(); d.calledNow() != "" {
		t.Error("somebody is called again though nothing has changed")
	}
	d.Recheck()
	if d.callCovered(); d.calledNow() == "" {
		t.Error("nobody is called once others may own it")
	}
	if why := d.comes(owner); why != "" {
		t.Errorf("the owner waits: %s", why)
	}
	if d.limits(owner, false) != nil {
		t.Error("the owner is crowded")
	}
	for _, one := range []*v1.Pod{stranger, ofB} {
		if d.comes(one) == "" {
			t.Errorf("%s comes in", one.Name)
		}
	}
	d.Charge("held", nil, "", hold.Taken{})
	if _, ok := d.book.Counted("held"); ok {
		t.Error("what has ended is counted")
	}
}

// placeOf returns a pod as of a Reservation that holds some GPUs in a queue for a pod that moves.
func placeOf(queue, of string, n int) *v1.Pod {
	template := pod("r", queue, n, "")
	template.Annotations = map[string]string{v1alpha1.InPlaceOfAnnotation: of}
	return template
}

// TestPlaceOfOneThatLeaves: what a pod gives back as it moves is no room for others of its queue: the place that is
// held for it counts from then.
func TestPlaceOfOneThatLeaves(t *testing.T) {
	d := newDispatcher(t, 16, 8, queueing.Queue{Name: "a", Capability: gpus(4)})
	d.usage.StartHeld()
	moves, waits := pod("moves", "a", 4, "all"), pod("waits", "a", 4, "")
	d.seeAll(moves, waits)
	d.Charge("to", placeOf("a", "moves", 4), "all", left(4))
	if d.comes(waits) == "" {
		t.Fatal("the queue is full, and one comes in")
	}
	d.calledNow()
	d.lose(moves)
	if got := d.calledNow(); got != "" {
		t.Errorf("%s is called; the queue has 4 that are held, of 4", got)
	}
	if d.comes(waits) == "" {
		t.Error("one comes in; the queue has 4 that are held, of 4")
	}
}

// TestPlaceOnCordonedNode: what is held on a node that takes no more pods is there to be shared, as what runs there is:
// it counts as used, and would otherwise be missing to the others.
func TestPlaceOnCordonedNode(t *testing.T) {
	d := newDispatcher(t, 8, 8, queueing.Queue{Name: "a"})
	d.usage.StartHeld()
	d.Charge("r", pod("r", "a", 4, ""), "all", left(4))
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: v1.NodeSpec{Unschedulable: true}}
	node.Status.Allocatable = gpus(8).List()
	d.nodeSeen(node)
	d.mu.Lock()
	defer d.mu.Unlock()
	if used, total := d.book.Standings()["a"].Running[gpu], d.nodes.Total()[gpu]; used != 4 || total != 4 {
		t.Errorf("a uses %d of %d, want 4 of 4", used, total)
	}
}
