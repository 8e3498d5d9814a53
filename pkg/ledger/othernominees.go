package ledger

import (
	"slices"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// otherNominees are the pods of schedulers outside this process that have a nominated node in their status: pods were
// evicted for them there, or they are about to be bound. kube-scheduler's own nominator leaves them out.
type otherNominees struct {
	// count mirrors how many there are, so that the common case, none, costs no lock.
	count atomic.Int64
	mu    sync.RWMutex
	at    map[types.UID]string
	on    map[string][]fwk.PodInfo
}

// OtherSeen takes in a version of a pod of a scheduler outside this process. As for kube-scheduler's own pods, room on
// the node that is nominated to it is left free by pods of no higher priority, until it is bound. OtherSeen reports
// whether such room is free now.
func (h *Shared) OtherSeen(now *v1.Pod) (freed bool) {
	if len(now.Spec.SchedulingGates) > 0 || now.Spec.NodeName != "" {
		return h.nominateOther(now, "")
	}
	return h.nominateOther(now, now.Status.NominatedNodeName)
}

// OtherGone takes in that such a pod is gone, and reports whether room that was nominated to it is free now.
func (h *Shared) OtherGone(last *v1.Pod) (freed bool) { return h.nominateOther(last, "") }

func (h *Shared) nominateOther(pod *v1.Pod, node string) (freed bool) {
	if node == "" && h.others.count.Load() == 0 {
		return false
	}
	was := h.others.put(pod, node)
	if was == "" || was == node || was == pod.Spec.NodeName {
		return false
	}
	h.ReportFreed(was)
	return true
}

// put makes a pod a nominee on a node, empty for none, and returns the node on which it was one.
func (o *otherNominees) put(pod *v1.Pod, node string) (was string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if was = o.at[pod.UID]; was == node {
		return was
	}
	if was != "" {
		delete(o.at, pod.UID)
		o.on[was] = slices.DeleteFunc(o.on[was], func(p fwk.PodInfo) bool { return p.GetPod().UID == pod.UID })
		if len(o.on[was]) == 0 {
			delete(o.on, was)
		}
	}
	if node != "" {
		o.add(pod, node)
	}
	o.count.Store(int64(len(o.at)))
	return was
}

func (o *otherNominees) add(pod *v1.Pod, node string) {
	own := *pod
	own.Status.NominatedNodeName = "" // or DefaultPreemption would clear it in the API
	info, err := framework.NewPodInfo(&own)
	if err != nil {
		return // such a pod is never placed
	}
	if o.at == nil {
		o.at, o.on = map[types.UID]string{}, map[string][]fwk.PodInfo{}
	}
	o.at[pod.UID], o.on[node] = node, append(o.on[node], info)
}

// list returns the nominees on a node.
func (o *otherNominees) list(node string) []fwk.PodInfo {
	if o.count.Load() == 0 {
		return nil
	}
	o.mu.RLock()
	defer o.mu.RUnlock()
	return slices.Clone(o.on[node])
}
