package fairshare

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
)

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
	d.know(moves, waits)
	d.podSeen(moves)
	d.podSeen(waits)
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

// TestPlaceOfOneThatIsSeenLater: after a restart Reservations may be read before pods.
func TestPlaceOfOneThatIsSeenLater(t *testing.T) {
	d := newDispatcher(t, 16, 8, queueing.Queue{Name: "a"})
	d.usage.StartHeld()
	moves := pod("moves", "a", 4, "all")
	d.know(moves)
	d.Charge("to", placeOf("a", "moves", 4), "all", left(4))
	d.podSeen(moves)
	if got := d.used("a"); got != 4 {
		t.Errorf("a uses %d, want 4", got)
	}
}

// TestPlaceOfOneThatChangesQueues: a place counts where the pod does not.
func TestPlaceOfOneThatChangesQueues(t *testing.T) {
	d := newDispatcher(t, 16, 8, queueing.Queue{Name: "a"}, queueing.Queue{Name: "b"})
	d.usage.StartHeld()
	moves := pod("moves", "a", 4, "all")
	d.know(moves)
	d.podSeen(moves)
	d.Charge("to", placeOf("a", "moves", 4), "all", left(4))
	now := pod("moves", "b", 4, "all")
	now.ResourceVersion = "2"
	d.know(now)
	d.podSeen(now)
	if a, b := d.used("a"), d.used("b"); a != 4 || b != 4 {
		t.Errorf("a uses %d, b %d; want 4 and 4", a, b)
	}
}

// TestPlaceThatIsLarger: what is held in place of a pod beyond what the pod has counts in any case.
func TestPlaceThatIsLarger(t *testing.T) {
	d := newDispatcher(t, 32, 8, queueing.Queue{Name: "a", Capability: gpus(4)})
	d.usage.StartHeld()
	moves := pod("moves", "a", 1, "all")
	d.know(moves)
	d.podSeen(moves)
	d.Charge("one", placeOf("a", "moves", 4), "all", left(4))
	d.Charge("two", placeOf("a", "moves", 4), "all", left(4))
	if got := d.used("a"); got != 8 {
		t.Errorf("a uses %d; want 8: 1 that runs, and 4+4 that are held, less 1 that is held in its place", got)
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
