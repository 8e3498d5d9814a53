package reservations

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/framework/watches"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/reservations/reservepods"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

var begin = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// stage is a registry that watches nothing: tests call it.
type stage struct {
	*testing.T
	*Registry
	clock   *clocktesting.FakeClock
	version int
}

func newStage(t *testing.T) *stage {
	s := &stage{T: t, clock: clocktesting.NewFakeClock(begin), Registry: New(ledger.New(), reservepods.NewStore(), watches.New(), nil, free{})}
	s.Registry.clock, s.nodes = s.clock, allNodes{}
	return s
}

// free is queues that pay for nothing.
type free struct{}

func (free) Charge(hold.ID, *v1.Pod, string, hold.Taken) {}

func (free) Recheck() {}

// allNodes has a node of any name but absentNodeName.
type allNodes struct{ corelisters.NodeLister }

const absentNodeName = "no-such-node"

func (allNodes) Get(name string) (*v1.Node, error) {
	if name == absentNodeName {
		return nil, apierrors.NewNotFound(v1.Resource("nodes"), name)
	}
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
}

// TestAbsentNode: a Reservation that names a node that does not exist says so.
func TestAbsentNode(t *testing.T) {
	s := newStage(t)
	r := s.make("r", promisedOn("n1", absentNodeName))
	why, err := s.absentNode(r, []int32{0, 1})
	if want := `spec.nodeNames[1]: there is no node "no-such-node"`; err != nil || !strings.HasPrefix(why, want) {
		t.Errorf("it says %q (%v), want %q", why, err, want)
	}
	if why, err := s.absentNode(r, []int32{0}); err != nil || why != "" {
		t.Errorf("of a node that exists it says %q (%v)", why, err)
	}
}

// make makes a Reservation of 4 CPUs a placement, for pods with the label app: owner, that is held on these nodes.
func (s *stage) make(name string, changes ...func(*v1alpha1.Reservation)) *v1alpha1.Reservation {
	s.version++
	r := &v1alpha1.Reservation{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(begin), Generation: 1, ResourceVersion: fmt.Sprint(10 + s.version)},
		Spec: v1alpha1.ReservationSpec{
			Owners: []v1alpha1.ReservationOwner{{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "owner"}}}},
			Template: v1.PodTemplateSpec{Spec: v1.PodSpec{Containers: []v1.Container{{
				Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4")}},
			}}}},
			Replicas: 1,
		},
	}
	for _, change := range changes {
		change(r)
	}
	return r
}

func on(nodes ...string) func(*v1alpha1.Reservation) {
	return func(r *v1alpha1.Reservation) {
		r.Spec.Replicas, r.Status.Phase = int32(len(nodes)), v1alpha1.ReservationAvailable
		for i, node := range nodes {
			r.Status.Placements = append(r.Status.Placements, v1alpha1.ReservationPlacement{Index: int32(i), NodeName: node})
		}
	}
}

func shared(r *v1alpha1.Reservation) { r.Spec.AllocateOnce = new(false) }

