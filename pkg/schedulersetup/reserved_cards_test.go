package schedulersetup

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/test/helpers/idle"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

func memory(mib int64) v1.ResourceList {
	return v1.ResourceList{v1alpha1.GPUMemoryResource: *resource.NewQuantity(mib, resource.DecimalSI)}
}

// addCards adds a node of two GPU cards of 8192 MiB.
func (s *stage) addCards(name string) {
	node := st.MakeNode().Name(name).Label(v1.LabelHostname, name).
		Capacity(map[v1.ResourceName]string{v1.ResourceCPU: "64", v1.ResourcePods: "100", v1alpha1.GPUMemoryResource: "16384"}).Obj()
	node.Annotations = map[string]string{v1alpha1.GPUCardsAnnotation: "[8192,8192]"}
	s.Cache.AddNode(klog.Background(), node)
}

// reserveOnCard holds memory on a card, for pods with a label.
func (s *stage) reserveOnCard(name, label, node, card string, mib int64) {
	s.serial++
	r := &v1alpha1.Reservation{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: fmt.Sprint(s.serial), CreationTimestamp: metav1.Now()}}
	r.Spec = v1alpha1.ReservationSpec{
		Owners:       []v1alpha1.ReservationOwner{{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{label: ""}}}},
		Template:     v1.PodTemplateSpec{Spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: memory(mib)}}}}},
		AllocateOnce: new(bool), Replicas: 1,
	}
	r.Status.Phase = v1alpha1.ReservationAvailable
	r.Status.Placements = []v1alpha1.ReservationPlacement{{NodeName: node, Annotations: map[string]string{v1alpha1.GPUCardAnnotation: card}}}
	s.registry.Update(r)
}

// onCards returns a pod that asks for GPU memory.
func (s *stage) onCards(mib int64, labels ...string) *v1.Pod {
	pod := s.pod(0, labels...)
	pod.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: memory(mib), Limits: memory(mib)}
	return pod
}

// put places a pod on the node n.
func (s *stage) put(pod *v1.Pod) *v1.Pod {
	s.Helper()
	state, nodes := s.fits(pod)
	if len(nodes) == 0 {
		s.Fatalf("pod %s does not fit", pod.Name)
	}
	placed, ok := s.place(state, pod, "n")
	if !ok {
		s.Fatalf("pod %s cannot be reserved", pod.Name)
	}
	return placed
}

// TestReservedOnCards: what is held on a card is not available to others, though the node has as much on all
// its cards together, and owners get that card.
func TestReservedOnCards(t *testing.T) {
	type asks struct {
		mib   int64
		label string
	}
	for sentence, c := range map[string]struct {
		// pods come one after the other: the earlier ones have their places.
		pods []asks
		fits bool // the last
	}{
		"a stranger on the other card":                                 {pods: []asks{{8192, ""}}, fits: true},
		"a stranger beside what is held":                               {pods: []asks{{8192, ""}, {4096, ""}}, fits: true},
		"a stranger that would have to be on both":                     {pods: []asks{{6144, ""}, {6144, ""}}},
		"the owner gets its card, which stays free for it":             {pods: []asks{{8192, ""}, {4096, ""}, {4096, "own"}}, fits: true},
		"the owner may take more of its card":                          {pods: []asks{{8192, "own"}}, fits: true},
		"but not more than the card has":                               {pods: []asks{{4096, ""}, {4096, ""}, {4096, ""}, {8192, "own"}}},
		"the owner leaves the rest to the next owner":                  {pods: []asks{{2048, "own"}, {8192, ""}, {4096, ""}, {2048, "own"}}, fits: true},
		"an owner of whose memory all is used goes where any pod goes": {pods: []asks{{4096, "own"}, {4096, ""}, {8192, "own"}}, fits: true},
		"and not to a stranger":                                        {pods: []asks{{2048, "own"}, {8192, ""}, {6144, ""}}},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t, nil)
			s.addCards("n")
			s.reserveOnCard("r", "own", "n", "0", 4096)
			for i, p := range c.pods {
				var labels []string
				if p.label != "" {
					labels = append(labels, p.label)
				}
				pod := s.onCards(p.mib, labels...)
				state, nodes := s.fits(pod)
				last := i == len(c.pods)-1
				if want := !last || c.fits; len(nodes) > 0 != want {
					t.Fatalf("pod %d of %d MiB fits on %v", i, p.mib, nodes)
				}
				if len(nodes) == 0 {
					continue
				}
				if _, ok := s.place(state, pod, "n"); !ok {
					t.Fatalf("pod %d of %d MiB cannot be reserved", i, p.mib)
				}
			}
		})
	}
}

