package gangstate

import (
	"math"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/util/times"
)

// incarnation is the pods of a gang that belong together: those that have not ended, and of the others those that ended
// since the first of them was created. The name of a gang may be used again while ended pods of its last use are still
// there: those no longer count.
//
//   - It begins with the first pod of the controllers that have unfinished pods, and goes on while they make others:
//     also when all are gone, until another controller begins.
//   - A pod that has ended belongs to it if its controller has unfinished pods, or if it ended after it began, or if
//     nothing is unfinished.
//   - Pods that are replaced belong to none: those of another object of the same name than the one that the PodGroup
//     was made for, and those that a newer issue of their series supersedes. Both go, but only a moment after their
//     successors have come.
type incarnation struct {
	// unfinished are the pods that have not ended, are not being deleted, and are not replaced; bare counts those without
	// a controller by their creation, in nanoseconds.
	unfinished map[types.UID]birth
	bare       map[int64]int
	// finished are the pods that ran to success, while their objects are there.
	finished map[types.UID]finished
	// parts are what each controller has; that of "" are the pods without one. idle is how many controllers have no
	// unfinished pods, and may make more.
	parts map[types.UID]*part
	idle  int
	// gone is how many pods ran to success and are gone, of all controllers. recorded is how many ran to success, as
	// another who has seen them says; 0 once another incarnation has begun.
	gone, recorded int
	// issues is the highest issue of each series of which a pod was seen, or notSuperseded. It does not fall when pods are
	// deleted.
	issues map[string]int64
	// madeFor is the UID of the object that the PodGroup of the gang was made for; empty for none.
	madeFor types.UID

	// What follows is computed again if it is not known: something of the above has changed.
	known             bool
	began             time.Time
	counts, goneCount gangspec.Count // of the pods that ran to success, and of those of them that are gone
}

// notSuperseded is the issue of a series of which only pods were seen that supersede nothing.
const notSuperseded = math.MinInt64

// birth is where an unfinished pod comes from, and when it was created.
type birth struct {
	controller types.UID
	created    time.Time
}

// finished is a pod that ran to success.
type finished struct {
	origin gangspec.Origin
	role   string
	ended  time.Time
}

// part is what one controller has.
type part struct {
	unfinished int
	// first is the creation of the oldest pod that it had; zero if it had none, or has none now and another has begun.
	first time.Time
	// finished are those of its pods that ran to success whose objects are there, and gone the others.
	finished, gone successes
}

// successes are pods of one controller that ran to success.
type successes struct {
	gangspec.Count
	// Each of them ended at earliest or later, and at latest or earlier.
	earliest, latest time.Time
	// one is where the first of them came from: whatever replaces it replaces all.
	one gangspec.Origin
}

func (s *successes) add(f finished) {
	if s.N == 0 {
		*s = successes{earliest: f.ended, latest: f.ended, one: f.origin}
	}
	s.Count.Add(1, f.role)
	if f.ended.Before(s.earliest) {
		s.earliest = f.ended
	}
	if f.ended.After(s.latest) {
		s.latest = f.ended
	}
}

func newIncarnation() incarnation {
	return incarnation{
		unfinished: map[types.UID]birth{}, bare: map[int64]int{}, finished: map[types.UID]finished{},
		parts: map[types.UID]*part{}, issues: map[string]int64{},
	}
}

// setMadeFor sets the UID of the object that the PodGroup was made for. What of its pods is gone is counted off the
// minimum from then on, see deleted.
func (i *incarnation) setMadeFor(object types.UID) {
	if i.madeFor != object {
		i.madeFor, i.known = object, false
		i.forgetGone(func(s *successes) bool { return s.one.Controller == object })
	}
}

// issue takes the issue of a pod into account, and reports whether it supersedes others that were seen.
func (i *incarnation) issue(o gangspec.Origin) bool {
	last, known := i.issues[o.Series]
	switch {
	case o.Series == "":
	case o.Supersedes && (!known || last < o.Issue):
		i.issues[o.Series] = o.Issue
		return known
	case !known:
		i.see(o)
	}
	return false
}

