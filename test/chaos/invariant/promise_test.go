package invariant

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

func reserving(c *Config) { c.Reservations = true }

func gpus(n int64) v1.ResourceList {
	return v1.ResourceList{gpu: *resource.NewQuantity(n, resource.DecimalSI)}
}

// reserved returns a Reservation of 4 GPUs on each of these nodes, for pods with label for: its name.
func reserved(name string, version int, change func(*Reserved), nodes ...int) Reserved {
	r := Reserved{
		Name: name, UID: types.UID(name), Version: strconv.Itoa(version), Once: true, Phase: "Available",
		Namespace: "a", Labels: map[string]string{"for": name},
	}
	for i, node := range nodes {
		r.Placements = append(r.Placements, Placement{Index: i, Node: "n" + strconv.Itoa(node), Allocatable: gpus(4)})
	}
	if change != nil {
		change(&r)
	}
	return r
}

// stored returns the observation of a pod at a version.
func (s *story) stored(name string, version int, change func(*v1.Pod)) Observation {
	return s.changed(name, func(p *v1.Pod) {
		p.ResourceVersion = strconv.Itoa(version)
		if change != nil {
			change(p)
		}
	})
}

func on(node int) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.NodeName, p.Status.Phase = "n"+strconv.Itoa(node), v1.PodRunning }
}

// using makes a pod one that is bound to a placement.
func using(reservation string, index, node int) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Annotations[keyAllocated] = fmt.Sprintf(`{"name":%q,"uid":%q,"index":%d}`, reservation, reservation, index)
		on(node)(p)
	}
}

func owner(of string) with { return func(p *v1.Pod) { p.Labels["for"] = of } }

func again(r *Reserved)      { r.Once = false }
func restricted(r *Reserved) { r.Once, r.Restricted = false, true }

// TestPromises: what is held and what runs fit together at every version, in whatever order the watches
// deliver them.
func TestPromises(t *testing.T) {
	for name, c := range map[string]tale{
		"a stranger beside what is held": {tell: func(s *story) {
			s.at(1, ReservationSeen{reserved("r", 10, nil, 0)}, s.pod("x", asking(4)), s.stored("x", 11, on(0)))
		}},
		"a stranger takes what is held": {tell: func(s *story) {
			s.at(1, ReservationSeen{reserved("r", 10, nil, 0)}, s.pod("x", asking(5)), s.stored("x", 11, on(0)))
		}, want: "nothing promised twice: node n0: its pods and Reservations r ask for 9 nvidia.com/gpu, 4 of it held, of 8"},
		"a Reservation takes what is used": {tell: func(s *story) {
			s.at(1, s.pod("x", asking(5)), s.stored("x", 10, on(0)), ReservationSeen{reserved("r", 11, nil, 0)})
		}, want: "nothing promised twice: node n0"},
		"its end is heard of late, and was before": {tell: func(s *story) {
			s.at(1, ReservationSeen{reserved("r", 10, nil, 0)}, s.pod("x", asking(5)))
			s.at(2, s.stored("x", 12, on(0)))
			s.at(3, ReservationSeen{reserved("r", 11, func(r *Reserved) { r.Phase = "Failed" }, 0)})
			s.at(20)
		}},
		"its end is heard of early, and was after": {tell: func(s *story) {
			s.at(1, ReservationSeen{reserved("r", 10, nil, 0)}, s.pod("x", asking(5)))
			s.at(2, ReservationGone{reserved("r", 12, nil, 0)}, s.stored("x", 11, on(0)))
			s.at(20)
		}, want: "nothing promised twice: node n0"},
		"it has run out": {tell: func(s *story) {
			ends := func(r *Reserved) { r.Ends = begin.Add(4 * time.Second) }
			s.at(1, ReservationSeen{reserved("r", 10, ends, 0)}, s.pod("x", asking(5)))
			s.at(5, s.stored("x", 11, on(0)))
			s.at(20)
		}},
		"what is used once is free then": {tell: func(s *story) {
			s.at(1, ReservationSeen{reserved("r", 10, nil, 0)}, s.pod("o", asking(1), owner("r")), s.stored("o", 11, using("r", 0, 0)))
			s.at(2, s.pod("x", asking(7)), s.stored("x", 12, on(0)))
			s.at(20)
		}},
		"what is used again is held while nobody uses it": {tell: func(s *story) {
			s.at(1, ReservationSeen{reserved("r", 10, again, 0)}, s.pod("o", asking(4), owner("r")), s.stored("o", 11, using("r", 0, 0)))
			s.at(2, s.stored("o", 12, func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded }))
			s.at(3, s.pod("x", asking(5)), s.stored("x", 13, on(0)))
			s.at(20)
		}, want: "nothing promised twice: node n0"},
		"two use once what is used once": {tell: func(s *story) {
			s.at(1, ReservationSeen{reserved("r", 10, nil, 0)}, s.pod("o", asking(1), owner("r")), s.pod("p", asking(1), owner("r")))
			s.at(2, s.stored("o", 11, using("r", 0, 0)), s.stored("p", 12, using("r", 0, 0)))
			s.at(20)
		}, want: "nothing promised twice: Reservation r: placement 0 is used once, and pods a/o and a/p did"},
		"a stranger uses it": {tell: func(s *story) {
			s.at(1, ReservationSeen{reserved("r", 10, nil, 0)}, s.pod("x", asking(1)), s.stored("x", 11, using("r", 0, 0)))
			s.at(20)
		}, want: "nothing promised twice: Reservation r: pod a/x uses it, and is none of its owners"},
		"Restricted, and more than is reserved": {tell: func(s *story) {
			s.at(1, ReservationSeen{reserved("r", 10, restricted, 0)}, s.pod("o", asking(5), owner("r")), s.stored("o", 11, using("r", 0, 0)))
			s.at(20)
		}, want: "nothing promised twice: Reservation r: it is Restricted to 4 nvidia.com/gpu, and its pods ask for 5"},
		"Aligned, and more than is reserved": {tell: func(s *story) {
			s.at(1, ReservationSeen{reserved("r", 10, again, 0)}, s.pod("o", asking(6), owner("r")), s.stored("o", 11, using("r", 0, 0)))
			s.at(2, s.pod("x", asking(2)), s.stored("x", 12, on(0)))
			s.at(20)
		}},
		"a pod that went while nobody watched": {tell: func(s *story) {
			s.at(1, s.pod("x", asking(5)), s.stored("x", 10, on(0)))
			delete(s.pods, "x")
			s.at(2, s.listed(), ReservationSeen{reserved("r", 12, nil, 0)})
			s.at(20)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := tell(t, reserving)
			c.tell(s)
			s.check.settle(true)
			s.want(c.want)
		})
	}
}

