package invariant

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestCheckerOfEvictions: what is wrong about evictions is found, and what is right is not taken for it.
func TestCheckerOfEvictions(t *testing.T) {
	judge(t, map[string]tale{
		"a pod is evicted for one that is bound": {
			func(s *story) {
				s.at(1, s.pod("p", priority(5)), s.pod("v"), s.bound("v", 1))
				s.at(2, s.bound("p", 0))
				s.at(3, s.evicted("v", "p")...)
			},
			"no eviction for a preemptor that is placed: pod a/p: pod a/v was evicted",
		},
		"a gang for which pods are evicted is never placed": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 2, 2, priority(5)), s.pod("v"), s.bound("v", 1))...)
				s.at(2, s.evicted("v", "g-1")...)
				s.at(3, s.gone("v"))
				s.at(14)
			},
			"no futile eviction: gang a/g: since 12:00:02.000, 10.1 healthy seconds, 1 pods were evicted for it, and it has 0 of its minimum of 2 bound: a/v",
		},
		"a kubelet that takes its time": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 2, 2, priority(5)), s.pod("v"), s.bound("v", 1))...)
				s.at(2, s.evicted("v", "g-1")...)
				s.at(11, s.gone("v"))
				s.at(14, s.bound("g-0", 1), s.bound("g-1", 1))
			},
			"",
		},
		"a kubelet that took its time is not waited for for ever": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 2, 2, priority(5)), s.pod("v"), s.bound("v", 1))...)
				s.at(2, s.evicted("v", "g-1")...)
				s.at(11, s.gone("v"))
				s.at(24)
			},
			"no futile eviction: gang a/g: since 12:00:02.000",
		},
		"room that is held for something more important": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 2, 2, priority(5)), s.pod("v"), s.bound("v", 1))...)
				s.at(2, s.evicted("v", "g-1")...)
				s.at(3, s.gone("v"), ReservationSeen{reserved("r", 10, func(r *Reserved) { r.Priority = 6 }, 1)})
				s.at(20)
			},
			"",
		},
		"room that is held for something less important": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 2, 2, priority(5)), s.pod("v"), s.bound("v", 1))...)
				s.at(2, s.evicted("v", "g-1")...)
				s.at(3, s.gone("v"), ReservationSeen{reserved("r", 10, func(r *Reserved) { r.Priority = 5 }, 1)})
				s.at(20)
			},
			"no futile eviction: gang a/g: since 12:00:02.000",
		},
		"pods are evicted a second time for room that was made": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 2, 2, priority(5)), s.pod("v"), s.bound("v", 1), s.pod("w"), s.bound("w", 1))...)
				s.at(2, s.evicted("v", "g-1")...)
				s.at(3, s.gone("v"))
				s.at(6, s.evicted("w", "g-1")...)
				s.at(7, s.gone("w"), s.bound("g-0", 1), s.bound("g-1", 1))
			},
			"no futile eviction: gang a/g: pod a/w was evicted for it at 12:00:06.000, when the 1 pods that were evicted for it since 12:00:02.000 had all ended at 12:00:03.000",
		},
		"a gang in repair makes room for one member after the other": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 5, 3, priority(5)), s.pod("v"), s.bound("v", 1), s.pod("w"), s.bound("w", 1))...)
				s.at(1, s.bound("g-0", 0), s.bound("g-1", 0), s.bound("g-2", 0))
				s.at(2, s.deleting("g-1"), s.deleting("g-2"))
				s.at(5, s.evicted("v", "g-3")...)
				s.at(6, s.gone("v"), s.bound("g-3", 1))
				s.at(9, s.evicted("w", "g-4")...)
				s.at(10, s.gone("w"), s.bound("g-4", 1))
			},
			"",
		},
		"more evictions are no excuse": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 2, 2, priority(5)), s.pod("v"), s.bound("v", 1), s.pod("w"), s.bound("w", 1))...)
				s.at(2, s.evicted("v", "g-1")...)
				s.at(8, s.gone("v"))
				s.at(8, s.evicted("w", "g-1")...)
				s.at(13)
			},
			"no futile eviction: gang a/g: since 12:00:02.000, 10.1 healthy seconds, 2 pods were evicted for it",
		},
		"the event names the preemptor in its text only": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 2, 2, priority(5)), s.pod("v"), s.bound("v", 1))...)
				uid := s.pods["v"].UID
				s.at(2, Told{&v1.Event{Reason: "Preempted", InvolvedObject: v1.ObjectReference{Kind: "Pod", UID: uid}, Message: "pod a/v: preempted by gang a/g (priority 5): need 2"}})
				s.at(3, s.marked("v"), s.deleting("v"))
				s.at(4, s.gone("v"))
				s.at(14)
			},
			"no futile eviction: gang a/g: since 12:00:03.000",
		},
		"one that was kept from its node for somebody is evicted later for another": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 2, 2, priority(5)), s.pod("p", priority(5)), s.pod("v"))...)
				s.at(2, Told{&v1.Event{
					Reason: "Preempted", InvolvedObject: v1.ObjectReference{Kind: "Pod", UID: s.pods["v"].UID},
					Message: "pod a/v: preempted by gang a/g (priority 5): need 2 (before it was on its node)",
				}})
				s.at(4, s.bound("g-0", 1), s.bound("g-1", 1), s.bound("v", 2))
				s.at(14, s.evicted("v", "p")...)
				s.at(15, s.gone("v"))
				s.at(25)
			},
			"no futile eviction: pod a/p: since 12:00:14.000",
		},
		"the event names the preemptor by its UID only": {
			func(s *story) {
				s.at(1, s.pod("p", priority(5)), s.pod("v"), s.bound("v", 1))
				s.pods["q"] = s.pods["p"].DeepCopy()
				s.pods["q"].Name, s.pods["q"].UID = "q", "12345678-1234-1234-1234-123456789012"
				s.at(2, PodSeen{s.pods["q"]}, s.marked("v"), s.deleting("v"))
				s.at(2, Told{&v1.Event{
					Reason: "Preempted", InvolvedObject: v1.ObjectReference{Kind: "Pod", UID: s.pods["v"].UID},
					Message: "Preempted by pod 12345678-1234-1234-1234-123456789012 on node n1",
				}})
				s.at(3, s.gone("v"))
				s.at(14)
			},
			"no futile eviction: pod a/q: since 12:00:02.000",
		},
		"a gang for which pods are evicted is placed in time": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 2, 2, priority(5)), s.pod("v"), s.bound("v", 1))...)
				s.at(2, s.evicted("v", "g-1")...)
				s.at(3, s.gone("v"), s.bound("g-0", 1), s.bound("g-1", 1))
				s.at(20)
			},
			"",
		},
		"a preemptor whose member is deleted": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 2, 2, priority(5)), s.pod("v"), s.bound("v", 1))...)
				s.at(2, s.evicted("v", "g-1")...)
				s.at(3, s.gone("g-0"))
				s.at(20)
			},
			"",
		},
		"a preemptor whose room went to something more important": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 2, 2, priority(5)), s.pod("v"), s.bound("v", 1), s.pod("urgent", priority(9)))...)
				s.at(2, s.evicted("v", "g-1")...)
				s.at(3, s.gone("v"), s.bound("urgent", 1))
				s.at(20)
			},
			"",
		},
		"a preemptor whose room went to something less important": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 2, 2, priority(5)), s.pod("v"), s.bound("v", 1), s.pod("thief", priority(1)))...)
				s.at(2, s.evicted("v", "g-1")...)
				s.at(3, s.gone("v"), s.bound("thief", 1))
				s.at(20)
			},
			"no futile eviction: gang a/g",
		},
		"a fault restarts the clock of a preemption": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 2, 2, priority(5)), s.pod("v"), s.bound("v", 1))...)
				s.at(2, s.evicted("v", "g-1")...)
				s.at(8, Health{[]string{"scheduler"}})
				s.at(14, Health{})
				s.at(25.5, s.gone("v"), s.bound("g-0", 1), s.bound("g-1", 1))
				s.at(40)
			},
			"",
		},
		"a fault does not pardon a preemption": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 2, 2, priority(5)), s.pod("v"), s.bound("v", 1))...)
				s.at(2, s.evicted("v", "g-1")...)
				s.at(3, Health{[]string{"scheduler"}})
				s.at(9, Health{}, s.gone("v"))
				s.at(22)
			},
			"no futile eviction: gang a/g: since 12:00:02.000, 12.1 healthy seconds after the last fault, 1 pods were evicted for it",
		},
		"a scheduler that watches asks an API server that was away rarely": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 2, 2, priority(5)), s.pod("v"), s.bound("v", 1))...)
				s.at(2, s.evicted("v", "g-1")...)
				s.at(3, Health{[]string{APIServer}})
				s.at(9, Health{})
				s.at(30, s.gone("v"), s.bound("g-0", 1), s.bound("g-1", 1))
				s.at(50)
			},
			"",
		},
		"whoever leads next evicts others, and the preemptor is never placed": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 2, 2, priority(5)), s.pod("v"), s.bound("v", 1), s.pod("w"), s.bound("w", 1))...)
				s.at(2, s.evicted("v", "g-1")...)
				s.at(2.1, Health{[]string{"scheduler"}})
				s.at(3, s.gone("v"))
				s.at(8, Health{})
				s.at(12, s.evicted("w", "g-1")...)
				s.at(13, s.gone("w"))
				s.at(30)
			},
			"no futile eviction: gang a/g: since 12:00:02.000, 12.1 healthy seconds after the last fault, 2 pods were evicted for it",
		},
		"whoever leads next evicts what a crash had spared": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 2, 2, priority(5)), s.pod("v"), s.bound("v", 1), s.pod("w"), s.bound("w", 1))...)
				s.at(2, s.evicted("v", "g-1")...)
				s.at(2.1, Health{[]string{"scheduler"}})
				s.at(3, s.gone("v"))
				s.at(8, Health{})
				s.at(12, s.evicted("w", "g-1")...)
				s.at(13, s.gone("w"), s.bound("g-0", 1), s.bound("g-1", 1))
				s.at(30)
			},
			"",
		},
		"whoever leads next evicts once, and once more": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 2, 2, priority(5)), s.pod("v"), s.bound("v", 1), s.pod("w"), s.bound("w", 1), s.pod("x"), s.bound("x", 1))...)
				s.at(2, s.evicted("v", "g-1")...)
				s.at(2.1, Health{[]string{"scheduler"}})
				s.at(3, s.gone("v"))
				s.at(8, Health{})
				s.at(9, s.evicted("w", "g-1")...)
				s.at(10, s.gone("w"))
				s.at(13, s.evicted("x", "g-1")...)
				s.at(14, s.gone("x"), s.bound("g-0", 1), s.bound("g-1", 1))
			},
			"no futile eviction: gang a/g: pod a/x was evicted for it at 12:00:13.000, when the 2 pods that were evicted for it since 12:00:02.000 had all ended at 12:00:10.000",
		},
		"after a fault something as important came first": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 2, 2, priority(5)), s.pod("v"), s.bound("v", 1), s.pod("first", priority(5)))...)
				s.at(2, s.evicted("v", "g-1")...)
				s.at(2.1, Health{[]string{"scheduler"}})
				s.at(8, s.gone("v"), Health{}, s.bound("first", 1))
				s.at(30)
			},
			"",
		},
		"an eviction that is first seen in a list": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 2, 2, priority(5)), s.pod("v"), s.bound("v", 1))...)
				told := s.evicted("v", "g-1")
				s.at(2, s.listed(), told[2])
				s.at(3, s.gone("v"))
				s.at(13)
			},
			"no futile eviction: gang a/g: since 12:00:02.000, 10.1 healthy seconds, 1 pods were evicted for it",
		},
		"a preemptor whose node is lost": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 2, 2, priority(5)), s.pod("v"), s.bound("v", 1))...)
				s.at(2, s.evicted("v", "g-1")...)
				s.at(2.5, s.nominated("g-0", 3))
				s.at(3, NodeGone{"n3"})
				s.at(30)
			},
			"",
		},
		"a user deletes what the scheduler has marked": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 2, 2, priority(5)), s.pod("v"), s.bound("v", 1))...)
				s.at(2, s.bound("g-0", 0), s.bound("g-1", 0))
				s.at(3, UserEnds{Pod: s.pods["v"].UID})
				s.at(3.1, s.evicted("v", "g-1")...)
			},
			"",
		},

		"a victim gang is left in part": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 3, 3), s.pod("p", priority(5), asking(4)))...)
				s.at(2, s.bound("g-0", 0), s.bound("g-1", 0), s.bound("g-2", 1))
				s.at(3, s.evicted("g-0", "p")...)
				s.at(3, s.evicted("g-1", "p")...)
				s.at(4, s.gone("g-0"), s.gone("g-1"), s.bound("p", 0))
				s.at(20)
			},
			"no victim gang left in part: gang a/g: the scheduler evicted 2 of its members from 12:00:03.000 on (a/g-0, a/g-1), and for 12.1 healthy seconds 1 of its minimum of 3 have been bound",
		},
		"a victim gang goes whole": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 2, 2), s.pod("p", priority(5)))...)
				s.at(2, s.bound("g-0", 0), s.bound("g-1", 0))
				s.at(3, s.evicted("g-0", "p")...)
				s.at(3.5, s.evicted("g-1", "p")...)
				s.at(4, s.gone("g-0"), s.gone("g-1"), s.bound("p", 0))
				s.at(20)
			},
			"",
		},
		"a victim gang loses what it can do without": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 3, 2), s.pod("p", priority(5)))...)
				s.at(2, s.bound("g-0", 0), s.bound("g-1", 0), s.bound("g-2", 0))
				s.at(3, s.evicted("g-0", "p")...)
				s.at(4, s.gone("g-0"), s.bound("p", 0))
				s.at(20)
			},
			"",
		},
		"what a victim gang has left has succeeded": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 3, 3), s.pod("p", priority(5), asking(4)))...)
				s.at(2, s.bound("g-0", 0), s.bound("g-1", 0), s.bound("g-2", 1))
				s.at(2.5, s.phase("g-2", v1.PodSucceeded))
				s.at(3, s.evicted("g-0", "p")...)
				s.at(3, s.evicted("g-1", "p")...)
				s.at(4, s.gone("g-0"), s.gone("g-1"), s.bound("p", 0))
				s.at(20)
			},
			"",
		},
		"an eviction that a crash interrupted and nobody finishes": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 3, 3), s.pod("p", priority(5)))...)
				s.at(2, s.bound("g-0", 0), s.bound("g-1", 0), s.bound("g-2", 0))
				s.at(3, s.evicted("g-0", "p")...)
				s.at(3.1, Health{[]string{"scheduler"}})
				s.at(9, Health{}, s.bound("p", 0))
				s.at(22)
			},
			"no victim gang left in part: gang a/g: the scheduler evicted 1 of its members",
		},
		"a victim gang loses another member by chance": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 3, 2), s.pod("p", priority(5)))...)
				s.at(2, s.bound("g-0", 0), s.bound("g-1", 0), s.bound("g-2", 0))
				s.at(3, s.phase("g-1", v1.PodFailed))
				s.at(3, s.evicted("g-0", "p")...)
				s.at(4, s.bound("p", 0))
				s.at(20)
			},
			"",
		},

		"a mark is left behind": {
			func(s *story) {
				s.at(1, s.pod("v"), s.bound("v", 1))
				s.at(2, s.marked("v"))
				s.at(20)
			},
			"nothing left over: pod a/v: marked as evicted at 12:00:02.000 or before, and it runs on: preempting",
		},
		"a gang that goes whole goes whole, though its preemptor is placed meanwhile": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 3, 3), s.pod("p", priority(5)))...)
				s.at(2, s.bound("g-0", 0), s.bound("g-1", 1), s.bound("g-2", 2))
				s.at(3, s.evicted("g-0", "p")...)
				s.at(4, s.gone("g-0"), s.bound("p", 0))
				s.at(6, append(s.evicted("g-1", "p"), s.evicted("g-2", "p")...)...)
			},
			"",
		},
		"a gang of which nothing went need not go for one that is placed": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 2, 2), s.pod("v"), s.pod("p", priority(5)))...)
				s.at(2, s.bound("g-0", 1), s.bound("g-1", 2), s.bound("v", 0))
				s.at(3, s.evicted("v", "p")...)
				s.at(4, s.gone("v"), s.bound("p", 0))
				s.at(6, s.evicted("g-0", "p")...)
			},
			"no eviction for a preemptor that is placed: pod a/p: pod a/g-0 was evicted from n1 for it at 12:00:06.000, when its minimum of 1 was bound",
		},
		"a member beyond the minimum takes surplus of another queue": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 2, 1, inQueue("low")), s.gangPods("h", 2, 1, inQueue("high"))...)...)
				s.at(2, s.bound("g-0", 0), s.bound("g-1", 1), s.bound("h-0", 2))
				s.at(4, s.evicted("g-1", "h-1")...)
				s.at(5, s.gone("g-1"), s.bound("h-1", 1))
			},
			"",
		},
		"a member beyond the minimum takes surplus of its own queue": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 2, 1), s.gangPods("h", 2, 1)...)...)
				s.at(2, s.bound("g-0", 0), s.bound("g-1", 1), s.bound("h-0", 2))
				s.at(4, s.evicted("g-1", "h-1")...)
			},
			"no eviction for a preemptor that is placed: gang a/h: pod a/g-1 was evicted from n1 for it at 12:00:04.000, when its minimum of 1 was bound",
		},
		"a member beyond the minimum breaks a gang of another queue": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 2, 2, inQueue("low")), s.gangPods("h", 2, 1, inQueue("high"))...)...)
				s.at(2, s.bound("g-0", 0), s.bound("g-1", 1), s.bound("h-0", 2))
				s.at(4, s.evicted("g-1", "h-1")...)
			},
			"no eviction for a preemptor that is placed: gang a/h: pod a/g-1 was evicted from n1 for it at 12:00:04.000, when its minimum of 1 was bound",
		},
	})
}
