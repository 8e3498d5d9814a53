package ledger

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

const gpu v1.ResourceName = "nvidia.com/gpu"

type amounts = map[v1.ResourceName]string

func podInfo(t testing.TB, pod *v1.Pod) fwk.PodInfo {
	t.Helper()
	info, err := framework.NewPodInfo(pod)
	must.Succeed(t, err)
	return info
}

// node returns a node of 4 GPUs, 4 CPUs and 3 pods with pods on it.
func node(t testing.TB, pods ...*v1.Pod) fwk.NodeInfo {
	t.Helper()
	info := framework.NewNodeInfo()
	info.SetNode(st.MakeNode().Name("n").Capacity(amounts{gpu: "4", v1.ResourceCPU: "4", v1.ResourcePods: "3"}).Obj())
	for _, pod := range pods {
		info.AddPodInfo(podInfo(t, pod))
	}
	return info
}

func put(h *Shared, holds ...hold.Hold) {
	for _, one := range holds {
		h.FollowPlan(one.Holder, nil, []hold.Hold{one})
	}
}

func TestDemandOf(t *testing.T) {
	sidecar := v1.ContainerRestartPolicyAlways
	for sentence, c := range map[string]struct {
		pod  *v1.Pod
		want Demand
	}{
		"a pod that asks for nothing takes nothing": {st.MakePod().Container("image").Obj(), Demand{Request: resource.Vector{}}},
		"CPU is in thousandths, the rest in its unit": {
			st.MakePod().Req(amounts{v1.ResourceCPU: "500m", v1.ResourceMemory: "1Ki", v1.ResourceEphemeralStorage: "2", gpu: "3"}).Obj(),
			Demand{Request: resource.Vector{v1.ResourceCPU: 500, v1.ResourceMemory: 1024, v1.ResourceEphemeralStorage: 2, gpu: 3}},
		},
		"containers add up, those that run before count if larger, overhead on top": {
			st.MakePod().Req(amounts{gpu: "1"}).Req(amounts{gpu: "2"}).InitReq(amounts{gpu: "1", v1.ResourceCPU: "2"}).Overhead(v1.ResourceList{v1.ResourceCPU: apiresource.MustParse("1")}).Obj(),
			Demand{Request: resource.Vector{gpu: 3, v1.ResourceCPU: 3000}},
		},
		"host ports, also those of sidecars, not those of containers that end before": {
			&v1.Pod{Spec: v1.PodSpec{
				InitContainers: []v1.Container{
					{Ports: []v1.ContainerPort{{HostPort: 81, Protocol: v1.ProtocolTCP}}, RestartPolicy: &sidecar},
					{Ports: []v1.ContainerPort{{HostPort: 82, Protocol: v1.ProtocolTCP}}},
				},
				Containers: []v1.Container{{Ports: []v1.ContainerPort{{ContainerPort: 8080}, {HostPort: 80, HostIP: "10.0.0.1", Protocol: v1.ProtocolUDP}}}},
			}},
			Demand{Request: resource.Vector{}, Ports: []hold.Port{{Protocol: "TCP", Number: 81}, {IP: "10.0.0.1", Protocol: "UDP", Number: 80}}},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			if diff := cmp.Diff(c.want, DemandOf(podInfo(t, c.pod))); diff != "" {
				t.Errorf("demand (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	held := func(group string, n int, request resource.Vector, ports ...hold.Port) []hold.Hold {
		var list []hold.Hold
		for i := range n {
			list = append(list, hold.Hold{For: types.UID(fmt.Sprint(group, i)), Holder: hold.Holder{Group: group}, Node: "n", Reason: hold.Plan, Request: request, Ports: ports})
		}
		return list
	}
	onNode := st.MakePod().Name("on").UID("on").Req(amounts{gpu: "1"}).Obj()
	gpus := func(n int64) resource.Vector { return resource.Vector{gpu: n} }
	const refused = ErrReasonHeld
	for sentence, c := range map[string]struct {
		holds   []hold.Hold
		pods    []*v1.Pod
		demand  Demand
		holders []hold.Holder
		want    string
	}{
		"nothing is held":                                    {demand: Demand{Request: gpus(9)}},
		"what is left is enough":                             {holds: held("a", 1, gpus(2)), pods: []*v1.Pod{onNode}, demand: Demand{Request: gpus(1)}},
		"what is left is not enough":                         {holds: held("a", 1, gpus(3)), pods: []*v1.Pod{onNode}, demand: Demand{Request: gpus(1)}, want: refused},
		"one's own holds are no obstacle":                    {holds: held("a", 1, gpus(3)), pods: []*v1.Pod{onNode}, demand: Demand{Request: gpus(1)}, holders: []hold.Holder{{Group: "a"}}},
		"those of several holders may be":                    {holds: append(held("a", 1, gpus(2)), held("b", 1, gpus(2))...), demand: Demand{Request: gpus(4)}, holders: []hold.Holder{{Group: "a"}, {Group: "b"}}},
		"others' are beside one's own":                       {holds: append(held("a", 1, gpus(2)), held("b", 1, gpus(2))...), demand: Demand{Request: gpus(3)}, holders: []hold.Holder{{Group: "a"}}, want: refused},
		"a resource that nobody holds is not looked at":      {holds: held("a", 1, gpus(1)), demand: Demand{Request: resource.Vector{v1.ResourceCPU: 99000}}},
		"a resource that the pod does not ask for":           {holds: held("a", 1, gpus(9)), demand: Demand{Request: resource.Vector{v1.ResourceCPU: 1000}}},
		"CPU in thousandths":                                 {holds: held("a", 1, resource.Vector{v1.ResourceCPU: 3500}), demand: Demand{Request: resource.Vector{v1.ResourceCPU: 501}}, want: refused},
		"what the node does not have is for others to judge": {holds: held("a", 1, resource.Vector{"x": 1}), demand: Demand{Request: resource.Vector{"x": 1}}},
		"pods that are to come count as pods":                {holds: held("a", 2, nil), pods: []*v1.Pod{onNode}, want: refused},
		"as long as there is room for one more":              {holds: held("a", 1, nil), pods: []*v1.Pod{onNode}},
		"one's own do not":                                   {holds: held("a", 2, nil), pods: []*v1.Pod{onNode}, holders: []hold.Holder{{Group: "a"}}},
		"a port that is held":                                {holds: held("a", 1, nil, hold.Port{Protocol: "TCP", Number: 80}), demand: Demand{Ports: []hold.Port{{Protocol: "TCP", Number: 80}}}, want: refused},
		"the same port of another protocol":                  {holds: held("a", 1, nil, hold.Port{Protocol: "TCP", Number: 80}), demand: Demand{Ports: []hold.Port{{Protocol: "UDP", Number: 80}}}},
		"the same port of another address":                   {holds: held("a", 1, nil, hold.Port{IP: "10.0.0.1", Number: 80}), demand: Demand{Ports: []hold.Port{{IP: "10.0.0.2", Number: 80}}}},
		"every address is each address":                      {holds: held("a", 1, nil, hold.Port{IP: "10.0.0.1", Number: 80}), demand: Demand{Ports: []hold.Port{{IP: "0.0.0.0", Number: 80}}}, want: refused},
		"no address is every address":                        {holds: held("a", 1, nil, hold.Port{Number: 80}), demand: Demand{Ports: []hold.Port{{IP: "10.0.0.2", Number: 80}}}, want: refused},
		"no protocol is TCP":                                 {holds: held("a", 1, nil, hold.Port{Number: 80}), demand: Demand{Ports: []hold.Port{{Protocol: "TCP", Number: 80}}}, want: refused},
		"one's own port is no obstacle to the ledger":        {holds: held("a", 1, nil, hold.Port{Number: 80}), demand: Demand{Ports: []hold.Port{{Number: 80}}}, holders: []hold.Holder{{Group: "a"}}},
		"what is held on another node is not looked at":      {holds: []hold.Hold{{For: "a", Holder: hold.Holder{Group: "a"}, Node: "m", Request: gpus(4)}}, demand: Demand{Request: gpus(4)}},
		"a node that is overcommitted has nothing left":      {holds: held("a", 1, gpus(5)), demand: Demand{Request: gpus(1)}, want: refused},
		"a hold without amounts still takes a pod's place":   {holds: held("a", 3, nil), want: refused},
	} {
		t.Run(sentence, func(t *testing.T) {
			h := New()
			put(h, c.holds...)
			status := h.Check(c.demand, node(t, c.pods...), c.holders...)
			if got := status.Message(); got != c.want || status.Code() == fwk.Error {
				t.Errorf("status %v, want %q", status, c.want)
			}
			if !status.IsSuccess() && status.Code() != fwk.Unschedulable {
				t.Errorf("code %v, want %v: the hold ends some day", status.Code(), fwk.Unschedulable)
			}
		})
	}
}

// TestPortsClashAsOnANode: two pods that clash in the ledger are two pods that
// kube-scheduler does not put on one node.
func TestPortsClashAsOnANode(t *testing.T) {
	var ports []hold.Port
	for _, ip := range []string{"", "0.0.0.0", "::", "10.0.0.1", "10.0.0.2"} {
		for _, protocol := range []string{"", "TCP", "UDP"} {
			ports = append(ports, hold.Port{IP: ip, Protocol: protocol, Number: 80}, hold.Port{IP: ip, Protocol: protocol, Number: 81})
		}
	}
	for _, mine := range ports {
		for _, theirs := range ports {
			pod := st.MakePod().ContainerPort([]v1.ContainerPort{{HostIP: theirs.IP, Protocol: v1.Protocol(theirs.Protocol), HostPort: theirs.Number}}).Obj()
			want := node(t, pod).GetUsedPorts().CheckConflict(mine.IP, mine.Protocol, mine.Number)
			if got := portsConflict([]hold.Port{mine}, []hold.Port{theirs}); got != want {
				t.Errorf("%+v clashes with %+v: %v, on a node %v", mine, theirs, got, want)
			}
		}
	}
}

// TestNominations: what this process promised takes precedence over a status, which may be late.
func TestNominations(t *testing.T) {
	one := Demand{Request: resource.Vector{gpu: 1}}
	promise := func(node string) func(*Shared) {
		return func(h *Shared) {
			h.Nominate(hold.Hold{For: "p", Holder: hold.Holder{Group: "g"}, Node: node, Request: one.Request})
		}
	}
	recall := func(node string) func(*Shared) {
		return func(h *Shared) {
			h.Nominate(hold.Hold{Recalled: true, For: "p", Holder: hold.Holder{Group: "g"}, Node: node, Request: one.Request})
		}
	}
	cleared := func(h *Shared) { h.DropRecalled("p") }
	bound := func(h *Shared) { h.PodBound("p", "b") }
	plan := func(h *Shared) {
		h.FollowPlan(hold.Holder{Group: "g"}, []types.UID{"p"}, []hold.Hold{{For: "p", Node: "planned", Request: one.Request}})
	}
	for sentence, c := range map[string]struct {
		story    []func(*Shared)
		want     string
		promised bool
	}{
		"a status is all that is known":            {[]func(*Shared){recall("a")}, "a", false},
		"it changes":                               {[]func(*Shared){recall("a"), recall("b")}, "b", false},
		"it is cleared":                            {[]func(*Shared){recall("a"), cleared}, "", false},
		"a promise is newer than a status":         {[]func(*Shared){recall("a"), promise("b")}, "b", true},
		"an older status comes late":               {[]func(*Shared){promise("b"), recall("a")}, "b", true},
		"that an older one was cleared comes late": {[]func(*Shared){promise("b"), cleared}, "b", true},
		"a promise is kept":                        {[]func(*Shared){promise("b"), bound}, "", false},
		"a newer promise":                          {[]func(*Shared){promise("a"), promise("b")}, "b", true},
		"nothing is held":                          {nil, "", false},
		"a plan is nearer":                         {[]func(*Shared){plan, promise("b"), recall("c"), cleared, bound}, "planned", true},
		"and replaces a promise":                   {[]func(*Shared){promise("b"), plan, recall("b")}, "planned", true},
	} {
		t.Run(sentence, func(t *testing.T) {
			h := New()
			heard := "" // by a listener that gets only changes
			h.OnChange(func(pods []types.UID) {
				for _, pod := range pods {
					one, _ := h.HoldOf(pod)
					heard = one.Node
				}
			})
			for _, step := range c.story {
				step(h)
			}
			if heard != c.want {
				t.Errorf("heard of %q, want %q", heard, c.want)
			}
			got, held := h.HoldOf("p")
			if promised := held && !got.Recalled; got.Node != c.want || promised != c.promised {
				t.Errorf("held on %q (promised: %v), want %q (%v)", got.Node, promised, c.want, c.promised)
			}
			planned := Place{Node: c.want, Planned: c.want == "planned"}
			if at, known := h.Place("p"); at != planned || known != held || at.Nominated() != (held && !planned.Planned) {
				t.Errorf("it goes to %+v (held: %v), want %+v", at, known, planned)
			}
		})
	}
	if at := PlaceInStatus(st.MakePod().NominatedNodeName("n").Obj()); !at.Nominated() || at.Node != "n" {
		t.Errorf("a status says %+v", at)
	}
}

// TestStated: a nomination that is written after it has ended is reported for correction; one that stands is not.
func TestStated(t *testing.T) {
	h := New()
	var told []types.UID
	h.OnRenominate(func(pod types.UID) { told = append(told, pod) })
	h.Nominate(hold.Hold{For: "stands", Holder: hold.Holder{Group: "g"}, Node: "n"})
	h.Nominate(hold.Hold{For: "ended", Holder: hold.Holder{Group: "g"}, Node: "n"})
	h.DropNomination("ended")
	told = nil
	h.NominationWritten("stands")
	h.NominationWritten("ended")
	if diff := cmp.Diff([]types.UID{"ended"}, told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

// TestHoldsInParallel is for the race detector.
func TestHoldsInParallel(t *testing.T) {
	h, info := New(), node(t)
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			for i := range 200 {
				uid := types.UID(fmt.Sprint(worker, "-", i%7))
				h.FollowPlan(hold.Holder{Group: fmt.Sprint(worker)}, nil, []hold.Hold{{For: uid, Node: "n", Request: resource.Vector{gpu: 1}, Ports: []hold.Port{{Number: 80}}}})
				if status := h.Check(Demand{Request: resource.Vector{gpu: 4}}, info); status.IsSuccess() {
					t.Error("there is room beside a hold that stands")
				}
				if taken, ok := h.Others(info); ok {
					taken.Request[gpu]++ // its own copy
				}
				_ = h.Count(hold.Plan)
				h.Release(uid)
			}
		})
	}
	group.Wait()
	if !h.Empty() || h.Count(hold.Plan) != 0 {
		t.Errorf("%d holds after all were given back", h.Count(hold.Plan))
	}
}

// TestNominator: for pods that the ledger knows, kube-scheduler's filters count what the ledger has.
func TestNominator(t *testing.T) {
	known := st.MakePod().Name("known").UID("known").SchedulerName("ours").Obj()
	stranger := st.MakePod().Name("stranger").UID("stranger").SchedulerName("theirs").Obj()
	for sentence, c := range map[string]struct {
		holds func(*Shared)
		want  []string
	}{
		"a status for which nothing is held": {func(*Shared) {}, []string{"stranger"}},
		"a nomination here":                  {func(h *Shared) { h.Nominate(hold.Hold{For: "known", Holder: hold.Holder{Group: "g"}, Node: "n"}) }, []string{"known", "stranger"}},
		"a nomination elsewhere":             {func(h *Shared) { h.Nominate(hold.Hold{For: "known", Holder: hold.Holder{Group: "g"}, Node: "m"}) }, []string{"stranger"}},
		"a place in a plan, here": {func(h *Shared) {
			h.FollowPlan(hold.Holder{Group: "g"}, nil, []hold.Hold{{For: "known", Node: "n"}, {For: "stranger", Node: "m"}})
		}, nil},
	} {
		t.Run(sentence, func(t *testing.T) {
			h := New()
			c.holds(h)
			inner := listed{podInfo(t, known), podInfo(t, stranger)}
			var got []string
			for _, info := range h.Nominator(inner, func(pod *v1.Pod) bool { return pod.Spec.SchedulerName == "ours" }).NominatedPodsForNode("n") {
				got = append(got, info.GetPod().Name)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("nominated (-want +got):\n%s", diff)
			}
		})
	}
}

// TestOtherNominees: what a scheduler outside this process nominates counts as long as its pod says so, and is not
// bound.
func TestOtherNominees(t *testing.T) {
	pod := func(nominated, bound string) *v1.Pod {
		return st.MakePod().Name("p").UID("p").NominatedNodeName(nominated).Node(bound).Obj()
	}
	gated := pod("n", "")
	gated.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "gate"}}
	for sentence, c := range map[string]struct {
		versions []*v1.Pod // nil: it is gone
		want     string    // the node where it counts
		freed    []string
	}{
		"it waits":                     {[]*v1.Pod{pod("", "")}, "", nil},
		"it is nominated":              {[]*v1.Pod{pod("", ""), pod("n", ""), pod("n", "")}, "n", nil},
		"and withdrawn":                {[]*v1.Pod{pod("n", ""), pod("", "")}, "", []string{"n"}},
		"and moved":                    {[]*v1.Pod{pod("n", ""), pod("m", "")}, "m", []string{"n"}},
		"and deleted":                  {[]*v1.Pod{pod("n", ""), nil}, "", []string{"n"}},
		"it is bound":                  {[]*v1.Pod{pod("n", ""), pod("n", "n")}, "", nil},
		"and ends":                     {[]*v1.Pod{pod("n", ""), pod("n", "n"), nil}, "", nil},
		"it ran before":                {[]*v1.Pod{pod("n", "n"), pod("n", "n")}, "", nil},
		"it may not be scheduled yet":  {[]*v1.Pod{gated}, "", nil},
		"it was bound to another node": {[]*v1.Pod{pod("n", ""), pod("n", "m"), pod("n", "m")}, "", []string{"n"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			h := New()
			var freed []string
			h.OnFreed(func(node string) { freed = append(freed, node) })
			var before *v1.Pod
			for _, now := range c.versions {
				if now == nil {
					h.OtherGone(before)
				} else {
					h.OtherSeen(now)
				}
				before = now
			}
			for _, node := range []string{"m", "n"} {
				on := h.Nominator(listed{}, func(*v1.Pod) bool { return false }).NominatedPodsForNode(node)
				if counts := len(on) == 1; counts != (node == c.want) {
					t.Errorf("on %s: %v, want it on %q", node, on, c.want)
				}
			}
			if diff := cmp.Diff(c.freed, freed); diff != "" {
				t.Errorf("freed (-want +got):\n%s", diff)
			}
		})
	}
}