// held returns what is left of what the ledger holds, in CPUs: "node: 4, other: 4".
func (s *stage) held() string {
	s.Helper()
	var list []string
	for _, id := range sortedKeys(s.places) {
		one, ok := s.holds.Hold(id)
		if !ok || one.Node != s.places[id].node {
			s.Errorf("the ledger has %v, %t of placement %s", one, ok, id)
		}
		list = append(list, fmt.Sprintf("%s: %d", one.Node, s.holds.LeftOf(id)[0].Request[v1.ResourceCPU]/1000))
	}
	if got, want := s.held0(), len(list); got != want {
		s.Errorf("%d places are counted, want %d", got, want)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

func (s *stage) held0() int { return int(s.Registry.held.Load()) }

func nothing(hold.Hold) bool { return false }

func owner(name, cpu string) *v1.Pod {
	return st.MakePod().Namespace("default").Name(name).UID("uid-"+name).Label("app", "owner").
		Req(map[v1.ResourceName]string{v1.ResourceCPU: cpu}).Obj()
}

func demand(pod *v1.Pod) ledger.Demand { return ledger.DemandOf(&framework.PodInfo{Pod: pod}) }

// bound returns a pod as the API server has it once it is on its node.
func bound(pod *v1.Pod, node string, r *v1alpha1.Reservation, index int32) *v1.Pod {
	pod = pod.DeepCopy()
	pod.Spec.NodeName = node
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, v1alpha1.ReservationAllocatedAnnotation, reservationstate.Allocation{Name: r.Name, UID: r.UID, Index: index}.String())
	return pod
}

// TestHeld: what is held follows from the Reservation as it is, and from nothing that was before.
func TestHeld(t *testing.T) {
	for sentence, c := range map[string]struct {
		first, then func(s *stage) *v1alpha1.Reservation
		want        string
	}{
		"what has placements": {func(s *stage) *v1alpha1.Reservation { return s.make("r", on("a", "b")) }, nil, "a: 4, b: 4"},
		"two on one node":     {func(s *stage) *v1alpha1.Reservation { return s.make("r", on("a", "a")) }, nil, "a: 4, a: 4"},
		"none yet":            {func(s *stage) *v1alpha1.Reservation { return s.make("r") }, nil, ""},
		"it has ended": {
			func(s *stage) *v1alpha1.Reservation { return s.make("r", on("a")) },
			func(s *stage) *v1alpha1.Reservation {
				return s.make("r", on("a"), func(r *v1alpha1.Reservation) { r.Status.Phase = v1alpha1.ReservationFailed })
			}, "",
		},
		"it is being deleted": {
			func(s *stage) *v1alpha1.Reservation { return s.make("r", on("a")) },
			func(s *stage) *v1alpha1.Reservation {
				return s.make("r", on("a"), func(r *v1alpha1.Reservation) { r.DeletionTimestamp = new(metav1.NewTime(begin)) })
			}, "",
		},
		"a placement is spent": {
			func(s *stage) *v1alpha1.Reservation { return s.make("r", on("a", "b")) },
			func(s *stage) *v1alpha1.Reservation {
				return s.make("r", on("a", "b"), func(r *v1alpha1.Reservation) { r.Status.Placements[0].Spent = true })
			}, "b: 4",
		},
		"a placement is lost, and is found elsewhere": {
			func(s *stage) *v1alpha1.Reservation { return s.make("r", on("a", "b")) },
			func(s *stage) *v1alpha1.Reservation { return s.make("r", on("c", "b")) }, "b: 4, c: 4",
		},
		"an older version comes late": {
			func(s *stage) *v1alpha1.Reservation { return s.make("r", on("a")) },
			func(s *stage) *v1alpha1.Reservation {
				return s.make("r", func(r *v1alpha1.Reservation) { r.ResourceVersion = "5" })
			}, "a: 4",
		},
		"there is another of its name": {
			func(s *stage) *v1alpha1.Reservation { return s.make("r", on("a")) },
			func(s *stage) *v1alpha1.Reservation {
				return s.make("r", func(r *v1alpha1.Reservation) { r.UID, r.ResourceVersion = "another", "5" })
			}, "",
		},
		"its ttl has run out": {
			func(s *stage) *v1alpha1.Reservation { return s.make("r", on("a")) },
			func(s *stage) *v1alpha1.Reservation {
				return s.make("r", on("a"), func(r *v1alpha1.Reservation) { r.Spec.Expires = new(metav1.NewTime(begin)) })
			}, "",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t)
			s.Update(c.first(s))
			if c.then != nil {
				s.Update(c.then(s))
			}
			if got := s.held(); got != c.want {
				t.Errorf("held %q, want %q", got, c.want)
			}
			s.reservationDeleted("r")
			if got := s.held(); got != "" || !s.holds.Empty() {
				t.Errorf("held %q after it is gone, ledger empty: %t", got, s.holds.Empty())
			}
		})
	}
}

// TestUsedOnce: a placement that is used once is one pod's, which gives it back whole if it comes to nothing; what a
// pod that runs leaves is free.
func TestUsedOnce(t *testing.T) {
	s := newStage(t)
	r := s.make("r", on("a"))
	s.Update(r)
	first, second := owner("first", "1"), owner("second", "1")
	id := idOf(r.UID, 0)
	for range 2 {
		if !s.Use(first, "a", id, demand(first)) || s.Use(second, "a", id, demand(second)) {
			t.Fatal("the first was refused, or the second was not")
		}
		if got := s.held(); got != "a: 3" {
			t.Errorf("held %q beside what the pod has", got)
		}
		if slots := s.Slots(second, nothing)["a"]; len(slots) != 1 || !slots[0].Taken {
			t.Errorf("the second finds %+v", slots)
		}
		if ids := s.Covers([]*v1.Pod{second}); ids != nil {
			t.Errorf("%v covers the second", ids)
		}
		s.Release(first)
		if got := s.held(); got != "a: 4" {
			t.Errorf("held %q after it was given back", got)
		}
	}
	s.Use(first, "a", id, demand(first))
	s.userChanged(bound(first, "a", r, 0))
	if got := s.held(); got != "" || !s.holds.Empty() {
		t.Errorf("held %q beside a pod that runs, ledger empty: %t", got, s.holds.Empty())
	}
	s.Update(s.make("r", on("a"))) // the controller has not seen the pod yet
	s.userChanged(bound(first, "a", r, 0))
	if got := s.held(); got != "" {
		t.Errorf("held %q again", got)
	}
}

