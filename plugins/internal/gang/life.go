package gang

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Life is one life of a gang: the pods that have not ended, and those that ended
// while one of them was there. The name of a gang may be used again while ended pods
// of its last use are still there; those count no more. The zero Life is of a gang
// without unfinished pods.
type Life struct {
	// owners and created count the unfinished pods by their controller and by their
	// creation, in nanoseconds.
	owners  map[types.UID]int
	created map[int64]int
	// first is the oldest creation. It is looked up anew where the last pod that had it
	// is gone.
	first time.Time
	stale bool
}

// Add takes in a pod that has not ended and is not being deleted.
func (l *Life) Add(pod *v1.Pod) {
	if l.owners == nil {
		l.owners, l.created = map[types.UID]int{}, map[int64]int{}
	}
	created := pod.CreationTimestamp.Time
	if len(l.created) == 0 || created.Before(l.first) {
		l.first, l.stale = created, false
	}
	l.owners[ownerOf(pod)]++
	l.created[created.UnixNano()]++
}

// Remove is the opposite of Add, for a pod with the same controller and creation.
func (l *Life) Remove(pod *v1.Pod) {
	owner, created := ownerOf(pod), pod.CreationTimestamp.UnixNano()
	if l.owners[owner]--; l.owners[owner] == 0 {
		delete(l.owners, owner)
	}
	if l.created[created]--; l.created[created] == 0 {
		delete(l.created, created)
		l.stale = l.stale || created == l.first.UnixNano()
	}
}

// began is when the oldest unfinished pod was created.
func (l *Life) began() time.Time {
	if !l.stale {
		return l.first
	}
	l.stale = false
	first := true
	for created := range l.created {
		if first || created < l.first.UnixNano() {
			l.first, first = time.Unix(0, created), false
		}
	}
	return l.first
}

// ownedBy reports whether an ended pod of a controller belongs to this life
// whenever it ended: it has its controller in common with an unfinished pod, or
// there is none.
func (l *Life) ownedBy(owner types.UID) bool { return len(l.owners) == 0 || l.owners[owner] > 0 }

// Includes reports whether an ended pod belongs to this life: it has its controller
// in common with an unfinished pod, or was still there when the oldest of those was
// created, or nothing is unfinished. ended is zero where it is not known.
func (l *Life) Includes(owner types.UID, ended time.Time) bool {
	return l.ownedBy(owner) || ended.After(l.began())
}

// OwnerOf is the UID of the controller that made a pod, or empty.
func OwnerOf(pod *v1.Pod) types.UID { return ownerOf(pod) }

func ownerOf(pod *v1.Pod) types.UID {
	if ref := metav1.GetControllerOfNoCopy(pod); ref != nil {
		return ref.UID
	}
	return ""
}

// EndOf is when the last container of a pod ended; zero where that is not known.
func EndOf(pod *v1.Pod) time.Time {
	var end time.Time
	for i := range pod.Status.ContainerStatuses {
		if t := pod.Status.ContainerStatuses[i].State.Terminated; t != nil && t.FinishedAt.After(end) {
			end = t.FinishedAt.Time
		}
	}
	return end
}

// finished is what still matters of a member that ran to success.
type finished struct {
	owner types.UID
	role  string
	ended time.Time
}

// finishedBy is the members that ran to success under one controller.
type finishedBy struct {
	n int
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
	// life is that of the gang's members which have not ended.
	life Life
	// sum is what of succeeded belongs to this life; known: nothing has changed since.
	sum   tally
	known bool
}

func newPast() past {
	return past{succeeded: map[types.UID]finished{}, by: map[types.UID]*finishedBy{}}
}

func (p *past) add(uid types.UID, f finished) {
	p.known, p.succeeded[uid] = false, f
	by := p.by[f.owner]
	if by == nil {
		by = &finishedBy{first: f.ended, last: f.ended, roles: map[string]int{}}
		p.by[f.owner] = by
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

// unfinished takes in that a member lives, or no longer does.
func (p *past) unfinished(pod *v1.Pod, lives bool) {
	if pod.DeletionTimestamp != nil {
		return // it is on its way out
	}
	p.known = false
	if lives {
		p.life.Add(pod)
	} else {
		p.life.Remove(pod)
	}
}

// sameLife reports whether two versions of a member mean the same for the life of its
// gang.
func sameLife(a, b *v1.Pod) bool {
	return (a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil) && ownerOf(a) == ownerOf(b) && a.CreationTimestamp.Equal(&b.CreationTimestamp)
}

// counted is what of the members that succeeded belongs to this life. It costs time by
// the number of controllers, where they came one after the other.
func (p *past) counted() tally {
	if p.known {
		return p.sum
	}
	p.sum, p.known = tally{}, true
	for owner, by := range p.by {
		switch {
		case p.life.ownedBy(owner) || by.first.After(p.life.began()):
			p.sum.add(by.n, by.roles)
		case by.last.After(p.life.began()):
			p.countOneByOne(owner)
		}
	}
	return p.sum
}

func (p *past) countOneByOne(owner types.UID) {
	for _, f := range p.succeeded {
		if f.owner == owner && p.life.Includes(owner, f.ended) {
			p.sum.add(1, map[string]int{f.role: 1})
		}
	}
}
