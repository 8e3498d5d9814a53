package preemption

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// changing knows one gang, of which something runs that changes.
type changing struct {
	known
	mu      sync.Mutex
	running gangstate.RunningGang
	// waits is whether preemptors wait for nothing but room.
	waits bool
	// wants is what the preemptor is to its gang.
	wants gangstate.PlacementRequest
}

func (c *changing) Wants(*v1.Pod) (gangstate.PlacementRequest, bool) { return c.wants, true }

func (c *changing) Running(of string, key gangspec.Key) []gangstate.RunningGang {
	c.mu.Lock()
	defer c.mu.Unlock()
	if key != c.running.Key {
		return nil
	}
	f := c.running
	f.Running = slices.Clone(f.Running)
	return []gangstate.RunningGang{f}
}

func (c *changing) Placing(hold.Holder) bool { return c.waits }

// ends takes a pod off the gang, as its deletion does.
func (c *changing) ends(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running.Running = slices.DeleteFunc(c.running.Running, func(p gangstate.Placed) bool { return p.Pod.Name == name })
}

func (c *changing) comes(pod *v1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running.Running = append(c.running.Running, gangstate.Placed{Pod: pod, Node: pod.Spec.NodeName})
}

// left lists the pods that the API server has, without those of the preemptor.
func (s *stage) left(t *testing.T) string {
	t.Helper()
	names := s.podNames(t, func(pod *v1.Pod) bool { return !strings.HasPrefix(pod.Name, "p-") })
	slices.Sort(names)
	return strings.Join(names, " ")
}

// TestWhatWasFoundHolds: between the search and the evictions things change. A gang of 2 preempts on a node of 4, where
// v runs with its 4 pods.
func TestWhatWasFoundHolds(t *testing.T) {
	const all = "v-0 v-1 v-2 v-3"
	for sentence, c := range map[string]struct {
		min     int
		gpus    int  // for each of the preemptor; 0 is 1
		held    bool // a third member of the preemptor has a place, which is held for it
		broken  bool // v is, for long; and a fifth pod of it, v-9, is more important than the preemptor
		between func(s *stage, d *demand, v *changing)
		marking bool // between is while the first victim is marked
		left    string
	}{
		"nothing changes, and surplus goes":    {min: 2, left: "v-2 v-3"},
		"one member has a place, and keeps it": {min: 2, held: true, left: "v-2 v-3"},
		"one member has a place, and gives it back to others": {
			min: 2, held: true, left: all,
			between: func(s *stage, _ *demand, _ *changing) { s.Holds.Release("p-2") },
		},
		"nothing changes, and all of it goes": {min: 4, left: ""},
		"a plan has found room elsewhere": {
			min: 2, left: all,
			between: func(s *stage, d *demand, _ *changing) {
				s.Holds.FollowPlan(s.holder(d), uids(d.gang.Pods), []hold.Hold{{For: "p-0", Node: "n1"}, {For: "p-1", Node: "n1"}})
			},
		},
		"a plan has found room elsewhere while surplus is marked": {
			min: 2, left: all, marking: true,
			between: func(s *stage, d *demand, _ *changing) { s.Holds.DropNominations(s.holder(d)) },
		},
		"a plan has found room elsewhere while a gang is marked": {
			min: 4, left: all, marking: true,
			between: func(s *stage, d *demand, _ *changing) { s.Holds.DropNominations(s.holder(d)) },
		},
		"a preemptor of higher priority takes the place": {
			min: 2, left: all,
			between: func(s *stage, d *demand, _ *changing) { s.Holds.DropNominations(s.holder(d)) },
		},
		"the preemptor waits for its own members by now": {
			min: 2, left: all,
			between: func(_ *stage, _ *demand, v *changing) { v.waits = false },
		},
		"the gang of the preemptor has its minimum by now": {
			min: 2, left: all,
			between: func(_ *stage, _ *demand, v *changing) { v.wants = gangstate.PlacementRequest{Alone: true, Ready: true} },
		},
		"the preemptor is still missed": {
			min: 2, left: "v-2 v-3",
			between: func(_ *stage, _ *demand, v *changing) { v.wants = gangstate.PlacementRequest{Alone: true, Begun: true} },
		},
		"nothing changes, and a gang with surplus goes whole": {min: 3, gpus: 2, left: ""},
		"a broken gang has its minimum again": {
			min: 6, left: all + " v-9", broken: true,
			between: func(_ *stage, _ *demand, v *changing) { v.comes(member("v", 4, 6, 10, 1, "n2")) },
		},
		"a broken gang goes, but for a member that may not": {min: 6, broken: true, left: "v-9"},
		"the gang has lost a member and has less to spare": {
			min: 2, left: all,
			between: func(_ *stage, _ *demand, v *changing) { v.ends("v-2") },
		},
		"a member has come to a gang that ends": {
			min: 4, left: "",
			between: func(s *stage, _ *demand, v *changing) {
				late := member("v", 4, 4, 10, 1, "n1")
				if err := s.fw.ClientSet().(*fake.Clientset).Tracker().Add(late); err != nil {
					panic(err)
				}
				v.comes(late)
			},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			victims, preemptor := members("v", 4, c.min, 10, 1, "n0"), members("p", 2, 2, 100, max(1, c.gpus))
			if c.broken {
				victims = append(victims, member("v", 9, c.min, 200, 0, "n0"))
			}
			objects := objectsOf(victims, preemptor)
			nodes := []*v1.Node{node("n0", 4, "r0")}
			if c.held {
				nodes = append(nodes, node("n2", 1, "r0"))
			}
			s := newStage(t, nodes, victims, objects...)
			v := s.change(t, victims, c.min)
			if c.broken {
				v.running.BrokenSince = time.Unix(1, 0)
			}
			d := s.demand(t, gangspec.Spec{}, preemptor...)
			if c.held {
				third := member("p", 2, 2, 100, 1, "")
				d.attempt.Gangs[0].Placed = []gangstate.Placed{{Pod: third, Node: "n2", InPlan: true}}
				s.Holds.FollowPlan(s.holder(d), []types.UID{"p-2"}, []hold.Hold{{For: "p-2", Node: "n2"}})
			}
			f := s.decide(t, d)
			switch {
			case c.marking:
				var once sync.Once
				server{patches: func(name string) error {
					if strings.HasPrefix(name, "v-") {
						once.Do(func() { c.between(s, d, v) })
					}
					return nil
				}}.stand(s.fw.ClientSet().(*fake.Clientset))
			case c.between != nil:
				c.between(s, d, v)
			}
			s.execution(d, f).carryOut(s.ctx)
			if got := s.left(t); got != c.left {
				t.Errorf("left %q, want %q", got, c.left)
			}
			if marked := s.markedPods(t); strings.HasPrefix(c.left, all) && len(marked) > 0 {
				t.Errorf("%q are marked and run on", marked)
			}
			if n := s.Underway.Victims(s.holder(d)); strings.HasPrefix(c.left, all) && n > 0 {
				t.Errorf("%d victims are waited for that run on", n)
			}
		})
	}
}

