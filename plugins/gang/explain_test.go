package gang

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
)

// groupOf joins attempts into one of a group of gangs.
func groupOf(attempts ...*gangstate.Attempt) *gangstate.Attempt {
	all := &gangstate.Attempt{Group: attempts[0].Group, Leader: attempts[0].Leader, Strict: true}
	for _, a := range attempts {
		all.Gangs = append(all.Gangs, a.Gangs...)
	}
	return all
}

func needs(name string, members int, spec gangspec.Spec, change func(int, *st.PodWrapper)) *gangstate.Attempt {
	return attemptOf(makeMembers(name, members, 1, change), spec)
}

// placed returns an attempt in which some members have a node already.
func placed(a *gangstate.Attempt, nodes ...string) *gangstate.Attempt {
	need := &a.Gangs[0]
	for i, node := range nodes {
		need.Placed = append(need.Placed, gangstate.Placed{Pod: need.Pending[i], Node: node})
	}
	need.Pending = need.Pending[len(nodes):]
	need.Min -= len(nodes)
	return a
}

// withRoles returns an attempt whose minimum is a launcher, and workers that make up the rest.
func withRoles(a *gangstate.Attempt, least int) *gangstate.Attempt {
	a.Gangs[0].Min, a.Gangs[0].Spec.Min = least, least
	a.Gangs[0].MinByRole = map[string]int{"launcher": 1, "worker": least - 1}
	return a
}

// scattered is in the message where a gang fits in no rack, but in several.
const scattered = "; several racks together have room for it, but autoscalers try pods one by one and add no nodes: add some to one rack, or make the topology a preferred one"

