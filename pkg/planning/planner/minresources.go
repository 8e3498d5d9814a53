package planner

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/podclass"
	"github.com/lockstep-sh/lockstep/pkg/planning/whatif"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/placement"
	"github.com/lockstep-sh/lockstep/pkg/rules/placement/topology"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// minResources is what a gang's PodGroup wants free in all: what its members take and have counts, and what other gangs
// that have begun will still take is subtracted. Nothing is held for it.
type minResources struct {
	want resource.Vector
	// placed are the members placed before; have is what they request, without what their claims have.
	placed []*v1.Pod
	have   resource.Vector
	// held is what others hold together with devices, by node; computed when first needed.
	held map[string]resource.Vector
	// holders are the holders whose holds some member may use.
	holders []hold.Holder
	// probes are pods like the members that request nothing. What is free counts on nodes that take a probe. views are the
	// probes, prepared when first needed.
	probes []*v1.Pod
	views  []*whatif.View
	usable []usability // by node
	// mayPass: a probe was refused on every node, for a reason that may pass.
	mayPass bool
	// shortage is what was missing in the domain where least was; reserved is what other gangs will still take there.
	shortage, reserved resource.Vector
	domain             string
}

// usability is whether members may use a node, from best to worst.
type usability uint8

const (
	unasked usability = iota
	usable
	unusable
	// closed nodes would be unusable in an empty cluster, too.
	closed
)

// minResourcesOf returns what the gangs of an attempt ask for beside their minimums; nil for a gang that asks for
// nothing.
func minResourcesOf(a *gangstate.Attempt, read podclass.LabelSignature) ([]*minResources, error) {
	list := make([]*minResources, len(a.Gangs))
	for i, need := range a.Gangs {
		if len(need.Floor) == 0 {
			continue
		}
		f := &minResources{want: need.Floor, have: resource.Vector{}}
		pods := slices.Clone(need.Pending)
		for _, placed := range need.Placed {
			f.have.Add(resource.OfPod(placed.Pod), 1)
			f.have[v1.ResourcePods]++
			f.placed = append(f.placed, placed.Pod)
		}
		pods = append(pods, f.placed...)
		kinds := podclass.NewGrouping(podclass.Storage{})
		kinds.Labels = read
		for _, pod := range pods {
			probe := probeOf(pod)
			class, err := kinds.Classify(probe, need.Queue)
			if err != nil {
				return nil, err
			}
			if class == len(f.probes) {
				f.probes = append(f.probes, probe)
			}
		}
		list[i] = f
	}
	return list, nil
}

// probeOf returns a pod with only what rules out nodes for it. What the pod requests, and which volumes it has, does
// not apply to members that come later.
func probeOf(pod *v1.Pod) *v1.Pod {
	probe := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name,
		UID: pod.UID, Labels: pod.Labels}}
	probe.Spec = v1.PodSpec{
		SchedulerName: pod.Spec.SchedulerName, Priority: pod.Spec.Priority, NodeSelector: pod.Spec.NodeSelector,
		Tolerations: pod.Spec.Tolerations, Containers: []v1.Container{{Name: "none"}},
	}
	if affinity := pod.Spec.Affinity; affinity != nil && affinity.NodeAffinity != nil {
		probe.Spec.Affinity = &v1.Affinity{NodeAffinity: affinity.NodeAffinity}
	}
	return probe
}

// mayUseNode reports whether members of a gang may run on a node, capacity aside.
func (w *planState) mayUseNode(ctx context.Context, f *minResources, node int) (bool, error) {
	if f.usable == nil {
		f.usable = make([]usability, w.tx.Len())
		for _, probe := range f.probes {
			v, status := w.tx.View(ctx, probe, f.holders...)
			switch ok, err := isSuccess(status, "preparing to look for nodes of", probe); {
			case err != nil:
				return false, err
			case ok:
				f.views = append(f.views, v)
			default:
				f.mayPass = f.mayPass || !isPermanent(status)
			}
		}
	}
	if f.usable[node] == unasked {
		f.usable[node] = closed
		if f.mayPass {
			f.usable[node] = unusable
		}
		for _, v := range f.views {
			if !v.Allows(w.tx.Node(node)) {
				f.usable[node] = unusable // the plugin may choose other nodes later
				continue
			}
			status := w.tx.Fits(ctx, v, node)
			if status.Code() == fwk.Error {
				return false, fmt.Errorf("filtering node %s: %w", w.tx.Node(node).Node().Name, status.AsError())
			}
			if status.Code() != fwk.UnschedulableAndUnresolvable {
				f.usable[node] = usable
				break
			}
			if !lastsWhenEmpty(ctx, status, v.Pod, w.tx.Node(node).Node()) {
				f.usable[node] = unusable
			}
		}
	}
	return f.usable[node] == usable, nil
}