// TestGangOnReservedCards: a gang whose members all have placements is planned on their cards, whichever card suits
// a pod without placement best.
func TestGangOnReservedCards(t *testing.T) {
	s := newStage(t, nil)
	s.addCards("n")
	s.reserveOnCard("a", "own", "n", "0", 6144)
	s.reserveOnCard("b", "own", "n", "1", 6144)
	first := s.put(s.onCards(2048))
	s.put(s.onCards(1024)) // on the other card
	s.takeBack(framework.NewCycleState(), first)
	s.Look(t)
	members := []*v1.Pod{s.onCards(6144, "own"), s.onCards(6144, "own")}
	plan, err := s.planner.Plan(t.Context(), attempt(members...), nil)
	if err != nil || !plan.Complete {
		t.Errorf("complete: %v, %v; %v", plan.Complete, plan.Why, err)
	}
}

// TestEvictionFreesNoCard: when an owner of a reusable placement is evicted, its memory stays held for the next owner,
// and a what-if has to show that.
func TestEvictionFreesNoCard(t *testing.T) {
	s := newStage(t, nil)
	s.addCards("n")
	s.reserveOnCard("r", "own", "n", "0", 6144)
	owner := s.put(s.onCards(6144, "own"))
	s.put(s.onCards(6144))
	s.Look(t)
	room, err := s.planner.Simulate(t.Context(), attempt(s.onCards(4096)), nil)
	must.Succeed(t, err)
	node, _ := room.Index("n")
	if _, err := room.Restrict(t.Context(), []int{node}, 1); err != nil {
		t.Fatal(err)
	}
	must.Succeed(t, room.Remove(t.Context(), idle.PodInfo(t, owner), node))
	if fits, err := room.Fits(t.Context()); fits || err != nil {
		t.Errorf("it fits once the owner is gone: %v, %v", fits, err)
	}
	must.Succeed(t, room.Discard(t.Context()))
}

// TestOtherSeat: an owner of two placements that does not fit on the card of one goes to that of the other.
func TestOtherSeat(t *testing.T) {
	s := newStage(t, nil)
	s.addCards("n")
	s.reserveOnCard("a", "own", "n", "0", 2048)
	s.reserveOnCard("b", "own", "n", "1", 2048)
	s.put(s.onCards(6144))
	if _, nodes := s.fits(s.onCards(4096, "own")); len(nodes) == 0 {
		t.Error("the owner does not fit")
	}
}

// TestNominatedOnReservedCard: what a nomination has of a placement on a card stays on that card, also where another
// owner of the Reservation comes.
func TestNominatedOnReservedCard(t *testing.T) {
	for sentence, other := range map[string][]string{"of no Reservation": nil, "of the same": {"mine"}} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t, nil)
			s.addCards("n")
			s.reserveOnCard("r", "mine", "n", "0", 8192)
			pod := s.onCards(8192, "mine")
			s.holds.Nominate(hold.Hold{For: pod.UID, Node: "n", Request: ledger.DemandOf(&framework.PodInfo{Pod: pod}).Request,
				Holder: hold.Holder{Profile: pod.Spec.SchedulerName, Group: hold.SinglePod(pod.UID)}})
			state, _ := s.fits(pod)
			placed, ok := s.place(state, pod, "n")
			if !ok {
				t.Fatal("it cannot be reserved")
			}
			s.takeBack(state, placed)
			if a, ok := s.registry.Allocation(s.put(s.onCards(8192, other...))); ok {
				t.Errorf("the other one uses %v", a)
			}
			if a, ok := s.registry.Allocation(s.put(pod)); !ok || a.Name != "r" {
				t.Errorf("it uses %v, %t", a, ok)
			}
		})
	}
}