func TestExplanations(t *testing.T) {
	required := gangspec.Spec{RequiredTopology: rack}
	noNode := func(_ int, pod *st.PodWrapper) { pod.NodeSelector(map[string]string{"kind": "none"}) }
	launcher := func(i int, pod *st.PodWrapper) {
		if pod.Label(v1alpha1.RoleLabel, "worker"); i == 1 {
			pod.Label(v1alpha1.RoleLabel, "launcher").Containers(nil).Req(map[v1.ResourceName]string{gpu: "9"})
		}
	}
	const tooLarge = `; it would not fit even if the cluster were empty: the nodes have room for 2 of 3 members` +
		`; pod train-0001 asks for 9 nvidia.com/gpu, and no node that it may use has more than 8 nvidia.com/gpu`
	apart := constraints["each on a node of its own"]
	twoNodes, fourRacks := makeNodes(2, 2), makeNodes(4, 4)
	withoutRack := makeNodes(2, 1)
	for _, node := range withoutRack {
		delete(node.Labels, rack)
	}
	sharing := gangspec.Spec{RequiredTopology: rack}
	sharing.Layout.Shared = true
	twoRacks := makeNodes(2, 2)
	const (
		noRack = ` does not fit together with its group in any rack: rack r0: 3 of 5 members fit; short 2 nvidia.com/gpu; ` +
			`rack r1: 3 of 5 members fit; short 2 nvidia.com/gpu`
		tooMuch = ` does not fit together with its group in any rack: rack r0: 1 of 2 members fit; short 1 nvidia.com/gpu; ` +
			`rack r1: 1 of 2 members fit; short 1 nvidia.com/gpu (of 2 nodes: 2 Insufficient nvidia.com/gpu); its group would not fit even if the cluster were empty: ` +
			`together they need 9 nvidia.com/gpu in one rack, and no rack has more than 8 nvidia.com/gpu`
	)
	tainted := makeNodes(4, 2)
	tainted[0].Spec.Taints = []v1.Taint{{Key: "maintenance", Value: "true", Effect: v1.TaintEffectNoSchedule}}
	tainted[2].Spec.Unschedulable, tainted[3].Spec.Unschedulable = true, true
	fewPods := makeNodes(2, 2)
	for _, node := range fewPods {
		node.Status.Allocatable[v1.ResourcePods] = apiresource.MustParse("2")
	}
	for sentence, c := range map[string]struct {
		nodes   []*v1.Node
		pods    []*v1.Pod
		attempt *gangstate.Attempt
		want    []string // by gang of the attempt
	}{
		"it fits": {nodes: twoNodes, attempt: needs("train", 16, gangspec.Spec{}, nil), want: []string{""}},
		"how many fit, what is short, and what nodes lack": {
			nodes: twoNodes, pods: fill(twoNodes, 3), attempt: needs("train", 8, gangspec.Spec{}, nil),
			want: []string{`gang "default/train": 6 of 8 members fit; short 2 nvidia.com/gpu`},
		},
		"nothing fits": {
			nodes: twoNodes, pods: fill(twoNodes, 0), attempt: needs("train", 2, gangspec.Spec{}, nil),
			want: []string{`gang "default/train": 0 of 2 members fit; short 2 nvidia.com/gpu (of 2 nodes: 2 Insufficient nvidia.com/gpu)`},
		},
		"more than there is": {
			nodes: twoNodes, pods: fill(twoNodes, 3), attempt: placed(needs("train", 20, gangspec.Spec{}, nil), "node-0000"),
			want: []string{`gang "default/train": 7 of 20 members fit; short 13 nvidia.com/gpu; it would not fit even if the cluster were empty: the nodes have room for 17 of 20 members`},
		},
		"nodes have room for no more pods, whatever these ask for": {
			nodes: fewPods, attempt: needs("train", 5, gangspec.Spec{}, nil),
			want: []string{`gang "default/train": 4 of 5 members fit; short 1 pods; it would not fit even if the cluster were empty: the nodes have room for 4 of 5 members`},
		},
		"a filter refuses nodes": {
			nodes: twoNodes, attempt: needs("train", 2, gangspec.Spec{}, noNode),
			want: []string{`gang "default/train": 0 of 2 members fit (of 2 nodes: 2 node(s) didn't match Pod's node affinity/selector); ` +
				`it would not fit even if the cluster were empty: the nodes have room for 0 of 2 members`},
		},
		"a full node that members may not use lacks nothing": {
			nodes: twoNodes, pods: fill(twoNodes, 0), attempt: needs("train", 2, gangspec.Spec{}, noNode),
			want: []string{`gang "default/train": 0 of 2 members fit (of 2 nodes: 2 node(s) didn't match Pod's node affinity/selector); ` +
				`it would not fit even if the cluster were empty: the nodes have room for 0 of 2 members`},
		},
		"which nodes of a domain members may not use, and why": {
			nodes: tainted, pods: fill(tainted, 2), attempt: needs("train", 3, required, nil),
			want: []string{`gang "default/train" does not fit in any rack: ` +
				`rack r0: 2 of 3 members fit; short 1 nvidia.com/gpu; node-0000 had untolerated taint {maintenance}; ` +
				`rack r1: 0 of 3 members fit, no node is usable (of 4 nodes: 2 node(s) were unschedulable, 1 node(s) had untolerated taint {maintenance})`},
		},
		"members stand in each other's way": {
			nodes: twoNodes, attempt: needs("train", 3, gangspec.Spec{}, apart),
			want: []string{`gang "default/train": 2 of 3 members fit (of 2 nodes: 2 node(s) didn't match pod anti-affinity rules); ` +
				`it would not fit even if the cluster were empty: the nodes have room for 2 of 3 members`},
		},
		"a member is larger than any node": {
			nodes: twoNodes, attempt: withRoles(needs("train", 3, gangspec.Spec{}, launcher), 3),
			want: []string{`gang "default/train": 2 of 3 members fit; short 9 nvidia.com/gpu (of 2 nodes: 2 Insufficient nvidia.com/gpu)` + tooLarge},
		},
		"a member of a role is, and others are beyond their minimum": {
			nodes: twoNodes, attempt: withRoles(needs("train", 5, gangspec.Spec{}, launcher), 3),
			want: []string{`gang "default/train": 2 of 3 members fit; short 9 nvidia.com/gpu (of 2 nodes: 2 Insufficient nvidia.com/gpu)` + tooLarge},
		},
		"members that have a node count": {
			nodes: twoNodes, pods: fill(twoNodes, 1), attempt: placed(needs("train", 4, gangspec.Spec{}, nil), "node-0000"),
			want: []string{`gang "default/train": 3 of 4 members fit; short 1 nvidia.com/gpu`},
		},
		"of a stage, which": {
			nodes: twoNodes, pods: fill(twoNodes, 1), attempt: placed(needs("train", 4, gangspec.Spec{Stages: gangspec.Stages{1, 4, 6}}, nil), "node-0000"),
			want: []string{`gang "default/train": 3 of 4 members fit for stage 2 of 3; short 1 nvidia.com/gpu`},
		},
		"in a domain, too": {
			nodes: fourRacks, pods: fill(fourRacks, 1), attempt: placed(needs("train", 3, gangspec.Spec{RequiredTopology: rack, Stages: gangspec.Stages{1, 3}}, nil), "node-0002"),
			want: []string{`gang "default/train" does not fit for stage 2 of 2 in any rack: rack r2: 2 of 3 members fit; short 1 nvidia.com/gpu`},
		},
		"each domain, of a required topology": {
			nodes: fourRacks, pods: fill(fourRacks, 2), attempt: needs("train", 4, required, nil),
			want: []string{`gang "default/train" does not fit in any rack: rack r0: 2 of 4 members fit; short 2 nvidia.com/gpu; rack r1: 2 of 4 members fit; short 2 nvidia.com/gpu; ` +
				`rack r2: 2 of 4 members fit; short 2 nvidia.com/gpu; rack r3: 2 of 4 members fit; short 2 nvidia.com/gpu` + scattered},
		},
		"the domain that the members run in": {
			nodes: fourRacks, pods: fill(fourRacks, 1), attempt: placed(needs("train", 3, required, nil), "node-0002"),
			want: []string{`gang "default/train" does not fit in any rack: rack r2: 2 of 3 members fit; short 1 nvidia.com/gpu`},
		},
		"no node has the label": {
			nodes: withoutRack, attempt: needs("train", 2, required, nil),
			want: []string{`gang "default/train": no node has the label topology.example.com/rack, which it requires as its topology`},
		},
		"gangs of a group that fit, but not together": {
			nodes: twoNodes, pods: fill(twoNodes, 3), attempt: groupOf(needs("a", 4, gangspec.Spec{}, nil), needs("b", 4, gangspec.Spec{}, nil)),
			want: []string{`gang "default/a" fits, but not together with gang "default/b" of its group`, `gang "default/b": 2 of 4 members fit; short 2 nvidia.com/gpu`},
		},
		"a gang of a group that does not fit says what it lacks, the other that it would": {
			nodes: fourRacks, attempt: groupOf(needs("a", 9, required, nil), needs("b", 8, required, nil)),
			want: []string{
				`gang "default/a" does not fit in any rack: rack r0: 8 of 9 members fit; short 1 nvidia.com/gpu; rack r1: 8 of 9 members fit; short 1 nvidia.com/gpu; ` +
					`rack r2: 8 of 9 members fit; short 1 nvidia.com/gpu; rack r3: 8 of 9 members fit; short 1 nvidia.com/gpu` + scattered +
					`; it would not fit even if the cluster were empty: the nodes of one rack have room for 8 of 9 members`,
				`gang "default/b" fits, but not together with gang "default/a" of its group`,
			},
		},
		"gangs that must share a rack": {
			nodes: twoRacks, pods: fill(twoRacks, 3), attempt: groupOf(needs("lead", 1, sharing, nil), needs("work", 4, sharing, nil)),
			want: []string{`gang "default/lead"` + noRack, `gang "default/work"` + noRack},
		},
		"gangs that together need more than any rack has": {
			nodes: twoRacks, attempt: groupOf(needs("lead", 1, sharing, nil), needs("work", 1, sharing, func(_ int, pod *st.PodWrapper) {
				pod.Containers(nil).Req(map[v1.ResourceName]string{gpu: "8"})
			})),
			want: []string{`gang "default/lead"` + tooMuch, `gang "default/work"` + tooMuch},
		},
		"a gang of a group that runs has nothing to explain": {
			nodes: twoNodes, pods: fill(twoNodes, 0), attempt: groupOf(needs("a", 1, gangspec.Spec{}, nil), placed(needs("b", 1, gangspec.Spec{}, nil), "node-0000")),
			want: []string{`gang "default/a": 0 of 1 members fit; short 1 nvidia.com/gpu (of 2 nodes: 2 Insufficient nvidia.com/gpu)`, ""},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t, c.nodes, c.pods...)
			first := mustPlan(t, s, c.attempt)
			for i, need := range c.attempt.Gangs {
				if diff := cmp.Diff(c.want[i], first.Why[need.Key]); diff != "" {
					t.Errorf("explanation of %s (-want +got):\n%s", need.Key, diff)
				}
				topology := ""
				if strings.Contains(c.want[i], scattered) {
					topology = rack
				}
				if got := first.Scattered[need.Key]; got != topology {
					t.Errorf("the topology that alone keeps %s waiting: %q, want %q, as is said", need.Key, got, topology)
				}
			}
			// The failure handler writes what changed: the message must not change unless the facts do.
			for range 3 {
				if diff := cmp.Diff(first.Why, mustPlan(t, s, c.attempt).Why); diff != "" {
					t.Errorf("explanation of the next attempt (-first +next):\n%s", diff)
				}
			}
		})
	}
}

