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

	"github.com/lockstep-sh/lockstep/plugins/holds"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
	"github.com/lockstep-sh/lockstep/plugins/internal/placement"
	"github.com/lockstep-sh/lockstep/plugins/internal/resource"
	"github.com/lockstep-sh/lockstep/plugins/internal/topology"
	"github.com/lockstep-sh/lockstep/plugins/whatif"
)

// floor is what a gang asks for beside its minimum: so much has to be free for it in all, including what its members take and
// have, beside what other gangs that have begun are still to take. Nothing is held for it.
type floor struct {
	want resource.Vector
	// placed are the members that were placed before; have is what they have, but for what is in their claims.
	placed []*v1.Pod
	have   resource.Vector
	// held is what is held with devices for others, by node, once that was asked.
	held map[string]resource.Vector
	// holders are the holders whose holds are no obstacle to some member.
	holders []hold.Holder
	// probes are pods like the members that ask for nothing: on nodes where one may be, what is free counts. They were prepared
	// as views when first asked for.
	probes []*v1.Pod
	views  []*whatif.View
	usable []usability // by node
	// passing: a probe was refused on every node, for a reason that may pass.
	passing bool
	// least is what was short where least was, and in which domain; beside is what other gangs have still to take there.
	least, beside resource.Vector
	domain        string
}

// usability is whether members may use a node, once that is known, from best to worst.
type usability uint8

const (
	unasked usability = iota
	usable
	unusable
	// closed nodes would be unusable if the cluster were empty, too.
	closed
)

// floorsOf reads what the gangs of an attempt ask for beside their minimums; nil for a gang
// that asks for nothing.
func floorsOf(a *gang.Attempt) ([]*floor, error) {
	floors := make([]*floor, len(a.Gangs))
	for i, need := range a.Gangs {
		if len(need.Floor) == 0 {
			continue
		}
		f := &floor{want: need.Floor, have: resource.Vector{}}
		pods := slices.Clone(need.Pending)
		for _, placed := range need.Placed {
			f.have.Add(resource.FromList(resource.Requests(placed.Pod)), 1)
			f.have[v1.ResourcePods]++
			f.placed = append(f.placed, placed.Pod)
		}
		pods = append(pods, f.placed...)
		kinds := newGrouping(storage{})
		for _, pod := range pods {
			probe := bare(pod)
			class, err := kinds.add(probe)
			if err != nil {
				return nil, err
			}
			if class == len(f.probes) {
				f.probes = append(f.probes, probe)
			}
		}
		floors[i] = f
	}
	return floors, nil
}

// bare returns a pod with no more than what rules out nodes for it: what the pod takes of them, and which volumes it has, does
// not apply to the members that come later.
func bare(pod *v1.Pod) *v1.Pod {
	probe := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Labels: pod.Labels}}
	probe.Spec = v1.PodSpec{
		SchedulerName: pod.Spec.SchedulerName, Priority: pod.Spec.Priority, NodeSelector: pod.Spec.NodeSelector,
		Tolerations: pod.Spec.Tolerations, Containers: []v1.Container{{Name: "none"}},
	}
	if affinity := pod.Spec.Affinity; affinity != nil && affinity.NodeAffinity != nil {
		probe.Spec.Affinity = &v1.Affinity{NodeAffinity: affinity.NodeAffinity}
	}
	return probe
}

