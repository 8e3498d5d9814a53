package planner

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/placement"
	"github.com/lockstep-sh/lockstep/pkg/rules/placement/topology"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// hopeless reports whether a gang would not fit if the nodes were empty: nodes that no filter has ruled out for good
// have too little for its minimum or its minResources. It appends the numbers to each such gang's explanation. It
// computes upper bounds class by class, so it may miss a gang, but never reports one that could fit.
func (w *planState) hopeless(a *gangstate.Attempt, problem placement.Problem, why map[gangspec.Key]string) bool {
	some := false
	for i, g := range problem.Gangs {
		if g.Min == 0 {
			continue // it runs
		}
		most, satisfied, domains := w.mostEmpty(g, w.minResources[i])
		if most >= g.Min && satisfied {
			continue
		}
		some = true
		if domains == 0 {
			continue // explainDomains says that no node has the label
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
		w.emptyCluster = fmt.Sprintf("the nodes%s have room for %d of %d members%s", in, have+most, need.Spec.Min,
			w.textTooLarge(g))
		why[need.Key] += "; it would not fit even if the cluster were empty: " + w.emptyCluster
	}
	return some || w.hopelessTogether(a, problem, why)
}

// hopelessTogether is hopeless for several gangs that have to start together, each of which would fit.
func (w *planState) hopelessTogether(a *gangstate.Attempt, problem placement.Problem,
	why map[gangspec.Key]string) bool {
	var all placement.Gang
	gangs, have := 0, 0
	for i, g := range problem.Gangs {
		if g.Min > 0 {
			gangs++
			all.Members, all.Min = append(all.Members, g.Members...), all.Min+g.Min
			have += a.Gangs[i].Spec.Min - a.Gangs[i].Min
		}
	}
	if gangs < 2 {
		return false
	}
	all.Required = a.Shared()
	most, _, _ := w.mostEmpty(all, nil)
	text := ""
	if all.Required != "" {
		text = w.tooMuchTogether(all.Required, problem)
	}
	switch {
	case text != "":
	case most >= all.Min:
		return false
	case all.Required != "":
		text = fmt.Sprintf("the nodes of one %s have room for %d of %d members", topology.ShortKey(all.Required), have+most,
			have+all.Min)
	default:
		text = fmt.Sprintf("the nodes have room for %d of %d members", have+most, have+all.Min)
	}
	w.emptyCluster = text
	for _, need := range a.Gangs {
		if need.Min > 0 {
			why[need.Key] += "; its group would not fit even if the cluster were empty: " + text
		}
	}
	return true
}

// textTooLarge names the first member of a gang that requests more of a resource than any node that it may use has. It
// is empty if there is none, or nodes lack the resource: a plugin may provide it.
func (w *planState) textTooLarge(g placement.Gang) string {
	checked, count := map[int]bool{}, w.countByClass(g.Members)
	for _, member := range g.Members {
		class := w.classOf[member]
		needed := g.MinByRole[w.pods[member].Labels[v1alpha1.RoleLabel]] > 0 || len(g.Members)-count[class] < g.Min
		if checked[class] || !needed || !w.checksResources {
			continue
		}
		checked[class] = true
		request, most := w.classes[class].Demand.Request, w.mostOnNode(class)
		for _, name := range slices.Sorted(maps.Keys(most)) {
			if 0 < most[name] && most[name] < request[name] {
				return fmt.Sprintf("; pod %s asks for %s, and no node that it may use has more than %s", w.pods[member].Name,
					resource.Vector{name: request[name]}, resource.Vector{name: most[name]})
			}
		}
	}
	return ""
}

// mostOnNode returns the most that any node that a class may use has of what it requests; nil if one has all of it.
func (w *planState) mostOnNode(class int) resource.Vector {
	most := resource.Vector{}
	for node := range w.tx.Len() {
		if w.closedForGood[slot{class, node}] || !w.mayUse(class, node) {
			continue
		}
		hasAll := true
		for name, amount := range w.classes[class].Demand.Request {
			has := w.allocatable(node, name)
			most[name], hasAll = max(most[name], has), hasAll && has >= amount
		}
		if hasAll {
			return nil
		}
	}
	return most
}

// countByClass counts members by class.
func (w *planState) countByClass(members []int) map[int]int {
	count := map[int]int{}
	for _, member := range members {
		count[w.classOf[member]]++
	}
	return count
}

// countByRole counts, by class, the members of each role that has a minimum.
func (w *planState) countByRole(g placement.Gang) map[string]map[int]int {
	members := map[string][]int{}
	for _, member := range g.Members {
		if role := w.pods[member].Labels[v1alpha1.RoleLabel]; g.MinByRole[role] > 0 {
			members[role] = append(members[role], member)
		}
	}
	count := map[string]map[int]int{}
	for role, of := range members {
		count[role] = w.countByClass(of)
	}
	return count
}

// mostEmpty bounds how many members of a gang's minimum empty nodes would take, in one domain if it requires one.
// satisfied: some domain could meet its minResources as well. domains is the number of domains.
func (w *planState) mostEmpty(g placement.Gang, f *minResources) (most int, satisfied bool, domains int) {
	count, byRole := w.countByClass(g.Members), w.countByRole(g)
	role := g
	role.Levels = nil // slices are of members of all roles
	fitIn := func(nodes []int) int {
		lacking := 0
		for name, least := range g.MinByRole {
			lacking += max(0, least-w.fitEmpty(role, byRole[name], nodes))
		}
		return min(w.fitEmpty(g, count, nodes), g.Min-lacking)
	}
	if g.Required == "" {
		return fitIn(w.tx.AllNodes()), w.satisfiedWhenEmpty(f, w.tx.AllNodes()), 1
	}
	list := topology.Domains(w.tx.AllNodes(), func(node int) (string, bool) { return w.Label(node, g.Required) })
	for _, d := range list {
		fit := fitIn(d.Nodes)
		most = max(most, fit)
		satisfied = satisfied || fit >= g.Min && w.satisfiedWhenEmpty(f, d.Nodes)
	}
	return most, satisfied, len(list)
}

// satisfiedWhenEmpty reports whether empty nodes could meet a gang's minResources; true for none.
func (w *planState) satisfiedWhenEmpty(f *minResources, nodes []int) bool {
	return f == nil || w.mayBeMet(f, nil, nodes, closed, w.allocatable)
}

// allocatable returns how much of a resource a node has, including devices that back it.
func (w *planState) allocatable(node int, name v1.ResourceName) int64 {
	has := w.tx.Node(node).GetAllocatable()
	if name == v1.ResourcePods {
		return int64(has.GetAllowedPodNumber())
	}
	if devices, backed := w.devicesBehind(node, name); backed {
		return devices
	}
	return ledger.Amount(has, name)
}

// fitEmpty bounds how many members empty nodes would take; members that are alike, in whole slices.
func (w *planState) fitEmpty(g placement.Gang, count map[int]int, nodes []int) int {
	fit := 0
	for class, want := range count {
		if w.classes[class].rejectedForGood {
			continue
		}
		if len(count) == 1 {
			return placement.Most(emptyCluster{w}, g, nodes, class, want)
		}
		room := 0
		for _, node := range nodes {
			if room >= want {
				break
			}
			if !w.closedForGood[slot{class, node}] {
				room += w.slotsEmpty(class, node)
			}
		}
		fit += min(want, room)
	}
	return fit
}

// emptyCluster is the cluster with empty nodes.
type emptyCluster struct{ *planState }

func (e emptyCluster) Slots(class, node int) int {
	if e.closedForGood[slot{class, node}] {
		return 0
	}
	return e.slotsEmpty(class, node)
}

// ownTaints are key prefixes of the taints by which Kubernetes marks a node's momentary condition.
var ownTaints = []string{"node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"}

// isPermanent reports whether a filter refused by what the pod asks for and what its nodes are. A refusal that
// evictions cannot resolve may still pass: a claim gets its volume, pods release devices, a node is uncordoned.
func isPermanent(status *fwk.Status) bool {
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

// lastsWhenEmpty reports whether a filter would refuse a node in an empty cluster, too.
func lastsWhenEmpty(ctx context.Context, status *fwk.Status, pod *v1.Pod, node *v1.Node) bool {
	if status.IsSuccess() || status.Plugin() != names.TaintToleration {
		return isPermanent(status)
	}
	_, stays := corev1helpers.FindMatchingUntoleratedTaint(klog.FromContext(ctx), node.Spec.Taints, pod.Spec.Tolerations,
		func(taint *v1.Taint) bool {
			passes := func(prefix string) bool { return strings.HasPrefix(taint.Key, prefix) }
			return taint.Effect != v1.TaintEffectPreferNoSchedule && !slices.ContainsFunc(ownTaints, passes)
		}, true)
	return stays
}

// mayUse reports whether a class asks for a node, and the node reaches its volumes.
func (w *planState) mayUse(class, node int) bool {
	return w.reaches(class, node) && (!w.checksAffinity || w.classes[class].asksForNode(w.tx.Node(node).Node()))
}

// slotsEmpty returns how many members of a class an empty node would take. Volumes and devices that others have now
// count as free.
func (w *planState) slotsEmpty(class, node int) int {
	if !w.mayUse(class, node) {
		return 0
	}
	least := w.deviceSlotsEmpty(class, node)
	if !w.checksResources {
		return min(least, len(w.pods))
	}
	has := w.tx.Node(node).GetAllocatable()
	least = min(least, has.GetAllowedPodNumber())
	for name, amount := range w.classes[class].Demand.Request {
		total := ledger.Amount(has, name)
		if total == 0 && !isNative(name) {
			continue // a plugin may provide it
		}
		least = min(least, int(min(max(total/amount, 0), math.MaxInt32))) // kube-scheduler parses 1e30 as a negative amount
	}
	if w.classes[class].Alone {
		least = min(least, 1)
	}
	return least
}
