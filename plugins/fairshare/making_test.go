package fairshare

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
)

// TestWayIsMade: a nominated pod in a queue that has its share waits until its victims have ended, though a node has
// room.
func TestWayIsMade(t *testing.T) {
	for _, sentence := range []string{"in no gang", "in a gang", "in a gang, by itself"} {
		t.Run(sentence, func(t *testing.T) {
			d := newDispatcher(t, 8, 9, queueing.Queue{Name: "a"}, queueing.Queue{Name: "b"})
			d.Preempts(profile)
			top := pod("top", "a", 1, "")
			top.Spec.Priority = ptr.To(int32(9))
			holder := hold.Holder{Profile: profile, Group: hold.SinglePod(top.UID)}
			if sentence != "in no gang" {
				top.Labels["gang"] = "g"
				if sentence == "in a gang" {
					holder = hold.Holder{Profile: profile, Group: "g"}
				}
				d.gangs = &hoarding{pods: []*v1.Pod{top}}
			}
			ending := map[hold.Holder]int{}
			d.victims = func(holder hold.Holder) int { return ending[holder] }
			all := []*v1.Pod{top, pod("b1", "b", 5, "")}
			for i := range 5 {
				all = append(all, pod(fmt.Sprint("a", i), "a", 1, "all"))
			}
			d.seeAll(all...)
			pl := &FairShare{dispatcher: d}
			begins := func() *fwk.Status {
				_, status := pl.PreFilter(t.Context(), framework.NewCycleState(), top, nil)
				return status
			}
			if why := d.comes(top); why != "" {
				t.Fatalf("it waits for others to make way: %s", why)
			}
			if status := begins(); status.Code() != fwk.Unschedulable {
				t.Fatalf("nobody has to make way: %v", status)
			}
			ending[holder] = 1
			nominated := top.DeepCopy()
			nominated.Status.NominatedNodeName = "all"
			if d.Failed(top, unfit(fwk.Unschedulable)) {
				d.Again(top)
			}
			d.seeAll(nominated)
			top = nominated
			waits := func(sentence string, used int) {
				t.Helper()
				stands := "at"
				if used > 4 {
					stands = "above"
				}
				if why := d.comes(top); !strings.HasPrefix(why, fmt.Sprintf("queue %q is %s its share: %d ", "a", stands, used)) {
					t.Errorf("%s: it hears %q", sentence, why)
				}
				if d.calledNow() != "" {
					t.Errorf("%s: it is called", sentence)
				}
				if status := begins(); status.Code() != fwk.Unschedulable {
					t.Errorf("%s: it is placed: %v", sentence, status)
				}
			}
			waits("one is to end", 5)
			d.lose(all[2])
			waits("not all have heard that it has ended", 4)
			delete(ending, holder)
			if called := d.calledNow(); called != "top" {
				t.Errorf("one has made way: called %q", called)
			}
			if why, status := d.comes(top), begins(); why != "" || status.Code() == fwk.Unschedulable {
				t.Errorf("one has made way: it hears %q and %v", why, status)
			}
		})
	}
}

// TestWayIsMadeOnNodes: a pod that is nominated within the share of its queue takes whatever place is free first.
func TestWayIsMadeOnNodes(t *testing.T) {
	d := newDispatcher(t, 8, 1, queueing.Queue{Name: "a"}, queueing.Queue{Name: "b"})
	d.victims = func(hold.Holder) int { return 1 }
	top := pod("top", "a", 1, "")
	top.Status.NominatedNodeName = "all"
	d.seeAll(pod("b1", "b", 5, ""), pod("a1", "a", 3, "all"), top)
	if why := d.comes(top); why != "" {
		t.Errorf("it waits: %s", why)
	}
	if c := d.limits(top, false); c != nil {
		t.Errorf("it is refused: %s", c.why())
	}
}
