package fairshare

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/planning/victim"
	"github.com/lockstep-sh/lockstep/pkg/planning/whatif"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

func TestRounds(t *testing.T) {
	for sentence, c := range map[string]struct {
		queues    []queueing.Queue
		pods      []*v1.Pod // running, or waiting without a node
		preemptor *v1.Pod
		nominated []types.UID
		ending    []types.UID
		gone      string   // no longer exists, which was not seen yet
		permitted string   // in the round of reclaiming; "none" where there is none
		granted   []string // by the strict budget, and by the one with parts, in the order of their names
	}{
		"beyond what a queue deserves": {
			queues: []queueing.Queue{{Name: "a"}, {Name: "b"}},
			pods:   []*v1.Pod{pod("a1", "a", 2, "all"), pod("a2", "a", 2, "all"), pod("a3", "a", 2, "all"), pod("a4", "a", 2, "all")}, preemptor: pod("b1", "b", 2, ""),
			permitted: "a1 a2 a3 a4", granted: []string{"a1", "a1"}, // b deserves what it asks for
		},
		"not what is ending already": {
			queues: []queueing.Queue{{Name: "a"}, {Name: "b"}},
			pods:   []*v1.Pod{pod("a1", "a", 2, "all"), pod("a2", "a", 2, "all"), pod("a3", "a", 2, "all"), pod("a4", "a", 2, "all")}, preemptor: pod("b1", "b", 2, ""), ending: []types.UID{"a4"},
			permitted: "a1 a2 a3 a4", granted: []string{"", ""},
		},
		"not what is gone, though it counts": {
			queues: []queueing.Queue{{Name: "a"}, {Name: "b"}},
			pods:   []*v1.Pod{pod("a1", "a", 2, "all"), pod("a2", "a", 2, "all"), pod("a3", "a", 2, "all"), pod("a4", "a", 2, "all")}, preemptor: pod("b1", "b", 2, ""), gone: "a4",
			permitted: "a1 a2 a3 a4", granted: []string{"", ""},
		},
		"not for more than the queue deserves": {
			queues: []queueing.Queue{{Name: "a"}, {Name: "b"}},
			pods:   []*v1.Pod{pod("a1", "a", 4, "all"), pod("b0", "b", 4, "all"), pod("a2", "a", 4, "")}, preemptor: pod("b1", "b", 1, ""), permitted: "none",
		},
		"what is nominated counts": {
			queues: []queueing.Queue{{Name: "a"}, {Name: "b"}},
			pods:   []*v1.Pod{pod("a1", "a", 8, "all"), pod("b0", "b", 4, "")}, nominated: []types.UID{"b0"}, preemptor: pod("b1", "b", 1, ""), permitted: "none",
		},
		"a part that is too large where shares are by weight": {
			queues: []queueing.Queue{{Name: "a"}, {Name: "b"}}, pods: []*v1.Pod{pod("a1", "a", 8, "all")}, preemptor: pod("b1", "b", 4, ""),
			permitted: "a1", granted: []string{"", ""},
		},
		"a part that is too large where the share is stated": {
			queues: []queueing.Queue{{Name: "a", Deserved: gpus(3)}, {Name: "b", Deserved: gpus(5)}}, pods: []*v1.Pod{pod("a1", "a", 4, "all"), pod("a2", "a", 3, "all")}, preemptor: pod("b1", "b", 4, ""),
			permitted: "a1 a2", granted: []string{"a1", "a1"},
		},
		"the only part is too large": {
			queues: []queueing.Queue{{Name: "a", Deserved: gpus(3)}, {Name: "b", Deserved: gpus(5)}}, pods: []*v1.Pod{pod("a1", "a", 7, "all")}, preemptor: pod("b1", "b", 4, ""),
			permitted: "a1", granted: []string{"a1", "a1"}, // with it a overshoots
		},
		"what is kept stays": {
			queues: []queueing.Queue{{Name: "a", NotReclaimable: true}, {Name: "b"}}, pods: []*v1.Pod{pod("a1", "a", 8, "all")}, preemptor: pod("b1", "b", 1, ""), permitted: "",
			granted: []string{"", ""},
		},
		"from the parent's own pods": {
			queues: []queueing.Queue{{Name: "p"}, {Name: "child", Parent: "p"}},
			pods:   []*v1.Pod{pod("p-1", "p", 2, "all"), pod("p-2", "p", 2, "all"), pod("p-3", "p", 4, "all")}, preemptor: pod("c-1", "child", 4, ""),
			permitted: "p-1 p-2 p-3", granted: []string{"p-1 p-2", "p-1 p-2"},
		},
		"from a child, for the parent's own pods": {
			queues: []queueing.Queue{{Name: "p"}, {Name: "child", Parent: "p", Weight: 3}, {Name: "other"}},
			pods:   []*v1.Pod{pod("c-1", "child", 2, "all"), pod("c-2", "child", 2, "all"), pod("c-3", "child", 3, "all"), pod("o-1", "other", 1, "all")}, preemptor: pod("p-1", "p", 1, ""),
			permitted: "c-1 c-2 c-3", granted: []string{"", ""}, // 6 of the 7 are what it deserves
		},
		"from siblings only, where the parent has its share": {
			queues: []queueing.Queue{{Name: "p"}, {Name: "p1", Parent: "p"}, {Name: "p2", Parent: "p"}, {Name: "q"}},
			pods:   []*v1.Pod{pod("p1-1", "p1", 2, "all"), pod("p1-2", "p1", 2, "all"), pod("q-1", "q", 4, "all")}, preemptor: pod("p2-1", "p2", 2, ""),
			permitted: "p1-1 p1-2", granted: []string{"p1-1", "p1-1"},
		},
		"from siblings, and from afar what the parent lacks": {
			queues: []queueing.Queue{{Name: "d1", Deserved: gpus(0)}, {Name: "x", Parent: "d1"}, {Name: "d2", Deserved: gpus(8)}, {Name: "y", Parent: "d2", Deserved: gpus(0)}, {Name: "z", Parent: "d2", Deserved: gpus(8)}},
			pods:   []*v1.Pod{pod("x-1", "x", 2, "all"), pod("x-2", "x", 2, "all"), pod("y-1", "y", 2, "all"), pod("y-2", "y", 2, "all")}, preemptor: pod("z-1", "z", 8, ""),
			permitted: "x-1 x-2 y-1 y-2", granted: []string{"x-1 x-2 y-1 y-2", "x-1 x-2 y-1 y-2"},
		},
		"from afar no more than the parent lacks": {
			queues: []queueing.Queue{{Name: "d1", Deserved: gpus(0)}, {Name: "x", Parent: "d1"}, {Name: "d2", Deserved: gpus(6)}, {Name: "y", Parent: "d2", Deserved: gpus(0)}, {Name: "z", Parent: "d2", Deserved: gpus(6)}},
			pods:   []*v1.Pod{pod("x-1", "x", 2, "all"), pod("x-2", "x", 2, "all"), pod("y-1", "y", 4, "all")}, preemptor: pod("z-1", "z", 6, ""),
			permitted: "x-1 x-2 y-1", granted: []string{"x-1 y-1", "x-1 y-1"},
		},
		"one piece, of which there is enough in all": {
			queues: []queueing.Queue{{Name: "a", Deserved: gpus(2)}, {Name: "b", Deserved: gpus(2)}},
			pods:   []*v1.Pod{pod("a1", "a", 2, "all"), pod("a2", "a", 2, "all")}, preemptor: pod("b1", "b", 2, ""),
			permitted: "a1 a2", granted: []string{"a1", "a1"},
		},
		"no piece of what a queue deserves": {
			queues: []queueing.Queue{{Name: "a", Deserved: gpus(4)}, {Name: "b", Deserved: gpus(2)}},
			pods:   []*v1.Pod{pod("a1", "a", 2, "all"), pod("a2", "a", 2, "all")}, preemptor: pod("b1", "b", 2, ""),
			permitted: "", granted: []string{"", ""},
		},
		"no piece for a queue that borrows": {
			queues: []queueing.Queue{{Name: "a", Deserved: gpus(2)}, {Name: "b", Deserved: gpus(1)}},
			pods:   []*v1.Pod{pod("a1", "a", 2, "all"), pod("a2", "a", 2, "all")}, preemptor: pod("b1", "b", 2, ""),
			permitted: "a1 a2", granted: []string{"", ""},
		},
		"a part of a share by weight that the size of pods does not divide": {
			queues: []queueing.Queue{{Name: "a"}, {Name: "b"}, {Name: "c"}},
			pods:   []*v1.Pod{pod("a1", "a", 2, "all"), pod("a2", "a", 2, "all"), pod("b1", "b", 2, "all"), pod("b2", "b", 2, "all")}, preemptor: pod("c1", "c", 2, ""),
			permitted: "a1 a2 b1 b2", granted: []string{"a2", "a1"},
			// a comes below its 3 by 1, first by the one that overshoots, and b may not as well
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			d := newDispatcher(t, 8, 9, c.queues...)
			var running []*v1.Pod
			for _, p := range append(slices.Clone(c.pods), c.preemptor) {
				d.seeAll(p)
				if p.Name == c.gone {
					_ = d.pods.(podLister).store.Delete(p)
				}
				if p.Spec.NodeName != "" {
					running = append(running, p)
				}
			}
			for _, uid := range c.nominated {
				d.holds.Nominate(hold.Hold{For: uid, Holder: hold.Holder{Profile: profile, Group: string(uid)}, Node: "all"})
			}
			rounds := d.rounds(extensionpoints.Gang{Pods: []*v1.Pod{c.preemptor}, Min: 1})
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
					if !ending[p.UID] && budget.Take(gang, []victim.Pod{{UID: p.UID, Request: victim.Vector(resource.OfPod(p))}}) {
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

// TestRoundsBeyondTheMinimum: members beyond the minimum of their gang take back surplus, and preempt nothing.
func TestRoundsBeyondTheMinimum(t *testing.T) {
	d := newDispatcher(t, 8, 9, queueing.Queue{Name: "a"}, queueing.Queue{Name: "b"})
	extra := pod("b1", "b", 2, "")
	d.seeAll(pod("a1", "a", 4, "all"), pod("a2", "a", 4, "all"), extra)
	rounds := d.rounds(extensionpoints.Gang{Pods: []*v1.Pod{extra}, Min: 1, Beyond: true})
	if len(rounds) == 0 || slices.ContainsFunc(rounds, func(r extensionpoints.Round) bool { return r.Name != "reclaim" || !r.Surplus }) {
		t.Errorf("rounds of a member beyond the minimum: %+v", rounds)
	}
}

// oneGang knows what runs of one gang.
type oneGang struct {
	noGangs
	running gangstate.RunningGang
}

func (r oneGang) Running(_ string, key gangspec.Key) []gangstate.RunningGang {
	if key != r.running.Key {
		return nil
	}
	return []gangstate.RunningGang{r.running}
}

// space is a trial in which so much is lacking.
type space struct{ lacks int64 }

func (s *space) count(pods []victim.Pod, n int64) error {
	for _, pod := range pods {
		s.lacks -= n * pod.Request[gpu]
	}
	return nil
}

func (s *space) Remove(pods []victim.Pod) error  { return s.count(pods, 1) }
func (s *space) Restore(pods []victim.Pod) error { return s.count(pods, -1) }
func (s *space) MayFit() bool                    { return s.lacks <= 0 }
func (s *space) Fits() (bool, error)             { return s.lacks <= 0, nil }

// TestTheJobThatOvershootsGoesFirst: of the jobs of a queue the one goes with which it got more than it deserves, if
// that is enough.
func TestTheJobThatOvershootsGoesFirst(t *testing.T) {
	since := func(p *v1.Pod, second int64) *v1.Pod {
		bound := v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: metav1.Unix(second, 0)}
		p.Status.Conditions = []v1.PodCondition{bound}
		return p
	}
	member := func(name string, second int64) *v1.Pod {
		p := since(pod(name, "a", 1, "all"), second)
		p.Annotations = map[string]string{v1alpha1.GangNameAnnotation: "g", v1alpha1.MinAvailableAnnotation: "2"}
		return p
	}
	for sentence, c := range map[string]struct {
		pods         []*v1.Pod
		assumed      types.UID
		overshooting string
		goes         string // for a pod of 1
	}{
		"the one that came last, not the one that is small": {
			pods: []*v1.Pod{since(pod("x", "a", 1, "all"), 1), since(pod("y", "a", 2, "all"), 2)}, overshooting: "y", goes: "y",
		},
		"also where it came first": {
			pods: []*v1.Pod{since(pod("x", "a", 4, "all"), 1), since(pod("y", "a", 1, "all"), 2)}, overshooting: "x y", goes: "y",
		},
		"not one that has run for longer than is known": {
			pods: []*v1.Pod{pod("y", "a", 2, "all"), since(pod("x", "a", 1, "all"), 2)}, overshooting: "x", goes: "x",
		},
		"one that is being bound came last": {
			pods: []*v1.Pod{since(pod("x", "a", 2, "all"), 1), pod("y", "a", 2, "")}, assumed: "y", overshooting: "y", goes: "y",
		},
		"members beyond a minimum, not those that reach it, though one of these came late": {
			pods:         []*v1.Pod{member("g1", 4), member("g2", 1), member("g3", 3), since(pod("x", "a", 1, "all"), 2)},
			overshooting: "g1 x", goes: "g1",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			a, b := queueing.Queue{Name: "a", Deserved: gpus(2)}, queueing.Queue{Name: "b", Deserved: gpus(2)}
			d := newDispatcher(t, 5, 9, a, b)
			preemptor := pod("b1", "b", 1, "")
			all := append(slices.Clone(c.pods), preemptor, pod("rest", "b", 1, "all"), pod("more", "a", 5, ""))
			gangs := map[string]*victim.Gang{}
			for _, p := range all {
				d.know(p)
				if p.UID == c.assumed {
					d.assumed[p.UID] = "all"
				}
				d.podSeen(p)
			}
			known := oneGang{running: gangstate.RunningGang{Key: gangspec.Key{Namespace: "default", Name: "g"}, Min: 2}}
			for _, p := range c.pods {
				id, least := p.Name, 1
				if d.usage.GangOf(p) != "" {
					known.running.Running = append(known.running.Running, gangstate.Placed{Pod: p})
					id, least = "g", 2
				}
				if gangs[id] == nil {
					gangs[id] = &victim.Gang{ID: id, Queue: "a", Min: least}
				}
				gangs[id].Pods = append(gangs[id].Pods, victim.Pod{UID: p.UID, Request: victim.Vector(resource.OfPod(p)), Local: true})
			}
			d.gangs = known
			var overshooting []string
			for uid := range d.overshooting(d.claim(extensionpoints.Gang{Pods: []*v1.Pod{preemptor}, Min: 1}, queueing.Needs{"b": gpus(1)}), nil) {
				overshooting = append(overshooting, string(uid))
			}
			slices.Sort(overshooting)
			if got := strings.Join(overshooting, " "); got != c.overshooting {
				t.Errorf("overshooting: %q, want %q", got, c.overshooting)
			}
			round := d.rounds(extensionpoints.Gang{Pods: []*v1.Pod{preemptor}, Min: 1})[1]
			problem := victim.Problem{Need: gpus(1), Order: round.Order}
			problem.Budget = func() victim.Budget { return round.Tiers[0].Budget(nil) }
			for _, g := range gangs {
				problem.Gangs = append(problem.Gangs, *g)
			}
			selection, found, err := problem.Select(&space{lacks: 1})
			if err != nil || !found {
				t.Fatalf("found %v: %v", found, err)
			}
			var goes []string
			for _, p := range selection.Pods() {
				goes = append(goes, string(p.UID))
			}
			if got := strings.Join(goes, " "); got != c.goes {
				t.Errorf("%q goes, want %q", got, c.goes)
			}
		})
	}
}

// TestUncontested: what there is enough of for all does not keep a queue from giving back what is contested. A queue
// that has nothing of that gives nothing.
func TestUncontested(t *testing.T) {
	const cpu = v1.ResourceCPU
	d := newDispatcher(t, 0, 9, queueing.Queue{Name: "a"}, queueing.Queue{Name: "b"}, queueing.Queue{Name: "c"})
	with := func(name, queue string, gpus, cpus int, on string) *v1.Pod {
		p := pod(name, queue, gpus, on)
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{cpu: *apiresource.NewQuantity(int64(cpus), apiresource.DecimalSI)}
		if gpus > 0 {
			p.Spec.Containers[0].Resources.Requests[gpu] = *apiresource.NewQuantity(int64(gpus), apiresource.DecimalSI)
		}
		return p
	}
	pods := []*v1.Pod{with("a1", "a", 4, 2, "all"), with("a2", "a", 4, 2, "all"), with("plain", "a", 0, 1, "all"), with("b1", "b", 4, 5, ""), with("c1", "c", 0, 9, "")}
	d.seeAll(pods...)
	for cpus, want := range map[int64]string{
		100: "a1",
		15:  "", // 19 are asked for; a has no more than the 5 that it deserves
	} {
		d.has(queueing.Vector{gpu: 8, cpu: cpus * 1000})
		rounds := d.rounds(extensionpoints.Gang{Pods: pods[3:4], Min: 1})
		if len(rounds) < 2 {
			t.Errorf("%d CPUs: nothing may be reclaimed", cpus)
			continue
		}
		tier := rounds[1].Tiers[0]
		budget := tier.Budget(nil)
		var granted []string
		for _, p := range pods[:3] {
			if tier.Permits(p) && budget.Take(&victim.Gang{ID: p.Name, Queue: "a", Min: 1}, []victim.Pod{{UID: p.UID, Request: victim.Vector(resource.OfPod(p))}}) {
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
	d := newDispatcher(t, 9, 9, queueing.Queue{Name: "p", Capability: gpus(8)}, queueing.Queue{Name: "a", Parent: "p"}, queueing.Queue{Name: "b", Parent: "p"})
	d.Preempts(profile)
	top := pod("top", "a", 2, "")
	top.Spec.Priority = ptr.To(int32(9))
	d.seeAll(pod("a1", "a", 2, "all"), pod("a2", "a", 2, "all"), pod("b1", "b", 4, "all"), pod("b2", "b", 4, ""), top)
	if why := d.comes(top); why != "" {
		t.Fatalf("it waits for others to make way: %s", why)
	}
	pl := &FairShare{dispatcher: d}
	state := framework.NewCycleState()
	if _, status := pl.PreFilter(t.Context(), state, top, nil); status.Code() != fwk.Unschedulable {
		t.Errorf("it is placed before others have made way: %v", status)
	}
	whatif.MarkSimulated(state)
	if _, status := pl.PreFilter(t.Context(), state, top, nil); !status.IsSuccess() {
		t.Fatalf("nobody may ask what if: %v", status)
	}
	step := func(sentence string, do func(context.Context, fwk.CycleState, *v1.Pod, fwk.PodInfo, fwk.NodeInfo) *fwk.Status, name string, fits bool) {
		t.Helper()
		info, err := framework.NewPodInfo(pod(name, "", 1, ""))
		must.Succeed(t, err)
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

// TestEvictionsForAll: a gang of which a part fits is judged with all of it as soon as a what-if removes any pod, also
// one that is in no queue.
func TestEvictionsForAll(t *testing.T) {
	pl, state := &FairShare{dispatcher: newDispatcher(t, 9, 9)}, framework.NewCycleState()
	all := []queueing.Bound{{Reason: queueing.Capability, Queue: "q", Resource: gpu, Used: 5, Need: 4, Most: 6}}
	state.Write(limitsKey, &limits{ofAll: [][]queueing.Bound{all}, gone: map[types.UID]bool{}})
	info, err := framework.NewPodInfo(pod("foreign", "", 1, ""))
	must.Succeed(t, err)
	for _, step := range []struct {
		do   func(context.Context, fwk.CycleState, *v1.Pod, fwk.PodInfo, fwk.NodeInfo) *fwk.Status
		fits bool
	}{{nil, true}, {pl.SimulateRemoveTask, false}, {pl.SimulateAddTask, true}} {
		if step.do != nil {
			step.do(t.Context(), state, nil, info, nil)
		}
		if status := pl.SimulateAllocatable(t.Context(), state, nil); status.IsSuccess() != step.fits {
			t.Errorf("it fits: %v, want %t", status, step.fits)
		}
	}
}

// TestQueueGoneInASearch: the children of a queue may go between two computations of what it may lose.
func TestQueueGoneInASearch(t *testing.T) {
	d := newDispatcher(t, 10, 9, queueing.Queue{Name: "p"}, queueing.Queue{Name: "c", Parent: "p"}, queueing.Queue{Name: "q"})
	d.seeAll(pod("own", "p", 10, "all"), pod("w", "q", 5, ""))
	w := pod("w", "q", 5, "")
	c := d.claim(extensionpoints.Gang{Pods: []*v1.Pod{w}, Min: 1}, queueing.Needs{"q": queueing.Vector{gpu: 5}})
	if c == nil {
		t.Fatal("no claim")
	}
	d.change(func() { d.book.RemoveQueue("c") })
	if d.budget(c, map[types.UID]bool{"own": true}, nil, false).Take("p", gpus(10), false) {
		t.Error("what is ending is taken once more")
	}
}