// TestGoneAsItIsBound: a placement that is used once has been used by a pod that was bound, whatever the watch
// delivers; a pod that came to nothing gives it back only when that is known.
func TestGoneAsItIsBound(t *testing.T) {
	for sentence, c := range map[string]struct {
		play func(s *stage, pod, asBound *v1.Pod)
		want string // held
	}{
		"the watch never shows it bound":       {func(s *stage, pod, _ *v1.Pod) { s.PodBound(pod); s.podEnded(pod) }, ""},
		"it is gone before its binding ends":   {func(s *stage, pod, _ *v1.Pod) { s.podEnded(pod); s.PodBound(pod) }, ""},
		"the watch shows all of it before":     {func(s *stage, pod, at *v1.Pod) { s.userChanged(at); s.podEnded(at); s.PodBound(pod) }, ""},
		"it is gone, and its binding not over": {func(s *stage, pod, _ *v1.Pod) { s.podEnded(pod) }, "a: 3"},
		"it is gone, and was never bound":      {func(s *stage, pod, _ *v1.Pod) { s.podEnded(pod); s.Release(pod) }, "a: 4"},
		"nobody knows whether it was bound":    {func(s *stage, pod, _ *v1.Pod) { s.PodBound(pod); s.Release(pod); s.podEnded(pod) }, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t)
			r := s.make("r", on("a"))
			s.Update(r)
			pod := owner("one", "1")
			if !s.Use(pod, "a", idOf(r.UID, 0), demand(pod)) {
				t.Fatal("it was refused")
			}
			c.play(s, pod, bound(pod, "a", r, 0))
			s.Update(s.make("r", on("a"))) // the status does not say yet what was used
			if got := s.held(); got != c.want {
				t.Errorf("held %q, want %q", got, c.want)
			}
			if open := c.want == "a: 3"; len(s.users) != 0 && !open || len(s.users) != 1 && open {
				t.Errorf("%d pods use something", len(s.users))
			}
			if c.want == "" && !s.holds.Empty() {
				t.Error("the ledger is not empty")
			}
		})
	}
}

// TestUsedAgain: of a placement that is used again and again each owner has its part, until it ends.
func TestUsedAgain(t *testing.T) {
	s := newStage(t)
	r := s.make("r", on("a"), shared)
	s.Update(r)
	first, second := owner("first", "1"), owner("second", "6")
	id := idOf(r.UID, 0)
	s.Use(first, "a", id, demand(first))
	s.userChanged(bound(first, "a", r, 0))
	s.Use(second, "a", id, demand(second)) // it takes the rest, and what is free beside it
	if got := s.held(); got != "a: 0" {
		t.Errorf("held %q", got)
	}
	s.podEnded(bound(first, "a", r, 0))
	if got := s.held(); got != "a: 1" {
		t.Errorf("held %q: what the first had is held for the next, not for the second", got)
	}
	s.Release(second)
	if got := s.held(); got != "a: 4" {
		t.Errorf("held %q after all have ended", got)
	}
}

// TestRestart: whichever comes first, what is held beside the pods that use it is the same.
func TestRestart(t *testing.T) {
	for sentence, podFirst := range map[string]bool{"pods first": true, "Reservations first": false} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t)
			once, again := s.make("once", on("a", "b")), s.make("again", on("a"), shared)
			pods := []*v1.Pod{
				bound(owner("one", "1"), "a", once, 0), bound(owner("two", "1"), "a", again, 0),
				bound(owner("elsewhere", "1"), "c", once, 1), bound(owner("of-another", "1"), "a", s.make("x"), 0),
			}
			steps := []func(){func() { s.Update(once); s.Update(again) }, func() {
				for _, pod := range pods {
					s.userChanged(pod)
				}
			}}
			if podFirst {
				slices.Reverse(steps)
			}
			for _, step := range steps {
				step()
			}
			if got := s.held(); got != "a: 3, b: 4" {
				t.Errorf("held %q", got)
			}
			s.podEnded(pods[0])
			s.Update(s.make("once", on("a", "b"))) // no controller has seen it
			if got := s.held(); got != "a: 3, b: 4" {
				t.Errorf("held %q after the user of a placement that is used once has ended", got)
			}
		})
	}
}