// see notes the series of a pod.
func (i *incarnation) see(o gangspec.Origin) {
	if _, known := i.issues[o.Series]; o.Series != "" && !known {
		i.issues[o.Series] = notSuperseded
	}
}

// seeAgain finds the issues again, since the labels of one of the unfinished pods were changed.
func (i *incarnation) seeAgain(pods []*v1.Pod) {
	clear(i.issues)
	for _, f := range i.finished {
		i.see(f.origin)
	}
	for _, pod := range pods {
		i.issue(gangspec.OriginOf(pod))
	}
}

// hasStaleOwner reports whether a pod is of another object than the one that the PodGroup was made for.
func (i *incarnation) hasStaleOwner(o gangspec.Origin) bool {
	return i.madeFor != "" && o.Object != "" && o.Object != i.madeFor
}

// supersedes reports whether a newer issue of the series of a pod has begun.
func (i *incarnation) supersedes(o gangspec.Origin) bool {
	last, known := i.issues[o.Series]
	return known && o.Issue < last
}

// replaces reports whether others are there, or come, in place of a pod.
func (i *incarnation) replaces(o gangspec.Origin) bool { return i.hasStaleOwner(o) || i.supersedes(o) }

// of returns what a controller has.
func (i *incarnation) of(controller types.UID) *part {
	p := i.parts[controller]
	if p == nil {
		p = &part{}
		i.parts[controller] = p
	}
	return p
}

// tidy forgets a controller that has nothing.
func (i *incarnation) tidy(controller types.UID) {
	if p := i.parts[controller]; p.unfinished+p.finished.N+p.gone.N == 0 && p.first.IsZero() {
		delete(i.parts, controller)
	}
}

// live records a pod that is unfinished.
func (i *incarnation) live(pod *v1.Pod) {
	now := birth{gangspec.OriginOf(pod).Controller, pod.CreationTimestamp.Time}
	if before, known := i.unfinished[pod.UID]; known && before.controller == now.controller &&
		before.created.Equal(now.created) {
		return
	}
	i.end(pod.UID)
	i.known, i.unfinished[pod.UID] = false, now
	p := i.parts[now.controller]
	begins := p == nil || p.unfinished == 0 && p.first.IsZero()
	switch {
	case begins && i.idle > 0:
		i.endIdle()
	case !begins && p.unfinished == 0:
		i.idle--
	}
	p = i.of(now.controller)
	p.unfinished++
	switch {
	case now.controller == "":
		i.bare[now.created.UnixNano()]++
	default:
		p.first = times.Earlier(p.first, now.created)
	}
	if begins && i.gone > 0 {
		i.forgetGone(func(s *successes) bool { return !i.includes(s.one.Controller, s.earliest) })
	}
}

// endIdle records that another controller begins: what those without unfinished pods had belongs to what is over.
func (i *incarnation) endIdle() {
	for controller, p := range i.parts {
		if p.unfinished == 0 {
			p.first = time.Time{}
			i.tidy(controller)
		}
	}
	i.idle, i.recorded = 0, 0
}

// end records that a pod has ended, is being deleted, or is replaced.
func (i *incarnation) end(uid types.UID) {
	b, known := i.unfinished[uid]
	if !known {
		return
	}
	i.known = false
	delete(i.unfinished, uid)
	p := i.parts[b.controller]
	if p.unfinished--; b.controller != "" && p.unfinished == 0 {
		i.idle++
	}
	if len(i.unfinished) == 0 && i.idle == 0 {
		i.recorded = 0 // nothing makes others
	}
	if b.controller == "" {
		at := b.created.UnixNano()
		if i.bare[at]--; i.bare[at] == 0 {
			delete(i.bare, at)
		}
	}
	i.tidy(b.controller)
}

