package gangstate

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// History is the life of a gang, and the members that ran to success in it, for callers that look
// at all its pods now and then. The zero History has seen none. It is not safe for concurrent use.
type History struct {
	past   past
	live   map[types.UID]*v1.Pod
	issues issues
}

// See records all pods of the gang, except those that are being deleted and have not succeeded. It keeps the pods that
// have not ended until it is called again. madeFor is the owner for which the PodGroup was made; empty for none.
func (h *History) See(pods []*v1.Pod, madeFor types.UID) {
	if h.live == nil {
		h.past, h.issues = newPast(), issues{}
	}
	live, succeeded := map[types.UID]*v1.Pod{}, map[types.UID]*v1.Pod{}
	for _, pod := range pods {
		switch pod.Status.Phase {
		case v1.PodSucceeded:
			succeeded[pod.UID] = pod
		case v1.PodFailed:
		default:
			live[pod.UID] = pod
			h.issues.note(pod)
		}
	}
	h.judge(succeeded, madeFor)
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

// judge records the pods with phase Succeeded: those that ran to success, and are not replaced.
func (h *History) judge(pods map[types.UID]*v1.Pod, madeFor types.UID) {
	for uid, pod := range pods {
		_, counts := h.past.succeeded[uid]
		switch replaced := isNamesake(pod, madeFor) || h.issues.outlive(pod); {
		case counts && replaced:
			h.past.drop(uid)
		case !counts && !replaced && RanToSuccess(pod):
			h.past.add(pod)
		}
	}
	for uid := range h.past.succeeded {
		if pods[uid] == nil {
			h.past.deleted(uid, madeFor)
		}
	}
}

// Includes reports whether a pod that has ended belongs to this life. Of those that succeeded only those do that ran to
// success.
func (h *History) Includes(pod *v1.Pod) bool {
	if _, counts := h.past.succeeded[pod.UID]; !counts && pod.Status.Phase == v1.PodSucceeded {
		return false
	}
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
