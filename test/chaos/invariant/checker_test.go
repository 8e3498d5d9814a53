package invariant

import (
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestChecker: every invariant can fail, and what looks like a failure and is none is not
// taken for one.
func TestChecker(t *testing.T) {
	judge(t, map[string]tale{
		"a node is oversold": {
			func(s *story) {
				s.at(1, s.gangPods("g", 5, 5)...)
				s.at(2, s.bound("g-0", 0), s.bound("g-1", 0), s.bound("g-2", 0), s.bound("g-3", 0), s.bound("g-4", 0))
			},
			"nothing oversold: node n0: its pods ask for 10 nvidia.com/gpu of 8: a/g-0, a/g-1, a/g-2, a/g-3, a/g-4",
		},
		"a node has too many pods": {
			func(s *story) {
				s.at(1, s.gangPods("g", 6, 6, asking(1))...)
				s.at(2, s.bound("g-0", 0), s.bound("g-1", 0), s.bound("g-2", 0), s.bound("g-3", 0), s.bound("g-4", 0), s.bound("g-5", 0))
			},
			"nothing oversold: node n0: its pods ask for 6 pods of 5",
		},
		"a node is given again what a pod gave back": {
			func(s *story) {
				s.at(1, s.pod("a", asking(8)), s.pod("b", asking(8)), s.pod("c", asking(8)), s.bound("a", 0))
				s.at(2, s.phase("a", v1.PodSucceeded), s.bound("b", 0))
				s.at(3, s.deleting("b"))
				s.at(4, s.gone("b"), s.bound("c", 0))
			},
			"",
		},
		"a pod that is ending still uses its node": {
			func(s *story) {
				s.at(1, s.pod("a", asking(8)), s.pod("b", asking(8)), s.bound("a", 0))
				s.at(2, s.deleting("a"), s.bound("b", 0))
			},
			"nothing oversold: node n0: its pods ask for 16 nvidia.com/gpu of 8: a/a, a/b",
		},
		"what changed while nobody watched has no order": {
			func(s *story) {
				s.at(1, s.pod("a", asking(8)), s.pod("b", asking(8)), s.bound("a", 0))
				s.phase("a", v1.PodSucceeded)
				s.bound("b", 0)
				s.at(2, s.listed())
			},
			"",
		},
		"a node that is oversold in a list": {
			func(s *story) {
				s.at(1, s.pod("a", asking(8)), s.pod("b", asking(8)), s.bound("a", 0))
				s.bound("b", 0)
				s.at(2, s.listed())
			},
			"nothing oversold: node n0: its pods ask for 16 nvidia.com/gpu of 8: a/a, a/b",
		},
		"a kubelet refuses a pod": {
			func(s *story) {
				s.at(1, s.pod("a"), s.bound("a", 0))
				s.at(2, s.changed("a", func(p *v1.Pod) {
					p.Status = v1.PodStatus{Phase: v1.PodFailed, Reason: "OutOfcpu", Message: "Pod was rejected: requested: 1, used: 4, capacity: 4"}
				}))
			},
			"no pod refused by its node: pod a/a: node n0 says OutOfcpu: Pod was rejected: requested: 1, used: 4, capacity: 4",
		},
		"a node that comes back with the pods that it had is asked for no more than before": {
			func(s *story) {
				s.at(1, s.pod("a", asking(8)), s.bound("a", 0))
				s.at(2, NodeGone{"n0"})
				s.at(3, NodeSeen{s.node(0, false)})
			},
			"",
		},
		"a node that comes back is given away a second time": {
			func(s *story) {
				s.at(1, s.pod("a", asking(8)), s.pod("b", asking(8)), s.bound("a", 0))
				s.at(2, NodeGone{"n0"})
				s.at(2.5, s.bound("b", 0))
				s.at(3, NodeSeen{s.node(0, false)})
			},
			"nothing oversold: node n0: its pods ask for 16 nvidia.com/gpu of 8: a/a, a/b",
		},

		"a pod is evicted for one that fits on no node": {
			func(s *story) {
				s.at(1, s.pod("v", asking(8)), s.pod("p", asking(1<<60), priority(5), badInput), s.bound("v", 0))
				s.at(2, s.evicted("v", "p")...)
			},
			"no futile eviction: pod a/p: pod a/v was evicted from n0 for it at 12:00:02.000, and its pod a/p asks for more than any node has",
		},
		"amounts that no sum has room for": {
			func(s *story) {
				for i := range 9 {
					s.at(1, s.pod("p"+strconv.Itoa(i), func(p *v1.Pod) {
						for _, name := range []v1.ResourceName{gpu, v1.ResourceCPU, v1.ResourceMemory} {
							p.Spec.Containers[0].Resources.Requests[name] = resource.MustParse("1e30")
						}
					}))
				}
				s.at(2, s.bound("p0", 0))
			},
			"nothing oversold: node n0: its pods ask for 1.125899906842624e+12 cpu of 32, 1073741824Mi memory of 0Mi, 1125899906842624 nvidia.com/gpu of 8: a/p0",
		},
		"a gang whose name has lines is reported on one": {
			func(s *story) {
				s.at(1, s.gangPods("g\n\x1bh", 4, 4)...)
				s.at(2, s.bound("g\n\x1bh-0", 0))
				s.at(6)
			},
			`nothing partial for long: gang a/g\n\x1bh: 1 of its minimum of 4 bound for 3.`,
		},

		"a queue has something when everything was deleted": {
			func(s *story) {
				s.check.CheckRemains(Remains{Queues: []QueueUse{{Name: "q", Requested: v1.ResourceList{gpu: resource.MustParse("-1")}}}})
			},
			"sums are 0 in the end: queue q: nvidia.com/gpu requested is -1 when everything was deleted",
		},
		"a finalizer is on something when everything was deleted": {
			func(s *story) {
				s.check.CheckRemains(Remains{Objects: []Remaining{{Object: "PodMigration a/m", Finalizers: []string{"x/release"}}}})
			},
			"nothing left over: PodMigration a/m: it has the finalizers x/release when everything was deleted",
		},
		"a queue has nothing of many resources": {
			func(s *story) {
				none := v1.ResourceList{gpu: resource.MustParse("0"), v1.ResourceCPU: resource.MustParse("0m")}
				s.check.CheckRemains(Remains{Queues: []QueueUse{{Name: "q", Allocated: none, Requested: none}}, Objects: []Remaining{{Object: "Queue /q"}}})
			},
			"",
		},

		"a gang is partial for long": {
			func(s *story) {
				s.at(1, s.gangPods("g", 4, 4)...)
				s.at(2, s.bound("g-0", 0), s.bound("g-1", 0))
				s.at(6)
			},
			"nothing partial for long: gang a/g: 2 of its minimum of 4 bound for 3.",
		},
		"a gang is partial for a burst": {
			func(s *story) {
				s.at(1, s.gangPods("g", 4, 4)...)
				s.at(2, s.bound("g-0", 0), s.bound("g-1", 0))
				s.at(4.5, s.bound("g-2", 0), s.bound("g-3", 1))
				s.at(10)
			},
			"",
		},
		"partial time while something is faulty does not count": {
			func(s *story) {
				s.at(1, s.gangPods("g", 4, 4)...)
				s.at(2, s.bound("g-0", 0), s.bound("g-1", 0))
				s.at(3, Health{[]string{"scheduler"}})
				s.at(9, Health{})
				s.at(10.5, s.bound("g-2", 0), s.bound("g-3", 1))
				s.at(15)
			},
			"",
		},
		"a crash in mid-release is no excuse for ever": {
			func(s *story) {
				s.at(1, s.gangPods("g", 4, 4)...)
				s.at(2, s.bound("g-0", 0), s.bound("g-1", 0))
				s.at(2.1, Health{[]string{"scheduler"}})
				s.at(9, Health{})
				s.at(13)
			},
			"nothing partial for long: gang a/g: 2 of its minimum of 4 bound",
		},
		"a gang of a PodGroup is partial for long": {
			func(s *story) {
				s.at(1, GroupSeen{Group{Key: "a/g", UID: "1", Min: 3}}, s.pod("x", inGroup("g")), s.pod("y", inGroup("g")), s.pod("z", inGroup("g")))
				s.at(2, s.bound("x", 0))
				s.at(6)
			},
			"nothing partial for long: gang a/g: 1 of its minimum of 3 bound",
		},
		"a gang that lost a member after it started is in repair": {
			func(s *story) {
				s.at(1, s.gangPods("g", 2, 2)...)
				s.at(2, s.bound("g-0", 0), s.bound("g-1", 0))
				s.at(3, s.deleting("g-0"))
				s.at(20, s.gone("g-0"))
			},
			"",
		},
		"a gang that lost a member before it started is in repair": {
			func(s *story) {
				s.at(1, s.gangPods("g", 3, 3)...)
				s.at(2, s.bound("g-0", 0), s.bound("g-1", 0))
				s.at(3, s.phase("g-0", v1.PodFailed))
				s.at(20)
			},
			"",
		},
		"a gang of which all ended begins a new life": {
			func(s *story) {
				s.at(1, s.gangPods("g", 2, 2)...)
				s.at(2, s.bound("g-0", 0), s.bound("g-1", 0))
				s.at(3, s.deleting("g-0"), s.deleting("g-1"))
				s.at(4, s.gone("g-0"), s.gone("g-1"))
				s.at(5, s.gangPods("g", 2, 2)...)
				s.at(6, s.bound("g-0", 0))
				s.at(10)
			},
			"nothing partial for long: gang a/g: 1 of its minimum of 2 bound",
		},
		"what ended while nobody watched may have run with the others": {
			func(s *story) {
				s.at(1, s.gangPods("g", 2, 2)...)
				s.at(2)
				s.bound("g-0", 0)
				delete(s.pods, "g-1")
				s.at(3, s.listed())
				s.at(20, s.gangPods("g", 2, 2)[1])
			},
			"",
		},
		"what was bound while nobody watched, and no more": {
			func(s *story) {
				s.at(1, s.gangPods("g", 2, 2)...)
				s.bound("g-0", 0)
				s.at(3, s.listed())
				s.at(20)
			},
			"nothing partial for long: gang a/g: 1 of its minimum of 2 bound",
		},
		"a gang that cannot start since its PodGroup is gone": {
			func(s *story) {
				s.at(1, GroupSeen{Group{Key: "a/g", UID: "1", Min: 2}}, s.pod("x", inGroup("g")), s.pod("y", inGroup("g")))
				s.at(2, s.bound("x", 0))
				s.at(2.1, GroupGone{"a/g"})
				s.at(20)
			},
			"",
		},
		"a node with room was lost while a gang was being released, and there is no other": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 2, 2), s.pod("x", asking(6)), s.pod("y", asking(8)), s.pod("z", asking(8)))...)
				s.at(2, s.bound("x", 0), s.bound("y", 1), s.bound("z", 2), NodeSeen{s.node(3, true)})
				s.at(2.5, s.bound("g-0", 0))
				s.at(30)
			},
			"",
		},
		"a node with room was lost while a gang was being released, and there is other": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 2, 2), s.pod("x", asking(8)), s.bound("x", 1))...)
				s.at(2, s.bound("g-0", 0))
				s.at(2.5, NodeSeen{s.node(3, true)})
				s.at(12, NodeSeen{s.node(2, true)})
				s.at(25)
			},
			"nothing partial for long: gang a/g: 1 of its minimum of 2 bound since 12:00:02.000, and never all of it; before, node n2 was lost, " +
				"and for 12.1 healthy seconds since 12:00:12.000",
		},
		"a node on which others wait for room was lost while a gang was being released": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 2, 2), s.pod("x", asking(8)), s.pod("y", asking(8)), s.pod("z", asking(8)), s.bound("x", 1))...)
				s.at(2, s.bound("g-0", 0))
				s.at(2.5, NodeSeen{s.node(3, true)})
				s.at(30)
			},
			"",
		},
		"a node without room was lost while a gang was being released": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 2, 2), s.pod("x", asking(8)), s.bound("x", 3))...)
				s.at(2, NodeSeen{s.node(3, true)})
				s.at(2.5, s.bound("g-0", 0))
				s.at(3, NodeGone{"n3"})
				s.at(12.5)
			},
			"nothing partial for long: gang a/g: 1 of its minimum of 2 bound for 3.1 healthy seconds",
		},
		"a member was deleted while its gang was being released": {
			func(s *story) {
				s.at(1, s.gangPods("g", 2, 2)...)
				s.at(2, s.deleting("g-1"))
				s.at(3, s.gone("g-1"), s.bound("g-0", 0))
				s.at(20, s.gangPods("g", 2, 2)[1])
				s.at(29, s.bound("g-1", 0))
				s.at(40)
			},
			"",
		},
		"a member was deleted while its gang was being released, and is never replaced though there is room": {
			func(s *story) {
				s.at(1, s.gangPods("g", 2, 2)...)
				s.at(2, s.deleting("g-1"))
				s.at(3, s.gone("g-1"), s.bound("g-0", 0))
				s.at(10, s.gangPods("g", 2, 2)[1])
				s.at(25)
			},
			"nothing partial for long: gang a/g: 1 of its minimum of 2 bound since 12:00:03.000, and never all of it; before, lost pod a/g-1, and for 12.1 healthy seconds since",
		},
		"a machine that stands still does not count": {
			func(s *story) {
				s.at(1, s.gangPods("g", 2, 2)...)
				s.at(2, s.bound("g-0", 0))
				s.last = s.last.Add(10e9)
				s.at(12.5, s.bound("g-1", 0))
				s.at(14)
			},
			"",
		},

		"a group of gangs starts in part": {
			func(s *story) {
				groups := annotated(keyGroups, `["a/g","a/h"]`)
				s.at(1, append(s.gangPods("g", 2, 2, groups), s.gangPods("h", 2, 2, groups)...)...)
				s.at(2, s.bound("g-0", 0), s.bound("g-1", 0))
				s.at(8)
			},
			"no group of gangs in part for long: gang a/g: it has started at 12:00:02.000",
		},
		"a group of gangs starts in part when a node without room was lost": {
			func(s *story) {
				groups := annotated(keyGroups, `["a/g","a/h"]`)
				s.at(1, append(append(s.gangPods("g", 2, 2, groups), s.gangPods("h", 2, 2, groups)...), s.pod("x", asking(8)), s.bound("x", 3))...)
				s.at(2, s.bound("g-0", 0), s.bound("g-1", 0), NodeSeen{s.node(3, true)})
				s.at(8)
			},
			"no group of gangs in part for long: gang a/g: it has started at 12:00:02.000",
		},
		"a group of gangs starts in part when a node with room was lost": {
			func(s *story) {
				groups := annotated(keyGroups, `["a/g","a/h"]`)
				s.at(1, append(s.gangPods("g", 2, 2, groups), s.gangPods("h", 2, 2, groups)...)...)
				s.at(2, s.bound("g-0", 0), s.bound("g-1", 0), NodeSeen{s.node(3, true)})
				s.at(8)
			},
			"",
		},
		"a group of gangs starts together": {
			func(s *story) {
				groups := annotated(keyGroups, `["a/g","a/h"]`)
				s.at(1, append(s.gangPods("g", 2, 2, groups), s.gangPods("h", 2, 2, groups)...)...)
				s.at(2, s.bound("g-0", 0), s.bound("g-1", 0), s.bound("h-0", 1), s.bound("h-1", 1))
				s.at(3, s.deleting("h-0"), s.deleting("h-1"))
				s.at(4, s.gone("h-0"), s.gone("h-1"))
				s.at(20, s.gangPods("h", 2, 2, groups)...)
				s.at(30)
			},
			"",
		},

		"a gang with a required rack is in two": {
			func(s *story) {
				s.at(1, s.gangPods("g", 2, 2, annotated(keyTopology, "rack"))...)
				s.at(2, s.bound("g-0", 1), s.bound("g-1", 2))
				s.at(3)
			},
			"no required topology split: gang a/g: it requires one rack and is in 2: r0: a/g-0 on n1; r1: a/g-1 on n2",
		},
		"a gang whose node is gone goes to another rack": {
			func(s *story) {
				s.at(1, s.gangPods("g", 2, 1, annotated(keyTopology, "rack"))...)
				s.at(2, s.bound("g-0", 1))
				s.at(3, s.bound("g-1", 2), NodeGone{"n1"})
				s.at(4)
			},
			"",
		},

		"a pod is evicted for a gang that has its minimum": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 3, 2, priority(5)), s.pod("v"), s.bound("v", 1))...)
				s.at(2, s.bound("g-0", 0), s.bound("g-1", 0))
				s.at(3, s.evicted("v", "g-2")...)
			},
			"no eviction for a preemptor that is placed: gang a/g: pod a/v was evicted from n1 for it at 12:00:03.000, when its minimum of 2 was bound",
		},
		"an eviction was on its way when the preemptor was bound": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 2, 2, priority(5)), s.pod("v"), s.bound("v", 1))...)
				s.at(2, s.bound("g-0", 0), s.bound("g-1", 0))
				s.at(2.1, s.evicted("v", "g-1")...)
			},
			"",
		},
		"an eviction was on its way for as long as the API server takes to answer": {
			func(s *story) {
				s.at(1, append(s.gangPods("g", 2, 2, priority(5)), s.pod("v"), s.bound("v", 1))...)
				s.at(2, s.bound("g-0", 0), s.bound("g-1", 0), Answered{time.Second})
				s.at(3, s.evicted("v", "g-1")...)
			},
			"",
		},
	})
}