// listed is a nominator that lists the same pods for each node.
type listed []fwk.PodInfo

func (l listed) NominatedPodsForNode(string) []fwk.PodInfo                   { return slices.Clone(l) }
func (listed) AddNominatedPod(klog.Logger, fwk.PodInfo, *fwk.NominatingInfo) {}
func (listed) DeleteNominatedPodIfExists(*v1.Pod)                            {}
func (listed) UpdateNominatedPod(klog.Logger, *v1.Pod, fwk.PodInfo)          {}

// BenchmarkNominations: after a restart each pod that was nominated is a holder of its own. Gangs look up each
// of theirs whenever one is to be tried again.
func BenchmarkNominations(b *testing.B) {
	h := New()
	holders := make([]hold.Holder, 1600)
	for i := range holders {
		uid := types.UID(fmt.Sprint("pod-", i))
		holders[i] = hold.Holder{Profile: "lockstep-scheduler", Group: hold.SinglePod(uid)}
		h.Nominate(hold.Hold{Recalled: true, For: uid, Holder: holders[i], Node: fmt.Sprint("node-", i/8), Request: resource.Vector{gpu: 1}})
	}
	b.Run("all", func(b *testing.B) {
		for b.Loop() {
			if n := len(h.Nominations()); n != len(holders) {
				b.Fatalf("%d holders, want %d", n, len(holders))
			}
		}
	})
	b.Run("one", func(b *testing.B) {
		for b.Loop() {
			if !h.Nominated(holders[7]) {
				b.Fatal("it has no nomination")
			}
		}
	})
}
