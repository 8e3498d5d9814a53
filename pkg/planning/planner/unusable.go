package planner

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodeaffinity"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodeunschedulable"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumebinding"

	"github.com/lockstep-sh/lockstep/pkg/status/decisions"
)

// ruledOut returns why the cordon or a taint of a node, or the node affinity or the volumes of a class, keep the class
// off it, whatever is free there; empty if they do not. It is cheap enough for nodes on which no filter has run.
func (w *planState) ruledOut(class, node int) string {
	on := w.tx.Node(node).Node()
	if reason := w.closedTo(w.classes[class].Info.Pod, on); reason != "" {
		return reason
	}
	switch {
	case w.checksAffinity && !w.classes[class].asksForNode(on):
		return nodeaffinity.ErrReasonPod
	case !w.reaches(class, node):
		return string(volumebinding.ErrReasonNodeConflict)
	}
	return ""
}

// closedTo returns why the cordon or a taint of a node keeps a pod off it; empty if they do not.
func (p *Planner) closedTo(pod *v1.Pod, on *v1.Node) string {
	if p.checksCordons && on.Spec.Unschedulable && !corev1helpers.TolerationsTolerateTaint(logr.Discard(),
		pod.Spec.Tolerations, &v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}, true) {
		return nodeunschedulable.ErrReasonUnschedulable
	}
	if p.checksTaints && len(on.Spec.Taints) > 0 {
		if taint, some := corev1helpers.FindMatchingUntoleratedTaint(logr.Discard(), on.Spec.Taints, pod.Spec.Tolerations,
			func(t *v1.Taint) bool { return t.Effect != v1.TaintEffectPreferNoSchedule }, true); some {
			return fmt.Sprintf("node(s) had untolerated taint {%s}", taint.Key) // values may be times, or differ by node
		}
	}
	return ""
}

// temporaryFilters are the filters that refuse a node for what it lacks now, or for where other pods are now, also
// where no eviction helps. A node that bound volumes exclude is seen by ruledOut.
var temporaryFilters = map[string]bool{names.NodeResourcesFit: true, names.DynamicResources: true,
	names.VolumeBinding: true, names.InterPodAffinity: true, names.PodTopologySpread: true}

// readUnusable returns why a status keeps a class off a node, whatever is free there; empty if it does not.
func (w *planState) readUnusable(class, node int, status *fwk.Status) string {
	if w.inCopies || status.Code() != fwk.UnschedulableAndUnresolvable || temporaryFilters[status.Plugin()] {
		return ""
	}
	if reason := w.ruledOut(class, node); reason != "" {
		return reason
	}
	reason := strings.Join(status.Reasons(), ", ")
	w.refusedFor[slot{class, node}] = reason
	return reason
}

// emptyNode is a node for a class, whatever is free there.
type emptyNode struct {
	// unusable is why the class may not use it; empty if it may, as far as is known.
	unusable string
	// slots is how many members it would take.
	slots int
}

// whenEmpty returns what a node is for a class. It is for after the attempt, when no more refusals are recorded:
// several gangs of a group ask for the same.
func (w *planState) whenEmpty(class, node int) emptyNode {
	key := slot{class, node}
	known, ok := w.emptyNodes[key]
	if !ok {
		if known.unusable = cmp.Or(w.ruledOut(class, node), w.refusedFor[key]); known.unusable == "" {
			known.slots = w.slotsEmpty(class, node)
		}
		w.emptyNodes[key] = known
	}
	return known
}

// usability fills in which nodes of a domain no member may use, and how many more nodes like one of the others would
// take the members without a place. members are those of the gang, missing those without a place.
func (w *planState) usability(d *DomainTried, nodes, members, missing []int) {
	classes := slices.Sorted(maps.Keys(w.countByClass(members)))
	want := w.countByClass(missing)
	byReason := map[string]*decisions.Unusable{}
	d.Nodes = len(nodes)
	for _, node := range nodes {
		name, reason := w.tx.Node(node).Node().Name, w.unusableToAll(classes, node)
		if reason == "" {
			if more := w.moreNodesLike(node, want); more > 0 && (d.More == 0 || more < d.More) {
				d.More, d.Like = more, name
			}
			continue
		}
		if of := byReason[reason]; of != nil {
			of.Nodes, of.Node = of.Nodes+1, ""
		} else {
			byReason[reason] = &decisions.Unusable{Reason: reason, Nodes: 1, Node: name}
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(byReason)) {
		d.Unusable = append(d.Unusable, *byReason[reason])
	}
	slices.SortStableFunc(d.Unusable, func(a, b decisions.Unusable) int { return b.Nodes - a.Nodes })
	if len(d.Unusable) > 0 && d.Usable() == 0 {
		d.Short = Shortage{}
	}
}

// unusableToAll returns why the first of some classes may not use a node; empty if one of them may.
func (w *planState) unusableToAll(classes []int, node int) (reason string) {
	for _, class := range classes {
		one := w.whenEmpty(class, node).unusable
		if one == "" {
			return ""
		}
		reason = cmp.Or(reason, one)
	}
	return reason
}

// moreNodesLike returns how many nodes like one, if they were empty, would take so many members of each class; 0 if the
// node takes none of some class. No node takes members of two classes, so it may be more than are needed.
func (w *planState) moreNodesLike(node int, want map[int]int) (more int) {
	for class, n := range want {
		for name := range w.classes[class].Demand.Request {
			if w.allocatable(node, name) == 0 {
				return 0
			}
		}
		slots := w.whenEmpty(class, node).slots
		if slots <= 0 {
			return 0
		}
		more += (n + slots - 1) / slots
	}
	return more
}
