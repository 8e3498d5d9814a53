package gang

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// History is the life of a gang, and the members that ran to success in it, for callers that look
// at all its pods now and then. The zero History has seen none. It is not safe for concurrent use.
type History struct {
	past past
	live map[types.UID]*v1.Pod
}

// See records all pods of the gang, except those that are being deleted. It keeps the pods that
// have not ended until it is called again. madeFor is the owner for which the PodGroup was made; empty for none.
func (h *History) See(pods []*v1.Pod, madeFor types.UID) {
	if h.live == nil {
		h.past = newPast()
	}
	live, succeeded := map[types.UID]*v1.Pod{}, map[types.UID]bool{}
	for _, pod := range pods {
		switch pod.Status.Phase {
		case v1.PodSucceeded:
			succeeded[pod.UID] = true
			if _, known := h.past.succeeded[pod.UID]; !known {
				h.past.add(pod.UID, finished{owner: ownerOf(pod), role: roleOf(pod), ended: EndOf(pod)})
			}
		case v1.PodFailed:
		default:
			live[pod.UID] = pod
		}
	}
	for uid := range h.past.succeeded {
		if !succeeded[uid] {
			h.past.deleted(uid, madeFor)
		}
	}
	for uid, pod := range h.live {
		if live[uid] == nil {
			h.past.unfinished(pod, false)
		}
	}
	for uid, pod := range live {
		if was := h.live[uid]; was != nil && !sameLife(was, pod) {
			h.past.unfinished(was, false)
		} else if was != nil {
			continue
		}
		h.past.unfinished(pod, true)
	}
	h.live = live
}

// Includes reports whether a pod that has ended belongs to this life.
func (h *History) Includes(pod *v1.Pod) bool {
	return h.past.life.Includes(ownerOf(pod), EndOf(pod))
}

// Kept counts the members that ran to success in this life and whose objects are gone: in all, and
// by role. There are none if nothing lives.
func (h *History) Kept() (n int, byRole map[string]int) {
	if h.past.life.living == 0 {
		return 0, nil
	}
	t := h.past.countedOfKept()
	return t.n, t.roles
}