// freeFor returns how much of a resource a node has left for a gang, beside what is held there for others; 0 on a node
// that takes no more pods. With atMost, devices that claims have count too: pods may release theirs.
func (w *planState) freeFor(f *minResources, node int, name v1.ResourceName, atMost bool) int64 {
	info := w.tx.Node(node)
	has := info.GetAllocatable()
	taken, _ := w.holds.Others(info, f.holders...)
	pods := int64(has.GetAllowedPodNumber() - len(info.GetPods()) - taken.Pods)
	if pods <= 0 || name == v1.ResourcePods {
		return max(0, pods)
	}
	left, held := ledger.Amount(has, name)-ledger.Amount(info.GetRequested(), name), taken.Request[name]
	if devices, backed := w.devicesBehind(node, name); backed {
		left += devices
		if atMost {
			return max(0, left-held)
		}
		if now, known := w.devicesNow(node, name); known {
			left, held = now, max(0, held-w.heldDevices(f)[info.Node().Name][name])
		}
	}
	return max(0, left-held)
}

// unmet returns what a gang asks for beyond its members, including those placed in the plan.
func (w *planState) unmet(f *minResources, placed map[int]int) resource.Vector {
	rest, members := maps.Clone(f.want), slices.Clone(f.placed)
	for m := range placed {
		members = append(members, w.pods[m])
	}
	for name := range rest {
		rest[name] -= f.have[name] + w.devicesClaimed(members, name)
		for m := range placed {
			if name == v1.ResourcePods {
				rest[name]--
			} else {
				rest[name] -= w.classes[w.classOf[m]].Demand.Request[name]
			}
		}
	}
	maps.DeleteFunc(rest, func(_ v1.ResourceName, amount int64) bool { return amount <= 0 })
	return rest
}

// LackingExtra reports which gangs lack what they ask for beyond their members. Gangs that ask on fewer nodes come
// first. That is exact for one gang, and where domains are nested.
func (w *planState) LackingExtra(ctx context.Context, asked []placement.Extra) (short []int, err error) {
	asked = slices.Clone(asked)
	slices.SortStableFunc(asked, func(a, b placement.Extra) int { return cmp.Compare(len(a.Nodes), len(b.Nodes)) })
	given := map[nodeResource]int64{} // what gangs before this one use
	for _, one := range asked {
		f := w.minResources[one.Gang]
		rest := w.unmet(f, one.Placed)
		beside, err := w.outstandingOn(ctx, f, one.Nodes)
		if err != nil {
			return nil, err
		}
		rest.Add(beside, 1)
		for _, node := range one.Nodes {
			if len(rest) == 0 {
				break
			}
			if err := w.countNode(ctx, f, node, rest, given); err != nil {
				return nil, err
			}
		}
		if len(rest) > 0 {
			short = append(short, one.Gang)
			if f.shortage == nil || shareShort(rest, f.want) < shareShort(f.shortage, f.want) {
				f.shortage, f.reserved, f.domain = rest, beside, one.Value
			}
		}
	}
	return short, nil
}

