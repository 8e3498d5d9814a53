package holds

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// Nominator returns kube-scheduler's nominator, corrected by the ledger: a pod
// that has a place in a plan counts as nominated nowhere, and a known pod counts
// as nominated only where the ledger has a nomination of it.
//
// kube-scheduler's filters count the pods that are nominated to a node, by their
// status. For the members of a gang that is often another node than the one that their
// plan gives them: more members have come, and each takes the place that is best now. Those
// nominations stood in the way of the gang itself. What is held for the members is in the
// ledger, and its filter keeps all other pods out.
func (h *Holds) Nominator(inner fwk.PodNominator, known func(*v1.Pod) bool) fwk.PodNominator {
	return &nominator{PodNominator: inner, holds: h, known: known}
}

type nominator struct {
	fwk.PodNominator
	holds *Holds
	known func(*v1.Pod) bool
}

// NominatedPodsForNode lists the pods that are nominated to a node. The caller may change
// the list.
func (n *nominator) NominatedPodsForNode(nodeName string) []fwk.PodInfo {
	return slices.DeleteFunc(n.PodNominator.NominatedPodsForNode(nodeName), func(p fwk.PodInfo) bool {
		at, held := n.holds.Place(p.GetPod().UID)
		if !held {
			return n.known(p.GetPod())
		}
		return !at.Nominated() || at.Node != nodeName
	})
}
