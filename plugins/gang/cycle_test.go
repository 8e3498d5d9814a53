package gang

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/admission/positions"
	"github.com/lockstep-sh/lockstep/pkg/planning/whatif"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// run runs scheduling cycles, as kube-scheduler does, for pods that may enter the
// queue, until there are none left. It returns where they are, and how many
// cycles failed.
func (s *stage) run(t *testing.T, pods []*v1.Pod) (at map[types.UID]string, failed int) {
	t.Helper()
	s.gangs.UpdateGangs(s.ctx, func(g *gangstate.Gangs, now time.Time) gangstate.Effects { return g.Open(now) })
	for _, pod := range pods {
		s.podSeen(s.ctx, pod)
	}
	at = map[types.UID]string{}
	for range 20 * len(pods) {
		var queue []*v1.Pod
		for _, pod := range pods {
			if at[pod.UID] == "" && s.PreEnqueue(s.ctx, pod).IsSuccess() {
				queue = append(queue, pod)
			}
		}
		if len(queue) == 0 {
			return at, failed
		}
		next := slices.MinFunc(queue, s.compare)
		if node := s.cycle(t, next); node != "" {
			at[next.UID] = node
		} else {
			failed++
		}
	}
	t.Fatalf("no end to it after %d cycles that came to nothing", failed)
	return nil, 0
}

// compare orders pods as the queue does.
func (s *stage) compare(a, b *v1.Pod) int {
	x, y := positions.Entry{UID: a.UID, Priority: corev1helpers.PodPriority(a)}, positions.Entry{UID: b.UID, Priority: corev1helpers.PodPriority(b)}
	switch {
	case s.order.Less(x, y):
		return -1
	case s.order.Less(y, x):
		return 1
	}
	return 0
}

// cycle runs one scheduling cycle. It returns the node that the pod is held on.
func (s *stage) cycle(t *testing.T, pod *v1.Pod) string {
	t.Helper()
	s.room.HandleCycleStart(pod)
	fw, logger := s.scheduler.Profiles[testProfile], klog.FromContext(s.ctx)
	must.Succeed(t, s.scheduler.Cache.UpdateSnapshot(logger, s.snapshot))
	state := framework.NewCycleState()
	statuses := framework.NewDefaultNodeToStatus()
	result, status, _ := fw.RunPreFilterPlugins(s.ctx, state, pod)
	nodes, err := s.snapshot.List()
	if err != nil || status.Code() == fwk.Error {
		t.Fatal(err, status)
	}
	for _, info := range nodes {
		name := info.Node().Name
		if !status.IsSuccess() || !result.AllNodes() && !result.NodeNames.Has(name) {
			continue
		}
		if refused := fw.RunFilterPluginsWithNominatedPods(s.ctx, state, pod, info); !refused.IsSuccess() {
			statuses.Set(name, refused)
			continue
		}
		assumed := pod.DeepCopy()
		assumed.Spec.NodeName = name
		s.scheduler.SchedulingQueue.DeleteNominatedPodIfExists(assumed)
		must.Succeed(t, s.scheduler.Cache.AssumePod(logger, assumed))
		if status := fw.RunReservePluginsReserve(s.ctx, state, assumed, name); !status.IsSuccess() {
			t.Fatal(status)
		}
		if _, status := fw.RunPermitPlugins(s.ctx, state, assumed, name); !status.IsSuccess() && !status.IsWait() {
			t.Fatal(status)
		}
		return name
	}
	fw.RunPostFilterPlugins(s.ctx, state, pod, statuses)
	return ""
}

// shuffleUIDs gives pods other UIDs, in random order.
func shuffleUIDs(rng *rand.Rand, pods []*v1.Pod) []*v1.Pod {
	order := rng.Perm(len(pods))
	for i, pod := range pods {
		pod.UID = types.UID(fmt.Sprintf("uid-%04d", order[i]))
	}
	return pods
}

// constraints are constraints that members have on each other.
var constraints = map[string]func(i int, pod *st.PodWrapper){
	"each on a node of its own": func(_ int, pod *st.PodWrapper) {
		pod.PodAntiAffinityIn("app", v1.LabelHostname, []string{"train"}, st.PodAntiAffinityWithRequiredReq)
	},
	"all in one zone": func(_ int, pod *st.PodWrapper) {
		pod.PodAffinityIn("app", v1.LabelTopologyZone, []string{"train"}, st.PodAffinityWithRequiredReq)
	},
	"spread over zones": func(_ int, pod *st.PodWrapper) {
		pod.SpreadConstraint(1, v1.LabelTopologyZone, v1.DoNotSchedule, st.MakeLabelSelector().Label("app", "train").Obj(), nil, nil, nil, nil)
	},
	"spread over nodes": func(_ int, pod *st.PodWrapper) {
		pod.SpreadConstraint(1, v1.LabelHostname, v1.DoNotSchedule, st.MakeLabelSelector().Label("app", "train").Obj(), nil, nil, nil, nil)
	},
	"workers near a leader, which is larger": func(i int, pod *st.PodWrapper) {
		if i == 9 {
			pod.Label("role", "leader").Req(map[v1.ResourceName]string{gpu: "2"})
		} else {
			pod.PodAffinityIn("role", v1.LabelTopologyZone, []string{"leader"}, st.PodAffinityWithRequiredReq)
		}
	},
	"spread over zones, in shapes of which the larger come last": func(i int, pod *st.PodWrapper) {
		pod.SpreadConstraint(1, v1.LabelTopologyZone, v1.DoNotSchedule, st.MakeLabelSelector().Label("app", "train").Obj(), nil, nil, nil, nil)
		if i > 5 {
			pod.Req(map[v1.ResourceName]string{gpu: "1"})
		}
	},
	"one host port": func(_ int, pod *st.PodWrapper) { pod.HostPort(8080) },
}