// TestRestartAfterOwnersChanged: a pod that the status lists has its part of a placement, though its namespace is none of
// the owners' by now.
func TestRestartAfterOwnersChanged(t *testing.T) {
	for sentence, listed := range map[string]bool{"it used it before": true, "it only says so": false} {
		for _, podFirst := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, pod first: %v", sentence, podFirst), func(t *testing.T) {
				s := newStage(t)
				pod := owner("user", "3")
				r := s.make("r", on("a"), shared, func(r *v1alpha1.Reservation) {
					r.Spec.Owners[0].Namespace = "another"
					if listed {
						r.Status.CurrentOwners = []v1alpha1.ReservationConsumer{{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}}
					}
				})
				steps := []func(){func() { s.Update(r) }, func() { s.userChanged(bound(pod, "a", r, 0)) }}
				if podFirst {
					slices.Reverse(steps)
				}
				for _, step := range steps {
					step()
				}
				want := "a: 4"
				if listed {
					want = "a: 1"
				}
				if got := s.held(); got != want {
					t.Errorf("held %q, want %q", got, want)
				}
			})
		}
	}
}

func TestMissing(t *testing.T) {
	s := newStage(t)
	s.Update(s.make("held", on("a")))
	s.Update(s.make("pending"))
	s.Update(s.make("later", func(r *v1alpha1.Reservation) { r.Spec.StartTime = &metav1.Time{Time: time.Unix(1800000000, 0)} }))
	s.Update(s.make("used", on("b"), func(r *v1alpha1.Reservation) { r.Status.Placements[0].Spent = true }))
	for sentence, c := range map[string]struct {
		name, label, want string
	}{
		"it is held":          {"held", "owner", ""},
		"it is another's":     {"held", "other", "the pod matches none of its spec.owners"},
		"it is pending":       {"pending", "owner", "holds nothing yet"},
		"it has not begun":    {"later", "owner", "holds nothing before its spec.startTime, 2027-01-15T08:00:00Z"},
		"it is used up":       {"used", "owner", "is fully used"},
		"there is none":       {"nosuch", "owner", "does not exist"},
		"none is asked for":   {"", "owner", ""},
		"a reserve pod needs": {"nosuch", "reserve", ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			pod := owner("p", "1")
			pod.Labels["app"] = c.label
			if c.name != "" {
				pod.Annotations = map[string]string{v1alpha1.ReservationAnnotation: c.name}
			}
			if c.label == "reserve" {
				pod.Name = reservepods.PodName("r", 0)
			}
			if got := s.Missing(pod); c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestAwaitsReservation: a pod waits for the Reservation that it names wherever its profile heeds that.
func TestAwaitsReservation(t *testing.T) {
	s := newStage(t)
	s.profiles["heeds"] = profile{}
	s.Update(s.make("held", on("a")))
	for sentence, c := range map[string]struct {
		profile string
		names   map[string]string
		want    bool
	}{
		"it names one":                 {"heeds", map[string]string{v1alpha1.ReservationAnnotation: "held"}, true},
		"it names one that is not":     {"heeds", map[string]string{v1alpha1.ReservationAnnotation: "nosuch"}, true},
		"the name is empty":            {"heeds", map[string]string{v1alpha1.ReservationAnnotation: ""}, true},
		"it names none":                {"heeds", nil, false},
		"its profile does not heed it": {"ignores", map[string]string{v1alpha1.ReservationAnnotation: "held"}, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			pod := owner("p", "1")
			pod.Annotations, pod.Spec.SchedulerName = c.names, c.profile
			if got := s.AwaitsReservation(pod); got != c.want {
				t.Errorf("awaits a Reservation: %v", got)
			}
		})
	}
}

// TestCovers: together, pods find a placement each, or none.
func TestCovers(t *testing.T) {
	s := newStage(t)
	s.Update(s.make("r", on("a", "b", "b")))
	pods := func(cpus ...string) (list []*v1.Pod) {
		for i, cpu := range cpus {
			list = append(list, owner(fmt.Sprint("p", i), cpu))
		}
		return list
	}
	for sentence, c := range map[string]struct {
		pods []*v1.Pod
		want int
	}{
		"one for each":          {pods("4", "4", "4"), 3},
		"some are left":         {pods("1"), 1},
		"one is too many":       {pods("1", "1", "1", "1"), 0},
		"one asks for too much": {pods("4", "5"), 0},
		"one is no owner":       {append(pods("4"), st.MakePod().Namespace("default").Name("x").UID("x").Obj()), 0},
	} {
		t.Run(sentence, func(t *testing.T) {
			ids := s.Covers(c.pods)
			distinct := map[hold.ID]bool{}
			for _, id := range ids {
				distinct[id] = true
			}
			if len(ids) != c.want || len(distinct) != len(ids) {
				t.Errorf("%v, want %d", slices.Sorted(maps.Keys(distinct)), c.want)
			}
		})
	}
}