// outstandingOn returns what other gangs will still take of the resources that a gang asks for, if they run on nodes
// that its own members may use: their next pods will compete there.
func (w *planState) outstandingOn(ctx context.Context, f *minResources, nodes []int) (resource.Vector, error) {
	sum := resource.Vector{}
	counted := make([]bool, len(w.outstanding))
	for _, node := range nodes {
		if len(w.outstanding) == 0 {
			break
		}
		for i, other := range w.outstanding {
			if _, on := slices.BinarySearch(other.Nodes, w.tx.Node(node).Node().Name); !on || counted[i] {
				continue
			}
			ok, err := w.mayUseNode(ctx, f, node)
			if err != nil {
				return nil, err
			}
			if counted[i] = ok; ok {
				sum.Add(other.Amount, 1)
			}
		}
	}
	maps.DeleteFunc(sum, func(name v1.ResourceName, _ int64) bool { return f.want[name] == 0 })
	return sum, nil
}

// nodeResource is a resource of a node.
type nodeResource struct {
	node int
	name v1.ResourceName
}

// countNode subtracts from rest what a node has free.
func (w *planState) countNode(ctx context.Context, f *minResources, node int, rest resource.Vector,
	given map[nodeResource]int64) error {
	for name, amount := range rest {
		free := w.freeFor(f, node, name, false) - given[nodeResource{node, name}]
		if free <= 0 {
			continue
		}
		if ok, err := w.mayUseNode(ctx, f, node); !ok {
			return err
		}
		if len(w.minResources) > 1 {
			given[nodeResource{node, name}] += min(free, amount)
		}
		if rest[name] = amount - free; rest[name] <= 0 {
			delete(rest, name)
		}
	}
	return nil
}

// shareShort returns how much of what is wanted is missing, summed over all resources.
func shareShort(short, want resource.Vector) float64 {
	sum := 0.0
	for name, amount := range short {
		sum += float64(amount) / float64(want[name])
	}
	return sum
}

// mayBeMet reports whether a gang's minResources could be met on nodes with at most so much free each, beside what its
// members have elsewhere. What members will take counts as free. Nodes known to have the given usability, or worse, do
// not count.
func (w *planState) mayBeMet(f *minResources, have resource.Vector, nodes []int, use usability,
	free func(node int, name v1.ResourceName) int64) bool {
	for name, want := range f.want {
		want -= have[name]
		for _, node := range nodes {
			if want <= 0 {
				break
			}
			if f.usable == nil || f.usable[node] < use {
				want -= free(node, name)
			}
		}
		if want > 0 {
			return false
		}
	}
	return true
}

// BeyondMinimum returns what a gang asks for beside its minimum: its PodGroup's minResources, less what members have
// and less what the first waiting members will take.
func BeyondMinimum(need gangstate.Need) resource.Vector {
	rest := maps.Clone(need.Floor)
	take := func(pod *v1.Pod) {
		rest.Add(resource.OfPod(pod), -1)
		rest[v1.ResourcePods]--
	}
	if len(rest) == 0 {
		return nil
	}
	for _, placed := range need.Placed {
		take(placed.Pod)
	}
	for _, pod := range need.Pending[:min(need.Min, len(need.Pending))] {
		take(pod)
	}
	maps.DeleteFunc(rest, func(_ v1.ResourceName, amount int64) bool { return amount <= 0 })
	return rest
}

// explainMinResources returns what a gang lacks beyond its members.
func (w *planState) explainMinResources(need gangstate.Need, f *minResources) string {
	var ask, free []string
	for _, name := range slices.Sorted(maps.Keys(f.shortage)) {
		ask = append(ask, resource.Vector{name: f.want[name]}.String())
		have := resource.Vector{name: max(0, f.want[name]-f.shortage[name])}.String()
		if have == "" {
			have = "0 " + string(name)
		}
		if len(f.shortage) == 1 {
			have = strings.TrimSuffix(have, " "+string(name))
		}
		free = append(free, have)
	}
	in := ""
	if need.Spec.RequiredTopology != "" {
		in = fmt.Sprintf(" in %s %s, the most of any", topology.ShortKey(need.Spec.RequiredTopology), f.domain)
	}
	beside := ""
	if !f.reserved.Zero() {
		beside = fmt.Sprintf(", after reserving %s for gangs still starting", f.reserved)
	}
	return fmt.Sprintf("gang %q: its PodGroup's minResources ask for %s; %s are free%s%s; short %s", need.Key,
		strings.Join(ask, ", "), strings.Join(free, ", "), in, beside, f.shortage)
}