// TestPlansSurviveTheirCycles: whatever constraints members have on each other, all get the
// node that their plan gives them, in whatever order they come.
func TestPlansSurviveTheirCycles(t *testing.T) {
	for sentence, change := range constraints {
		t.Run(sentence, func(t *testing.T) {
			for seed := range uint64(5) {
				s := newStage(t, makeNodes(16, 4))
				members := shuffleUIDs(rand.New(rand.NewPCG(seed, 1)), makeMembers("train", 14, 1, change))
				at, failed := s.run(t, members)
				if len(at) != len(members) || failed > 1 { // the leader's own cycle may have failed
					t.Errorf("seed %d: %d of %d members are held; %d cycles came to nothing", seed, len(at), len(members), failed)
				}
			}
		})
	}
}

// TestNominatedMembersAreTheirGangs: members that are nominated to a node are
// planned as if they were not, and the nominations follow the plan.
func TestNominatedMembersAreTheirGangs(t *testing.T) {
	for sentence, c := range map[string]struct {
		nominated []string // by member; each takes a whole node
		strangers int      // priority of a pod that is nominated to node-0000
		want      int
	}{
		"each to a node of its own":                      {nominated: []string{"node-0001", "node-0000"}, want: 2},
		"both to the same":                               {nominated: []string{"node-0000", "node-0000"}, want: 2},
		"one of them":                                    {nominated: []string{"", "node-0000"}, want: 2},
		"to a node that is gone":                         {nominated: []string{"gone", "gone"}, want: 2},
		"a stranger that is nominated stands in the way": {nominated: []string{"node-0001", "node-0000"}, strangers: 1},
		"unless it is of lower priority":                 {nominated: []string{"node-0001", "node-0000"}, strangers: -1, want: 2},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t, makeNodes(2, 2))
			s.open()
			members := makeMembers("train", 2, 8, nil)
			for i, node := range c.nominated {
				members[i].Status.NominatedNodeName = node
			}
			pods := members
			if c.strangers != 0 {
				pods = append(pods, st.MakePod().Namespace("default").Name("stranger").UID("stranger").SchedulerName(testProfile).
					Priority(int32(c.strangers)).NominatedNodeName("node-0000").Req(map[v1.ResourceName]string{gpu: "8"}).Obj())
			}
			known := s.fw.SharedInformerFactory().Core().V1().Pods().Informer().GetIndexer()
			s.see(pods...)
			for _, pod := range pods {
				must.Succeed(t, known.Add(pod))
				s.scheduler.SchedulingQueue.Add(s.ctx, pod)
			}
			if at, failed := s.run(t, members); len(at) != c.want || c.want > 0 && failed > 0 {
				t.Errorf("held on %v, after %d cycles that came to nothing, want %d", at, failed, c.want)
			}
		})
	}
}

// TestNothingElsewhereWhileRoomIsMade: a NonStrict gang for which room is made takes no part of its minimum elsewhere,
// since it would give up the room. It takes the part for which no room is made, and keeps the room for the rest.
func TestNothingElsewhereWhileRoomIsMade(t *testing.T) {
	for sentence, c := range map[string]struct {
		nominated []string // by member
		want      int      // members for which other places are held
		keep      []string // the nominations after that, by member
	}{
		"no room is made":                {want: 1},
		"room is made on two nodes":      {nominated: []string{"node-0000", "node-0001"}, keep: []string{"node-0000", "node-0001"}},
		"room is made for one of them":   {nominated: []string{"", "node-0001"}, want: 1, keep: []string{"node-0002", "node-0001"}},
		"it is made where there is room": {nominated: []string{"", "node-0002"}, keep: []string{"", "node-0002"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			nodes := makeNodes(3, 3)
			s := newStage(t, nodes, fill(nodes[:2], 0)...)
			s.open()
			members := makeMembers("train", 2, 8, func(_ int, pod *st.PodWrapper) { pod.Annotation(v1alpha1.ModeAnnotation, v1alpha1.ModeNonStrict) })
			s.see(members...)
			for i, node := range c.nominated {
				if node != "" {
					s.holds.Nominate(hold.Hold{For: members[i].UID, Holder: hold.Holder{Profile: testProfile, Group: "default/train"}, Node: node, Request: resource.Vector{gpu: 8}})
				}
			}
			for range 2 {
				for _, pod := range members {
					if node := s.cycle(t, pod); node != "" {
						t.Errorf("%s is reserved on %s, and its gang has not its minimum", pod.Name, node)
					}
				}
			}
			held := 0
			for i, pod := range members {
				if one, ok := s.holds.HoldOf(pod.UID); ok && (c.nominated == nil || one.Node != c.nominated[i]) {
					held++
				}
			}
			if held != c.want {
				t.Errorf("places are held for %d members, want %d", held, c.want)
			}
			for i, node := range c.keep {
				if one, _ := s.holds.Nomination(members[i].UID); one.Node != node {
					t.Errorf("member %d is nominated to %q, want %q", i, one.Node, node)
				}
			}
		})
	}
}

