package gangstate

import (
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// incarnation is the pods of a gang that belong together: those that have not ended, and of the others those that ended
// since the first of them was created. The name of a gang may be used again while ended pods of its last use are still
// there; those do not count any more.
//
//   - It begins with the first pod of the controllers that have unfinished pods, and goes on while they make others: also
//     when all are gone, until another controller begins.
//   - A pod that has ended belongs to it if its controller has unfinished pods, or if it ended after it began, or if
//     nothing is unfinished.
//   - Pods that are replaced belong to none: those of another object of the same name than the one that the PodGroup was
//     made for, and those that a newer issue of their series supersedes. Both go, but only a moment after their
//     successors have come.
//
// The zero value is of a gang without pods.
type incarnation struct {
	// unfinished are the pods that have not ended, are not being deleted, and are not replaced.
	unfinished map[types.UID]birth
	// first is the creation of the oldest pod of each controller, of those that have unfinished pods or may make more.
	first map[types.UID]time.Time
	// controllers counts the unfinished pods of each controller.
	controllers map[types.UID]int
	// finished are the pods that ran to success, and gone those of them whose objects were deleted since.
	finished, gone map[types.UID]finished
	// issues is the highest issue of each series that supersedes others. It does not fall when those pods are deleted.
	issues map[string]int64
	// madeFor is the UID of the object that the PodGroup of the gang was made for; empty for none.
	madeFor types.UID

	// What follows is computed again if it is not known: something of the above has changed.
	known             bool
	began             time.Time
	counts, goneCount tally // of finished and gone together, and of gone
}

// birth is where an unfinished pod comes from, and when it was created.
type birth struct {
	controller types.UID
	created    time.Time
}

// finished is a pod that ran to success.
type finished struct {
	origin
	role  string
	ended time.Time
}

// tally counts members, and how many of them have which role.
type tally struct {
	n     int
	roles map[string]int
}

func (t *tally) add(n int, role string) {
	t.n += n
	if role != "" {
		if t.roles == nil {
			t.roles = map[string]int{}
		}
		t.roles[role] += n
	}
}

func newIncarnation() incarnation {
	return incarnation{
		unfinished: map[types.UID]birth{}, first: map[types.UID]time.Time{}, controllers: map[types.UID]int{},
		finished: map[types.UID]finished{}, gone: map[types.UID]finished{}, issues: map[string]int64{},
	}
}

// issue takes the issue of a pod into account, and reports whether others may be superseded by it.
func (i *incarnation) issue(pod *v1.Pod) bool {
	o := originOf(pod)
	last, known := i.issues[o.series]
	if !o.supersedes || known && last >= o.issue {
		return false
	}
	i.issues[o.series] = o.issue
	return true
}

// hasStaleOwner reports whether a pod is of another object than the one that the PodGroup was made for.
func (i *incarnation) hasStaleOwner(o origin) bool {
	return i.madeFor != "" && o.object != "" && o.object != i.madeFor
}

// supersedes reports whether a newer issue of the series of a pod has begun.
func (i *incarnation) supersedes(o origin) bool {
	last, known := i.issues[o.series]
	return known && o.issue < last
}

// replaces reports whether others are there, or come, in place of a pod.
func (i *incarnation) replaces(o origin) bool { return i.hasStaleOwner(o) || i.supersedes(o) }

// live records a pod that is unfinished.
func (i *incarnation) live(pod *v1.Pod) {
	now := birth{originOf(pod).controller, pod.CreationTimestamp.Time}
	if before, known := i.unfinished[pod.UID]; known && before.controller == now.controller && before.created.Equal(now.created) {
		return
	}
	i.end(pod.UID)
	_, makesMore := i.first[now.controller]
	begins := !makesMore && i.controllers[now.controller] == 0
	if begins { // what others may still have made belongs to what is over
		maps.DeleteFunc(i.first, func(of types.UID, _ time.Time) bool { return i.controllers[of] == 0 })
	}
	i.known, i.unfinished[pod.UID] = false, now
	i.controllers[now.controller]++
	if first := i.first[now.controller]; now.controller != "" && (first.IsZero() || now.created.Before(first)) {
		i.first[now.controller] = now.created
	}
	if begins {
		maps.DeleteFunc(i.gone, func(_ types.UID, f finished) bool { return !i.includes(f.controller, f.ended) })
	}
}

// end records that a pod is not unfinished any more.
func (i *incarnation) end(uid types.UID) {
	if b, known := i.unfinished[uid]; known {
		i.known = false
		delete(i.unfinished, uid)
		i.controllers[b.controller]--
	}
}

// succeed records a pod that ran to success.
func (i *incarnation) succeed(pod *v1.Pod) {
	i.known, i.finished[pod.UID] = false, finished{origin: originOf(pod), role: roleOf(pod), ended: EndOf(pod)}
}

// drop forgets a pod that ran to success.
func (i *incarnation) drop(uid types.UID) {
	i.known = false
	delete(i.finished, uid)
}

// deleted records that the object of a pod that ran to success is gone. It still counts while the incarnation goes on, if
// it has a controller. It reports whether lockstep-controller counts the pod off the minimum: the PodGroup was made for
// its Job, whose status says how many succeeded. That holds whenever a scheduler begins, which does not know of pods that
// were deleted before; so they are counted there, and not here. Until the PodGroup says so, see writeOff.
func (i *incarnation) deleted(uid types.UID) (countedOff bool) {
	f := i.finished[uid]
	countedOff = f.controller != "" && f.controller == i.madeFor
	if f.controller != "" && !countedOff && len(i.unfinished) > 0 && i.includes(f.controller, f.ended) {
		i.gone[uid] = f
	}
	i.drop(uid)
	return countedOff
}

// forgetGone forgets the pods that ran to success and are gone of which something is true.
func (i *incarnation) forgetGone(of func(finished) bool) {
	i.known = false
	maps.DeleteFunc(i.gone, func(_ types.UID, f finished) bool { return of(f) })
}

// includes reports whether a pod of a controller that ended then belongs to the incarnation. ended is zero if not known.
func (i *incarnation) includes(controller types.UID, ended time.Time) bool {
	i.look()
	return len(i.unfinished) == 0 || i.controllers[controller] > 0 || ended.After(i.began)
}

// look computes what is not known. It costs a look at all pods, after a change.
func (i *incarnation) look() {
	if i.known {
		return
	}
	i.known, i.began, i.counts, i.goneCount = true, time.Time{}, tally{}, tally{}
	for _, b := range i.unfinished {
		since := b.created
		if b.controller != "" {
			since = i.first[b.controller]
		}
		if i.began.IsZero() || since.Before(i.began) {
			i.began = since
		}
	}
	for _, f := range i.finished {
		if i.includes(f.controller, f.ended) {
			i.counts.add(1, f.role)
		}
	}
	for _, f := range i.gone {
		if i.includes(f.controller, f.ended) {
			i.counts.add(1, f.role)
			i.goneCount.add(1, f.role)
		}
	}
}

// counted returns what of the pods that ran to success belongs to the incarnation, and what of that is gone.
func (i *incarnation) counted() (all, gone tally) {
	if len(i.finished)+len(i.gone) == 0 {
		return tally{}, tally{} // as for most gangs, whose pods need not be looked at
	}
	i.look()
	return i.counts, i.goneCount
}

// History is the incarnation of a gang for callers that look at all its pods now and then. The zero History has seen none.
// It is not safe for concurrent use.
type History struct{ incarnation }

// See records all pods of the gang, except those that are being deleted and have not succeeded. madeFor is the owner for
// which the PodGroup was made; empty for none.
func (h *History) See(pods []*v1.Pod, madeFor types.UID) {
	if h.unfinished == nil {
		h.incarnation = newIncarnation()
	}
	h.madeFor = madeFor
	unfinished, succeeded := map[types.UID]*v1.Pod{}, map[types.UID]*v1.Pod{}
	for _, pod := range pods {
		switch pod.Status.Phase {
		case v1.PodSucceeded:
			succeeded[pod.UID] = pod
		case v1.PodFailed:
		default:
			unfinished[pod.UID] = pod
			h.issue(pod)
		}
	}
	for uid, pod := range succeeded {
		_, counts := h.finished[uid]
		switch replaced := h.replaces(originOf(pod)); {
		case counts && replaced:
			h.drop(uid)
		case !counts && !replaced && RanToSuccess(pod):
			h.succeed(pod)
		}
	}
	for uid := range h.finished {
		if succeeded[uid] == nil {
			h.deleted(uid)
		}
	}
	for uid := range h.unfinished {
		if unfinished[uid] == nil {
			h.end(uid)
		}
	}
	for _, pod := range unfinished {
		h.live(pod)
	}
}

// Includes reports whether a pod that has ended belongs to the incarnation. Of those that succeeded only those do that
// ran to success.
func (h *History) Includes(pod *v1.Pod) bool {
	if _, counts := h.finished[pod.UID]; !counts && pod.Status.Phase == v1.PodSucceeded {
		return false
	}
	return h.includes(originOf(pod).controller, EndOf(pod))
}

// Gone counts the members that ran to success in the incarnation and whose objects are gone: in all, and by role. There
// are none if nothing is unfinished.
func (h *History) Gone() (n int, byRole map[string]int) {
	if len(h.unfinished) == 0 {
		return 0, nil
	}
	_, gone := h.counted()
	return gone.n, gone.roles
}