// markedPods lists the pods whose status says that they are being evicted.
func (s *stage) markedPods(t *testing.T) []string {
	t.Helper()
	return s.podNames(t, s.evictor.Marked)
}

// podNames lists some pods of the API server.
func (s *stage) podNames(t *testing.T, which func(*v1.Pod) bool) (names []string) {
	t.Helper()
	list, err := s.fw.ClientSet().CoreV1().Pods("").List(s.ctx, metav1.ListOptions{})
	must.Succeed(t, err)
	for i := range list.Items {
		if which(&list.Items[i]) {
			names = append(names, list.Items[i].Name)
		}
	}
	return names
}

func uids(pods []*v1.Pod) []types.UID {
	var list []types.UID
	for _, pod := range pods {
		list = append(list, pod.UID)
	}
	return list
}

// change registers a gang of these pods, which loses those that the API server deletes.
func (s *stage) change(t *testing.T, pods []*v1.Pod, min int) *changing {
	t.Helper()
	v := &changing{waits: true}
	v.running.Key, v.running.Min = gangspec.Key{Namespace: "default", Name: "v"}, min
	for _, pod := range pods {
		v.comes(pod)
	}
	s.know(v)
	server{deletes: func(name string, options metav1.DeleteOptions) error {
		if len(options.DryRun) == 0 {
			v.ends(name)
		}
		return nil
	}}.stand(s.fw.ClientSet().(*fake.Clientset))
	return v
}

// TestMembersThatComeWhileTheirGangEnds: a member that was on its way to a node when its gang began to end goes too; a
// new life of the gang, with its minimum, stays.
func TestMembersThatComeWhileTheirGangEnds(t *testing.T) {
	for sentence, c := range map[string]struct {
		come int
		left string
	}{"one": {1, ""}, "as many as the minimum": {2, "w-0 w-1"}} {
		t.Run(sentence, func(t *testing.T) {
			victims, preemptor := members("v", 2, 2, 10, 1, "n0"), members("p", 2, 2, 100, 1)
			objects := objectsOf(victims, preemptor)
			s := newStage(t, []*v1.Node{node("n0", 2, "r0")}, victims, objects...)
			v := s.change(t, victims, 2)
			client := s.fw.ClientSet().(*fake.Clientset)
			var once sync.Once
			client.PrependReactor("delete", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
				if len(a.(clienttesting.DeleteAction).GetDeleteOptions().DryRun) == 0 {
					once.Do(func() {
						for _, pod := range members("w", c.come, 2, 10, 1, "n1") {
							if err := client.Tracker().Add(pod); err != nil {
								t.Error(err)
							}
							v.comes(pod)
						}
					})
				}
				return false, nil, nil
			})
			s.carryOutNow(t, s.demand(t, gangspec.Spec{}, preemptor...))
			if got := s.left(t); got != c.left {
				t.Errorf("left %q, want %q", got, c.left)
			}
		})
	}
}

// TestSurplusOfAGroupThatRunsInPart: what a gang has beyond its minimum may be evicted although another one of its
// group does not run.
func TestSurplusOfAGroupThatRunsInPart(t *testing.T) {
	runs, waits := members("g", 3, 2, 10, 1, "n0"), member("h", 0, 1, 10, 1, "")
	var objects []runtime.Object
	for _, pod := range append(runs, waits) {
		pod.Annotations[v1alpha1.GroupsAnnotation] = `["default/g","default/h"]`
		objects = append(objects, pod)
	}
	preemptor := member("p", 0, 0, 100, 1, "")
	s := newStage(t, []*v1.Node{node("n0", 3, "r0")}, runs, append(objects, preemptor)...)
	s.know(gangsRunning(append(runs, waits)...))
	d, err := s.demandOf(framework.NewCycleState(), preemptor)
	must.Succeed(t, err)
	f := s.decide(t, d)
	if why := s.execution(d, f).outdated(); why != "" || len(f.victims) != 1 {
		t.Errorf("%d victims, withdrawn because %q", len(f.victims), why)
	}
}
