package fairshare

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/plugins/gangpoint"
	"github.com/lockstep-sh/lockstep/plugins/internal/dispatch"
	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
	"github.com/lockstep-sh/lockstep/plugins/planner"
	"github.com/lockstep-sh/lockstep/plugins/victim"
)

func TestRounds(t *testing.T) {
	for sentence, c := range map[string]struct {
		queues    []dispatch.Queue
		pods      []*v1.Pod // running, or waiting without a node
		preemptor *v1.Pod
		nominated []types.UID
		ending    []types.UID
		gone      string   // no longer exists, which was not seen yet
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

// TestUncontested: what there is enough of for all does not keep a queue from giving back what is contested. A queue that
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
		15:  "", // 19 are asked for; a has no more than the 5 that it deserves
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

// TestCrowd: what a what-if removes counts where it was.
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
	planner.Ask(state)
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

// TestQueueGoneInASearch: the children of a queue may go between two computations of what it may lose.
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