// succeed records a pod that ran to success.
func (i *incarnation) succeed(pod *v1.Pod) {
	f := finished{origin: gangspec.OriginOf(pod), role: gangspec.RoleOf(pod), ended: gangspec.EndOf(pod)}
	i.see(f.origin)
	i.known, i.finished[pod.UID] = false, f
	i.of(f.origin.Controller).finished.add(f)
}

// drop forgets a pod that ran to success.
func (i *incarnation) drop(uid types.UID) {
	f := i.finished[uid]
	i.known = false
	delete(i.finished, uid)
	i.parts[f.origin.Controller].finished.Count.Add(-1, f.role)
	i.tidy(f.origin.Controller)
}

// deleted records that the object of a pod that ran to success is gone. It still counts while the incarnation goes on,
// if it has a controller. It reports whether lockstep-controller counts the pod off the minimum: the PodGroup was made
// for its Job, whose status says how many succeeded. That holds whenever a scheduler begins, which does not know of
// pods that were deleted before; so they are counted there, and not here. Until the PodGroup says so, see writeOff.
func (i *incarnation) deleted(uid types.UID) (countedOff bool) {
	f := i.finished[uid]
	countedOff = f.origin.Controller != "" && f.origin.Controller == i.madeFor
	if f.origin.Controller != "" && !countedOff && len(i.unfinished) > 0 && i.includes(f.origin.Controller, f.ended) {
		i.of(f.origin.Controller).gone.add(f)
		i.gone++
	}
	i.drop(uid)
	return countedOff
}

// forgetGone forgets the pods of controllers that ran to success and are gone, where something is true of them.
func (i *incarnation) forgetGone(is func(*successes) bool) {
	for controller, p := range i.parts {
		if p.gone.N > 0 && is(&p.gone) {
			i.gone -= p.gone.N
			p.gone, i.known = successes{}, false
			i.tidy(controller)
		}
	}
}

// includes reports whether a pod of a controller that ended then belongs to the incarnation. ended is zero if not
// known.
func (i *incarnation) includes(controller types.UID, ended time.Time) bool {
	if p := i.parts[controller]; len(i.unfinished) == 0 || p != nil && p.unfinished > 0 {
		return true
	}
	i.look()
	return ended.After(i.began)
}

// look computes what is not known. It costs a look at all controllers, after a change.
func (i *incarnation) look() {
	if i.known {
		return
	}
	i.known, i.began, i.counts, i.goneCount = true, i.firstPod(), gangspec.Count{}, gangspec.Count{}
	for controller, p := range i.parts {
		switch {
		case p.finished.N == 0:
		case i.includes(controller, p.finished.earliest):
			i.counts.AddAll(p.finished.Count, 1)
		case i.includes(controller, p.finished.latest):
			for _, f := range i.finished {
				if f.origin.Controller == controller && i.includes(controller, f.ended) {
					i.counts.Add(1, f.role)
				}
			}
		}
		if p.gone.N > 0 && i.includes(controller, p.gone.earliest) {
			i.counts.AddAll(p.gone.Count, 1)
			i.goneCount.AddAll(p.gone.Count, 1)
		}
	}
}

// firstPod returns when the first pod of the controllers that have unfinished pods was created.
func (i *incarnation) firstPod() (first time.Time) {
	for controller, p := range i.parts {
		if p.unfinished > 0 && controller != "" {
			first = times.Earlier(first, p.first)
		}
	}
	for created := range i.bare {
		first = times.Earlier(first, time.Unix(0, created))
	}
	return first
}

// counted returns what of the pods that ran to success belongs to the incarnation, and what of that is gone.
func (i *incarnation) counted() (all, gone gangspec.Count) {
	if len(i.finished)+i.gone > 0 { // else, as for most gangs, no pods need to be looked at
		i.look()
		all, gone = i.counts, i.goneCount
	}
	if more := i.recorded - all.N; more > 0 && len(i.unfinished) > 0 {
		all.N, gone.N = all.N+more, gone.N+more
	}
	return all, gone
}
