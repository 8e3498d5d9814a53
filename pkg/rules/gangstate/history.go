package gangstate

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
)

// History is the incarnation of a gang for callers that look at all its pods now and then. The zero History has seen
// none. It is not safe for concurrent use.
type History struct{ incarnation }

// RecordedHistory returns the history of a gang for a reader that sees the gang once: as many members ran to success as
// its PodGroup says. The roles of those that are gone are not known, so a minimum of a role may look short.
func RecordedHistory(object *gangspec.PodGroupDescription) *History {
	h := &History{newIncarnation()}
	if object != nil {
		h.recorded = object.Succeeded
	}
	return h
}

// See records all pods of the gang, except those that are being deleted and have not succeeded. madeFor is the owner
// for which the PodGroup was made; empty for none.
func (h *History) See(pods []*v1.Pod, madeFor types.UID) {
	if h.unfinished == nil {
		h.incarnation = newIncarnation()
	}
	h.setMadeFor(madeFor)
	for _, pod := range pods {
		if !objectstate.HasEnded(pod) {
			h.issue(gangspec.OriginOf(pod))
		}
	}
	unfinished, succeeded := map[types.UID]bool{}, map[types.UID]bool{}
	var live []*v1.Pod
	for _, pod := range pods {
		replaced := h.replaces(gangspec.OriginOf(pod))
		_, counts := h.finished[pod.UID]
		switch {
		case pod.Status.Phase == v1.PodSucceeded:
			succeeded[pod.UID] = true
			if counts && replaced {
				h.drop(pod.UID)
			} else if !counts && !replaced && gangspec.RanToSuccess(pod) {
				h.succeed(pod)
			}
		case pod.Status.Phase != v1.PodFailed && !replaced:
			unfinished[pod.UID], live = true, append(live, pod)
		}
	}
	h.forgetGone(func(s *successes) bool { return h.replaces(s.one) })
	for uid := range h.finished {
		if !succeeded[uid] {
			h.deleted(uid)
		}
	}
	for uid := range h.unfinished {
		if !unfinished[uid] {
			h.end(uid)
		}
	}
	slices.SortFunc(live, func(a, b *v1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
	})
	for _, pod := range live {
		h.live(pod)
	}
}

// Includes reports whether a pod that has ended belongs to the incarnation. A pod in the phase Succeeded does only if
// it ran to success.
func (h *History) Includes(pod *v1.Pod) bool {
	if _, counts := h.finished[pod.UID]; !counts && pod.Status.Phase == v1.PodSucceeded {
		return false
	}
	return h.includes(gangspec.OriginOf(pod).Controller, gangspec.EndOf(pod))
}

// Gone counts the members that ran to success in the incarnation and whose objects are gone. There are none if nothing
// is unfinished.
func (h *History) Gone() gangspec.Count {
	if len(h.unfinished) == 0 {
		return gangspec.Count{}
	}
	_, gone := h.counted()
	return gone
}