// mayUse reports whether members of a gang may be on a node, if it had room for them.
func (w *world) mayUse(ctx context.Context, f *floor, node int) (bool, error) {
	if f.usable == nil {
		f.usable = make([]usability, w.tx.Len())
		for _, probe := range f.probes {
			v, status := w.tx.View(ctx, probe, func(state fwk.CycleState) { Ask(state, f.holders...) })
			switch {
			case status.IsSuccess():
				f.views = append(f.views, v)
			case !status.IsRejected():
				return false, fmt.Errorf("preparing to look for nodes of pod %s/%s: %w", probe.Namespace, probe.Name, status.AsError())
			case !forGood(status):
				f.passing = true
			}
		}
	}
	if f.usable[node] == unasked {
		f.usable[node] = closed
		if f.passing {
			f.usable[node] = unusable
		}
		for _, v := range f.views {
			if !v.Allows(w.tx.Node(node)) {
				f.usable[node] = unusable // the plugin that chose the nodes may choose others
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
			if !lasts(ctx, status, v.Pod, w.tx.Node(node).Node()) {
				f.usable[node] = unusable
			}
		}
	}
	return f.usable[node] == usable, nil
}

// free returns how much of a resource a node has left for a gang beside what is held there for others; nothing on a node that
// takes no more pods. At most, devices count that claims have: pods may leave theirs.
func (w *world) free(f *floor, node int, name v1.ResourceName, atMost bool) int64 {
	info := w.tx.Node(node)
	has := info.GetAllocatable()
	taken, _ := w.holds.Others(info, f.holders...)
	pods := int64(has.GetAllowedPodNumber() - len(info.GetPods()) - taken.Pods)
	if pods <= 0 || name == v1.ResourcePods {
		return max(0, pods)
	}
	left, held := holds.Amount(has, name)-holds.Amount(info.GetRequested(), name), taken.Request[name]
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

// rest returns what a gang asks for beyond its members, those placed in a plan included.
func (w *world) rest(f *floor, placed map[int]int) resource.Vector {
	rest, members := maps.Clone(f.want), slices.Clone(f.placed)
	for m := range placed {
		members = append(members, w.pods[m])
	}
	for name := range rest {
		rest[name] -= f.have[name] + w.claimed(members, name)
		for m := range placed {
			if name == v1.ResourcePods {
				rest[name]--
			} else {
				rest[name] -= w.classes[w.classOf[m]].demand.Request[name]
			}
		}
	}
	maps.DeleteFunc(rest, func(_ v1.ResourceName, amount int64) bool { return amount <= 0 })
	return rest
}

// Spare reports which gangs lack what they ask for beyond their members. Gangs that ask on
// fewer nodes come first; that is exact for one gang, and where the domains of one lie in
// those of another.
func (w *world) Spare(ctx context.Context, asked []placement.Floor) (short []int, err error) {
	asked = slices.Clone(asked)
	slices.SortStableFunc(asked, func(a, b placement.Floor) int { return cmp.Compare(len(a.Nodes), len(b.Nodes)) })
	given := map[slotOf]int64{} // to those that came before
	for _, one := range asked {
		f := w.floors[one.Gang]
		rest := w.rest(f, one.Placed)
		beside, err := w.outstandingOn(ctx, f, one.Nodes)
		if err != nil {
			return nil, err
		}
		rest.Add(beside, 1)
		for _, node := range one.Nodes {
			if len(rest) == 0 {
				break
			}
			if err := w.give(ctx, f, node, rest, given); err != nil {
				return nil, err
			}
		}
		if len(rest) > 0 {
			short = append(short, one.Gang)
			if f.least == nil || share(rest, f.want) < share(f.least, f.want) {
				f.least, f.beside, f.domain = rest, beside, one.Value
			}
		}
	}
	return short, nil
}

// outstandingOn returns what other gangs have still to take of what a gang asks for, where they run on any of the nodes that its
// own members may use: the pods that they make next will look for room there.
func (w *world) outstandingOn(ctx context.Context, f *floor, nodes []int) (resource.Vector, error) {
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
			ok, err := w.mayUse(ctx, f, node)
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

// slotOf is a resource of a node.
type slotOf struct {
	node int
	name v1.ResourceName
}

// give counts what a node has towards the rest that a gang asks for.
func (w *world) give(ctx context.Context, f *floor, node int, rest resource.Vector, given map[slotOf]int64) error {
	for name, amount := range rest {
		free := w.free(f, node, name, false) - given[slotOf{node, name}]
		if free <= 0 {
			continue
		}
		if ok, err := w.mayUse(ctx, f, node); !ok {
			return err
		}
		if len(w.floors) > 1 {
			given[slotOf{node, name}] += min(free, amount)
		}
		if rest[name] = amount - free; rest[name] <= 0 {
			delete(rest, name)
		}
	}
	return nil
}

// share returns how much of what is wanted is short, over all resources together.
func share(short, want resource.Vector) float64 {
	sum := 0.0
	for name, amount := range short {
		sum += float64(amount) / float64(want[name])
	}
	return sum
}

// bound reports whether a gang could have its floor on nodes that have so much each, at most, beside what its members have
// elsewhere; what they will take is counted among that. Nodes that are known to be of no such use, or worse, do not count.
func (w *world) bound(f *floor, have resource.Vector, nodes []int, use usability, free func(node int, name v1.ResourceName) int64) bool {
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

// Beyond returns what a gang asks for beside its minimum: what its PodGroup wants free for it in all, without what members have,
// and without what the first of the waiting ones will take.
func Beyond(need gang.Need) resource.Vector {
	rest := maps.Clone(need.Floor)
	take := func(pod *v1.Pod) {
		rest.Add(resource.FromList(resource.Requests(pod)), -1)
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

// explainFloor words what a gang lacks beyond its members.
func (w *world) explainFloor(need gang.Need, f *floor) string {
	var ask, free []string
	for _, name := range slices.Sorted(maps.Keys(f.least)) {
		ask = append(ask, resource.Vector{name: f.want[name]}.String())
		have := resource.Vector{name: max(0, f.want[name]-f.least[name])}.String()
		if have == "" {
			have = "0 " + string(name)
		}
		if len(f.least) == 1 {
			have = strings.TrimSuffix(have, " "+string(name))
		}
		free = append(free, have)
	}
	in := ""
	if need.Spec.RequiredTopology != "" {
		in = fmt.Sprintf(" in %s %s, the most of any", topology.ShortKey(need.Spec.RequiredTopology), f.domain)
	}
	beside := ""
	if !f.beside.Zero() {
		beside = fmt.Sprintf(", beside %s for gangs that have begun and are to grow", f.beside)
	}
	return fmt.Sprintf("gang %q: its PodGroup's minResources ask for %s; %s are free%s%s; short %s", need.Key, strings.Join(ask, ", "), strings.Join(free, ", "), in, beside, f.least)
}