// TestCheckReservations: at rest their status agrees with what pods do, and no pod waits beside what is held
// for it.
func TestCheckReservations(t *testing.T) {
	uses := func(n int64, owners int) func(*Reserved) {
		return func(r *Reserved) { r.Once, r.Placements[0].Allocated, r.Owners = false, gpus(n), owners }
	}
	for name, c := range map[string]struct {
		tale
		held int
	}{
		"it says what is so": {held: 1, tale: tale{tell: func(s *story) {
			s.at(1, ReservationSeen{reserved("r", 10, again, 0)}, s.pod("o", asking(2), owner("r")), s.stored("o", 11, using("r", 0, 0)))
			s.at(2, ReservationSeen{reserved("r", 12, uses(2, 1), 0)})
		}}},
		"it says too little": {held: 1, tale: tale{tell: func(s *story) {
			s.at(1, ReservationSeen{reserved("r", 10, again, 0)}, s.pod("o", asking(2), owner("r")), s.stored("o", 11, using("r", 0, 0)))
			s.at(2, ReservationSeen{reserved("r", 12, uses(0, 1), 0)})
		}, want: "what is said of Reservations is so: Reservation r: placement 0 says that 0 nvidia.com/gpu is used, and its pods use 2"}},
		"it says too many owners": {held: 1, tale: tale{tell: func(s *story) {
			s.at(1, ReservationSeen{reserved("r", 10, uses(0, 1), 0)})
		}, want: "what is said of Reservations is so: Reservation r: it says that 1 pods use it, and 0 do"}},
		"the scheduler holds more": {held: 2, tale: tale{tell: func(s *story) {
			s.at(1, ReservationSeen{reserved("r", 10, nil, 0)})
		}, want: "what is said of Reservations is so: the scheduler: it holds 2 placements of Reservations, and their status says 1"}},
		"an owner waits": {held: 1, tale: tale{tell: func(s *story) {
			s.at(1, ReservationSeen{reserved("r", 10, nil, 0)}, s.pod("o", asking(4), owner("r")))
		}, want: "what fits is bound in the end: pod a/o: it waits, and Reservation r holds what it asks for on n0"}},
		"an owner waits that is larger": {held: 1, tale: tale{tell: func(s *story) {
			s.at(1, ReservationSeen{reserved("r", 10, nil, 0)}, s.pod("o", asking(5), owner("r")))
		}}},
		"it stands when it has run out": {held: -1, tale: tale{tell: func(s *story) {
			s.at(1, ReservationSeen{reserved("r", 10, func(r *Reserved) { r.Ends = begin }, 0)})
			s.at(10)
		}, want: "nothing left over: Reservation r: it is Available, and has run out at 12:00:00.000"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := tell(t, reserving)
			c.tell(s)
			s.check.CheckReservations(c.held)
			s.want(c.want)
		})
	}
}
