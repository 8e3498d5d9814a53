package gangstate

import (
	"maps"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Life is one life of a gang: the pods that have not ended, and those that ended while it went on.
// The name of a gang may be used again while ended pods of its last use are still there; those do
// not count any more. A life goes on when all pods that have not ended are gone and their
// controllers make new ones. The zero Life is of a gang without unfinished pods.
type Life struct {
	// owners are the controllers of unfinished pods, and those that had some and may make
	// more, until another controller begins.
	owners map[types.UID]*tenure
	// bare counts the unfinished pods without a controller by their creation, in nanoseconds.
	// Nothing makes them again, so nothing is kept of those that are gone.
	bare map[int64]int
	// living is how many pods are unfinished; idle, how many of owners have none now.
	living, idle int
}

// tenure is what one controller has in a life.
type tenure struct {
	living int
	// first is the creation of the oldest pod that it ever had in this life.
	first time.Time
}

// Add records a pod that has not ended and is not being deleted. It returns whether a controller
// begins, or a pod without one where there was none.
func (l *Life) Add(pod *v1.Pod) (begins bool) {
	if l.owners == nil {
		l.owners, l.bare = map[types.UID]*tenure{}, map[int64]int{}
	}
	l.living++
	owner, created := ownerOf(pod), pod.CreationTimestamp.Time
	of, known := l.owners[owner]
	if begins = of == nil && (owner != "" || len(l.bare) == 0); begins && l.idle > 0 {
		maps.DeleteFunc(l.owners, func(_ types.UID, of *tenure) bool { return of.living == 0 })
		l.idle = 0
	}
	switch {
	case owner == "":
		l.bare[created.UnixNano()]++
		return begins
	case of == nil:
		of = &tenure{first: created}
		l.owners[owner] = of
	case created.Before(of.first):
		of.first = created
	}
	if known && of.living == 0 {
		l.idle--
	}
	of.living++
	return begins
}

// Remove undoes Add, for a pod with the same controller and creation.
func (l *Life) Remove(pod *v1.Pod) {
	l.living--
	if owner := ownerOf(pod); owner != "" {
		if l.owners[owner].living--; l.owners[owner].living == 0 {
			l.idle++
		}
		return
	}
	created := pod.CreationTimestamp.UnixNano()
	if l.bare[created]--; l.bare[created] == 0 {
		delete(l.bare, created)
	}
}

// began returns when the first pod of the controllers that have unfinished pods was created.
func (l *Life) began() time.Time {
	var began time.Time
	note := func(created time.Time) {
		if began.IsZero() || created.Before(began) {
			began = created
		}
	}
	for _, of := range l.owners {
		if of.living > 0 {
			note(of.first)
		}
	}
	for created := range l.bare {
		note(time.Unix(0, created))
	}
	return began
}

// ownedBy reports whether an ended pod of a controller belongs to this life
// whenever it ended: it has its controller in common with an unfinished pod, or
// there is none.
func (l *Life) ownedBy(owner types.UID) bool {
	if l.living == 0 || owner == "" && len(l.bare) > 0 {
		return true
	}
	of := l.owners[owner]
	return of != nil && of.living > 0
}

// Includes reports whether an ended pod belongs to this life: it has its controller in common with
// an unfinished pod, or was still there when the first pod of those controllers was created, or
// nothing is unfinished. ended is zero if not known.
func (l *Life) Includes(owner types.UID, ended time.Time) bool {
	return l.ownedBy(owner) || ended.After(l.began())
}

// ownerOf returns the UID of the controller that made a pod; empty for none. The Jobs of a JobSet
// are made together, and again together in its next attempt: they are one.
func ownerOf(pod *v1.Pod) types.UID {
	if jobSet := pod.Labels[jobSetUID]; jobSet != "" {
		return types.UID(jobSet + "/" + pod.Labels[jobSetAttempt])
	}
	if ref := metav1.GetControllerOfNoCopy(pod); ref != nil {
		return ref.UID
	}
	return ""
}

// Labels that JobSet gives to pods.
const (
	jobSetUID     = "jobset.sigs.k8s.io/jobset-uid"
	jobSetAttempt = "jobset.sigs.k8s.io/restart-attempt"
)

// EndOf returns when the last container of a pod ended; zero if that is not known.
func EndOf(pod *v1.Pod) time.Time {
	var end time.Time
	for i := range pod.Status.ContainerStatuses {
		if t := pod.Status.ContainerStatuses[i].State.Terminated; t != nil && t.FinishedAt.After(end) {
			end = t.FinishedAt.Time
		}
	}
	return end
}

// RanToSuccess reports whether a pod has done what it was made for. kubelet writes phase Succeeded also for a pod that
// is being deleted and whose containers obey with exit code 0; its controller makes another. The controller of Jobs
// does so, too, and counts it as failed as soon as it is being deleted, unless its containers end before it looks, or
// spec.podReplacementPolicy is Failed: then it counts as succeeded, and none is made. Its finalizer is on a pod until
// it has counted it, and is taken off at once if the Job is gone.
func RanToSuccess(pod *v1.Pod) bool {
	if pod.Status.Phase != v1.PodSucceeded {
		return false
	}
	ref := metav1.GetControllerOfNoCopy(pod)
	return pod.DeletionTimestamp == nil || ref != nil && isJob(ref) && slices.Contains(pod.Finalizers, batchv1.JobTrackingFinalizer)
}

// finished is what still matters of a member that ran to success. pod is the member, while its object is there.
type finished struct {
	pod   *v1.Pod
	owner types.UID
	role  string
	ended time.Time
}

// finishedBy is the members that ran to success under one controller.
type finishedBy struct {
	n int
	// one is the first of them that was seen: whatever replaces it replaces all.
	one *v1.Pod
	// Every one of them ended at first or later, and at last or earlier.
	first, last time.Time
	roles       map[string]int
}

// tally counts members, and how many of them have which role.
type tally struct {
	n     int
	roles map[string]int
}

func (t *tally) add(n int, roles map[string]int) {
	t.n += n
	for role, n := range roles {
		if t.roles == nil {
			t.roles = map[string]int{}
		}
		t.roles[role] += n
	}
}

// past is the members of a gang that ran to success.
type past struct {
	succeeded map[types.UID]finished
	by        map[types.UID]*finishedBy
	// kept are members whose objects are gone, while the life that they were in goes on. Members
	// without a controller count as long as their objects are there.
	kept map[types.UID]*finishedBy
	// life is the life of the gang's members that have not ended.
	life Life
	// sum is what of succeeded belongs to this life; known: nothing has changed since.
	sum   tally
	known bool
}

func newPast() past {
	return past{succeeded: map[types.UID]finished{}, by: map[types.UID]*finishedBy{}, kept: map[types.UID]*finishedBy{}}
}

func (p *past) add(pod *v1.Pod) {
	f := finished{pod: pod, owner: ownerOf(pod), role: roleOf(pod), ended: EndOf(pod)}
	p.known, p.succeeded[pod.UID] = false, f
	note(p.by, f)
}

func note(all map[types.UID]*finishedBy, f finished) {
	by := all[f.owner]
	if by == nil {
		by = &finishedBy{one: f.pod, first: f.ended, last: f.ended, roles: map[string]int{}}
		all[f.owner] = by
	}
	by.n++
	if f.ended.Before(by.first) {
		by.first = f.ended
	}
	if f.ended.After(by.last) {
		by.last = f.ended
	}
	if f.role != "" {
		by.roles[f.role]++
	}
}

// deleted records that the object of a member is gone. It reports whether lockstep-controller counts the member off the
// minimum: the PodGroup was made for its Job, whose status says how many succeeded. That holds whenever a
// scheduler begins, which does not know of members that were deleted before; so they are counted there, and not here.
// Until the PodGroup says so, see writeOff.
func (p *past) deleted(uid, madeFor types.UID) (countedOff bool) {
	f := p.succeeded[uid]
	countedOff = f.owner != "" && f.owner == madeFor
	if f.owner != "" && !countedOff && p.life.living > 0 && p.life.Includes(f.owner, f.ended) {
		note(p.kept, f)
	}
	p.drop(uid)
	return countedOff
}

// forgetKept drops the members of a controller whose objects are gone.
func (p *past) forgetKept(owner types.UID) {
	delete(p.kept, owner)
	p.known = false
}

func (p *past) drop(uid types.UID) {
	f := p.succeeded[uid]
	p.known = false
	delete(p.succeeded, uid)
	by := p.by[f.owner]
	if by.n--; by.n == 0 {
		delete(p.by, f.owner)
		return
	}
	if by.roles[f.role]--; by.roles[f.role] <= 0 {
		delete(by.roles, f.role)
	}
}

// unfinished records that a pod lives, or no longer does.
func (p *past) unfinished(pod *v1.Pod, lives bool) {
	p.known = false
	if !lives {
		p.life.Remove(pod)
	} else if p.life.Add(pod) {
		maps.DeleteFunc(p.kept, func(owner types.UID, by *finishedBy) bool { return !p.life.Includes(owner, by.first) })
	}
}

// sameLife reports whether two versions of a pod that lives mean the same for the life of its gang.
func sameLife(a, b *v1.Pod) bool {
	return ownerOf(a) == ownerOf(b) && a.CreationTimestamp.Equal(&b.CreationTimestamp)
}

// relive brings the life of the gang up to date with a member that has changed.
func (g *gang) relive(was, is *member) {
	if was.lives() == is.lives() && sameLife(was.pod, is.pod) {
		return
	}
	if was.lives() {
		g.past.unfinished(was.pod, false)
	}
	if is.lives() {
		g.past.unfinished(is.pod, true)
	}
}

// counted returns what of the members that succeeded belongs to this life. Once any has, it costs time by the number of
// controllers.
func (p *past) counted() tally {
	if p.known {
		return p.sum
	}
	p.sum, p.known = tally{}, true
	if len(p.by)+len(p.kept) == 0 {
		return p.sum // as for most gangs, whose life need not be looked at
	}
	began := p.life.began()
	for owner, by := range p.by {
		switch {
		case p.life.ownedBy(owner) || by.first.After(began):
			p.sum.add(by.n, by.roles)
		case by.last.After(began):
			p.countOneByOne(owner)
		}
	}
	kept := p.countedOfKept()
	p.sum.add(kept.n, kept.roles)
	return p.sum
}

func (p *past) countedOfKept() tally {
	var t tally
	for owner, by := range p.kept {
		if p.life.Includes(owner, by.first) {
			t.add(by.n, by.roles)
		}
	}
	return t
}

func (p *past) countOneByOne(owner types.UID) {
	for _, f := range p.succeeded {
		if f.owner == owner && p.life.Includes(owner, f.ended) {
			p.sum.add(1, map[string]int{f.role: 1})
		}
	}
}