// TestRolesInSlices: a slice mixes members of all roles. On empty nodes a leader and four workers fit in each rack, so
// the gang is not hopeless while they are in use.
func TestRolesInSlices(t *testing.T) {
	nodes := makeNodes(2, 2)
	a := needs("train", 10, gangspec.Spec{Layout: gangspec.Layout{Levels: []gangspec.Level{{Key: rack, Slice: 5}}}},
		func(i int, pod *st.PodWrapper) {
			role, asks := "worker", "2"
			if i%5 == 0 {
				role, asks = "leader", "0"
			}
			pod.Label(v1alpha1.RoleLabel, role).Containers(nil).Req(map[v1.ResourceName]string{gpu: asks})
		})
	a.Gangs[0].MinByRole = map[string]int{"leader": 2, "worker": 8}
	if plan := mustPlan(t, newStage(t, nodes), a); !plan.Complete {
		t.Fatalf("it does not fit on empty nodes: %v", plan.Why)
	}
	if plan := mustPlan(t, newStage(t, nodes, fill(nodes, 7)...), a); plan.Complete || plan.Hopeless {
		t.Errorf("on nodes in use: complete: %t, hopeless: %t, %v", plan.Complete, plan.Hopeless, plan.Why)
	}
}

// TestScatteredTogether: for gangs that have to be in one rack together, room for one of them alone is of no use.
func TestScatteredTogether(t *testing.T) {
	spec := gangspec.Spec{RequiredTopology: rack, Layout: gangspec.Layout{Shared: true}}
	s := newStage(t, makeNodes(4, 4))
	if plan := mustPlan(t, s, groupOf(needs("a", 9, spec, nil), needs("b", 9, spec, nil))); plan.Complete || len(plan.Scattered) > 0 {
		t.Errorf("complete: %t, scattered: %v; want neither", plan.Complete, plan.Scattered)
	}
}

