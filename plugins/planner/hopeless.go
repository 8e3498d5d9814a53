package planner

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/lockstep-sh/lockstep/plugins/holds"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/internal/placement"
	"github.com/lockstep-sh/lockstep/plugins/internal/topology"
)

// hopeless finds gangs that would not fit if the nodes were empty: there is not enough for
// their minimum, or for what they ask for beside it, on nodes that no filter has ruled out for
// what they are. It adds that, with the numbers, to the explanation of each, and reports whether
// there are any. That is arithmetic, class by class; it may take for possible what is not.
func (w *world) hopeless(a *gang.Attempt, problem placement.Problem, why map[gang.Key]string) bool {
	some := false
	for i, g := range problem.Gangs {
		if g.Min == 0 {
			continue // it runs
		}
		most, afloat, domains := w.mostEmpty(g, w.floors[i])
		if most >= g.Min && afloat {
			continue
		}
		some = true
		if domains == 0 {
			continue // no node has the label of its topology, and that is said
		}
		if most >= g.Min {
			why[a.Gangs[i].Key] += "; its PodGroup's minResources are more than the nodes that it may use have"
			continue
		}
		need := a.Gangs[i]
		have, in := need.Spec.Min-need.Min, ""
		if g.Required != "" {
			in = " of one " + topology.ShortKey(g.Required)
		}
		why[need.Key] += fmt.Sprintf("; it would not fit even if the cluster were empty: the nodes%s have room for %d of %d members", in, have+most, need.Spec.Min)
	}
	return some
}

// mostEmpty returns how many members of a gang would have a place if the nodes were empty, at
// most: in one domain, where it has to be in one. afloat: there is a domain with so much of what
// it asks for beside its members. It returns the number of domains, too.
func (w *world) mostEmpty(g placement.Gang, f *floor) (most int, afloat bool, domains int) {
	count := map[int]int{}
	for _, member := range g.Members {
		count[w.classOf[member]]++
	}
	if g.Required == "" {
		return w.fitEmpty(g, count, w.all()), w.floats(f, w.all()), 1
	}
	nodes := map[string][]int{}
	for _, node := range w.all() {
		if value, ok := w.Label(node, g.Required); ok {
			nodes[value] = append(nodes[value], node)
		}
	}
	for _, in := range nodes {
		fit := w.fitEmpty(g, count, in)
		most = max(most, fit)
		afloat = afloat || fit >= g.Min && w.floats(f, in)
	}
	return most, afloat, len(nodes)
}

// floats reports whether nodes have what a gang asks for beside its members; it may ask for
// nothing.
func (w *world) floats(f *floor, nodes []int) bool {
	return f == nil || w.bound(f, nil, nodes, closed, w.allocatable)
}

// all returns the nodes, by index.
func (w *world) all() []int {
	nodes := make([]int, w.tx.Len())
	for i := range nodes {
		nodes[i] = i
	}
	return nodes
}

// allocatable returns how much of a resource a node has, devices behind it included.
func (w *world) allocatable(node int, name v1.ResourceName) int64 {
	has := w.tx.Node(node).GetAllocatable()
	if name == v1.ResourcePods {
		return int64(has.GetAllowedPodNumber())
	}
	if devices, backed := w.devicesBehind(node, name); backed {
		return devices
	}
	return holds.Amount(has, name)
}

// fitEmpty returns how many members would have a place on nodes if these were empty, at most; of
// members that are alike, in whole slices.
func (w *world) fitEmpty(g placement.Gang, count map[int]int, nodes []int) int {
	fit := 0
	for class, want := range count {
		if w.barred[class] {
			continue
		}
		if len(count) == 1 {
			return placement.Most(empty{w}, g, nodes, class, want)
		}
		room := 0
		for _, node := range nodes {
			if room >= want {
				break
			}
			if !w.closed[slot{class, node}] {
				room += w.slotsEmpty(class, node)
			}
		}
		fit += min(want, room)
	}
	return fit
}

// empty is the cluster if the nodes were empty.
type empty struct{ *world }

func (e empty) Slots(class, node int) int {
	if e.closed[slot{class, node}] {
		return 0
	}
	return e.slotsEmpty(class, node)
}

// ownTaints begin the keys of taints with which Kubernetes marks how a node is just now.
var ownTaints = []string{"node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"}

// forGood reports whether a refusal is by a filter that goes by what the pod asks for and what
// its nodes are. That evictions cannot resolve a refusal does not mean so: a claim gets its
// volume, other pods release devices, a node is uncordoned.
func forGood(status *fwk.Status) bool {
	if status.Code() != fwk.UnschedulableAndUnresolvable {
		return false
	}
	switch status.Plugin() {
	case names.NodeAffinity, names.NodeName, names.NodeResourcesFit, names.NodeDeclaredFeatures:
		return true
	default:
		return false
	}
}

// lasts reports whether a filter would refuse a node if the cluster were empty, too.
func lasts(ctx context.Context, status *fwk.Status, pod *v1.Pod, node *v1.Node) bool {
	if status.IsSuccess() || status.Plugin() != names.TaintToleration {
		return forGood(status)
	}
	_, stays := corev1helpers.FindMatchingUntoleratedTaint(klog.FromContext(ctx), node.Spec.Taints, pod.Spec.Tolerations, func(taint *v1.Taint) bool {
		passes := func(prefix string) bool { return strings.HasPrefix(taint.Key, prefix) }
		return taint.Effect != v1.TaintEffectPreferNoSchedule && !slices.ContainsFunc(ownTaints, passes)
	}, true)
	return stays
}

// slotsEmpty returns how many members of a class a node would take if it were empty. Volumes
// and devices that others have now would be free then, too.
func (w *world) slotsEmpty(class, node int) int {
	if !w.reaches(class, node) || w.checksAffinity && !w.classes[class].wants(w.tx.Node(node).Node()) {
		return 0
	}
	least := w.deviceSlotsEmpty(class, node)
	if !w.checksResources {
		return min(least, len(w.pods))
	}
	has := w.tx.Node(node).GetAllocatable()
	least = min(least, has.GetAllowedPodNumber())
	for name, amount := range w.classes[class].demand.Request {
		total := holds.Amount(has, name)
		if total == 0 && !isNative(name) {
			continue // some plugin may provide it
		}
		least = min(least, int(min(total/amount, math.MaxInt32)))
	}
	if w.classes[class].alone {
		least = min(least, 1)
	}
	return least
}