// TestNothingForWhatCanNeverFit: a NonStrict gang that would not fit on an empty cluster takes nothing, whatever
// preferences its members have, and its status shows that.
func TestNothingForWhatCanNeverFit(t *testing.T) {
	for sentence, wish := range map[string]func(*st.PodWrapper){
		"no wishes": func(*st.PodWrapper) {},
		"to be apart, if there is a choice": func(pod *st.PodWrapper) {
			pod.PodAntiAffinityIn("app", v1.LabelHostname, []string{"train"}, st.PodAntiAffinityWithPreferredReq)
		},
		"to be spread, if there is a choice": func(pod *st.PodWrapper) {
			pod.SpreadConstraint(1, v1.LabelHostname, v1.ScheduleAnyway, st.MakeLabelSelector().Label("app", "train").Obj(), nil, nil, nil, nil)
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t, makeNodes(2, 2))
			s.open()
			members := makeMembers("train", 3, 8, func(_ int, pod *st.PodWrapper) {
				pod.Annotation(v1alpha1.ModeAnnotation, v1alpha1.ModeNonStrict)
				wish(pod)
			})
			s.see(members...)
			for range 2 {
				for _, pod := range members {
					if node := s.cycle(t, pod); node != "" {
						t.Errorf("%s is held on %s", pod.Name, node)
					}
				}
			}
			if why, _ := s.gangs.Explanation(gangspec.Key{Namespace: "default", Name: "train"}); !strings.Contains(why.Message, "even if the cluster were empty: the nodes have room for 2 of 3 members") {
				t.Errorf("it is told %q", why.Message)
			}
		})
	}
}

// TestClaimsWithoutAVolumeYet: a member that has to wait for its volume does not turn its gang into one that would not
// fit on an empty cluster; room that is being made for it stays.
func TestClaimsWithoutAVolumeYet(t *testing.T) {
	nodes := makeNodes(2, 2)
	s := newStage(t, nodes, fill(nodes, 0)...)
	s.open()
	members := makeMembers("train", 2, 8, func(i int, pod *st.PodWrapper) {
		if i == 1 {
			pod.PVC("data")
		}
	})
	s.provision(t, st.MakePersistentVolumeClaim().Namespace("default").Name("data").Obj(), members[1])
	s.see(members...)
	for i, pod := range members {
		s.holds.Nominate(hold.Hold{For: pod.UID, Holder: hold.Holder{Profile: testProfile, Group: "default/train"}, Node: nodes[i].Name, Request: resource.Vector{gpu: 8}})
	}
	for _, pod := range members {
		if node := s.cycle(t, pod); node != "" {
			t.Errorf("%s is held on %s", pod.Name, node)
		}
	}
	for _, pod := range members {
		if _, ok := s.holds.Nomination(pod.UID); !ok {
			t.Errorf("%s has lost its nomination", pod.Name)
		}
	}
	if why, _ := s.gangs.Explanation(gangspec.Key{Namespace: "default", Name: "train"}); !strings.Contains(why.Message, "unbound immediate") || strings.Contains(why.Message, "empty") {
		t.Errorf("it is told %q, want what it waits for, and nothing of an empty cluster", why.Message)
	}
}

// provision makes a claim, without a volume, and waits until the filters see that claim for the pod.
func (s *stage) provision(t *testing.T, claim *v1.PersistentVolumeClaim, pod *v1.Pod) {
	t.Helper()
	if _, err := s.fw.ClientSet().CoreV1().PersistentVolumeClaims(claim.Namespace).Create(s.ctx, claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	go s.fw.SharedInformerFactory().Core().V1().PersistentVolumeClaims().Informer().RunWithContext(s.ctx)
	await.Until(t, "the filters know that claim "+claim.Name+" has no volume", func() bool {
		state := framework.NewCycleState()
		whatif.MarkSimulated(state)
		_, status, _ := s.scheduler.Profiles[testProfile].RunPreFilterPlugins(s.ctx, state, pod)
		return strings.Contains(status.Message(), "unbound immediate")
	})
}