// TestExplanationsOfManyDomains: eight domains are named, the others counted.
func TestExplanationsOfManyDomains(t *testing.T) {
	nodes := makeNodes(12, 12)
	s := newStage(t, nodes, fill(nodes, 1)...)
	want := `gang "default/train" does not fit in any rack: `
	for _, r := range []int{0, 1, 10, 11, 2, 3, 4, 5} { // as strings sort
		want += fmt.Sprintf("rack r%d: 1 of 2 members fit; short 1 nvidia.com/gpu; ", r)
	}
	want += "and 4 more, none with more room" + scattered
	got := mustPlan(t, s, needs("train", 2, gangspec.Spec{RequiredTopology: rack}, nil)).Why[gangspec.Key{Namespace: "default", Name: "train"}]
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("explanation (-want +got):\n%s", diff)
	}
}

// TestExplanationsDoNotFlicker: attempts begin their sweep at another node each
// time. Their message is the same: otherwise every attempt would be written to every
// member.
func TestExplanationsDoNotFlicker(t *testing.T) {
	explained := 0
	byRack := gangspec.Layout{Levels: []gangspec.Level{{Key: rack}}}
	for seed := range uint64(20) {
		s, members := randomStage(t, seed)
		for _, spec := range []gangspec.Spec{{}, {RequiredTopology: rack}, {Layout: byRack}, {RequiredTopology: v1.LabelTopologyZone, Layout: byRack}} {
			a := attemptOf(members, spec)
			first := mustPlan(t, s, a)
			if first.Complete {
				continue
			}
			explained++
			for range 4 {
				if diff := cmp.Diff(first.Why, mustPlan(t, s, a).Why); diff != "" {
					t.Fatalf("seed %d, %+v: explanation of the next attempt (-first +next):\n%s", seed, spec, diff)
				}
			}
		}
	}
	if explained < 10 {
		t.Errorf("only %d attempts had to be explained", explained)
	}
}
