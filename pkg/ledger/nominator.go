package ledger

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// Nominator returns kube-scheduler's nominator, corrected by the ledger: a pod with a place in a plan counts as
// nominated nowhere, and a known pod only where the ledger has its nomination. Pods of schedulers outside this process
// are nominated where their status says; see OtherSeen.
//
// kube-scheduler's filters count the pods nominated to a node by their status. A gang member's status often names
// another node than its current plan: such nominations would block the gang itself. The ledger holds the capacity of
// members, and its filter keeps all other pods out.
func (h *Shared) Nominator(inner fwk.PodNominator, known func(*v1.Pod) bool) fwk.PodNominator {
	return &nominator{PodNominator: inner, holds: h, known: known}
}

type nominator struct {
	fwk.PodNominator
	holds *Shared
	known func(*v1.Pod) bool
}

// NominatedPodsForNode lists the pods nominated to a node. The caller may change the list.
func (n *nominator) NominatedPodsForNode(nodeName string) []fwk.PodInfo {
	own := slices.DeleteFunc(n.PodNominator.NominatedPodsForNode(nodeName), func(p fwk.PodInfo) bool {
		at, held := n.holds.Place(p.GetPod().UID)
		if !held {
			return n.known(p.GetPod())
		}
		return !at.Nominated() || at.Node != nodeName
	})
	return append(own, n.holds.others.list(nodeName)...)
}
