package preemption

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Underway is the preemptions of all profiles whose victims have not all ended, by the
// holder that they make room for. It is safe for concurrent use.
type Underway struct {
	mu       sync.Mutex
	byHolder map[string]map[types.UID]bool
	holderOf map[types.UID]string
}

// NewUnderway makes one without preemptions.
func NewUnderway() *Underway {
	return &Underway{byHolder: map[string]map[types.UID]bool{}, holderOf: map[types.UID]string{}}
}

// begin notes the victims of a preemptor. None of them has another.
func (u *Underway) begin(holder string, victims []*v1.Pod) {
	u.mu.Lock()
	defer u.mu.Unlock()
	set := map[types.UID]bool{}
	for _, pod := range victims {
		set[pod.UID] = true
		u.holderOf[pod.UID] = holder
	}
	if len(set) > 0 {
		u.byHolder[holder] = set
	}
}

// gone notes that a victim has ended, or will not.
func (u *Underway) gone(victim types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	holder := u.holderOf[victim]
	delete(u.holderOf, victim)
	delete(u.byHolder[holder], victim)
	if len(u.byHolder[holder]) == 0 {
		delete(u.byHolder, holder)
	}
}

// end forgets a preemptor.
func (u *Underway) end(holder string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for victim := range u.byHolder[holder] {
		delete(u.holderOf, victim)
	}
	delete(u.byHolder, holder)
}

// victims is how many of a preemptor have not ended.
func (u *Underway) victims(holder string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.byHolder[holder])
}

// all lists the victims that have not ended.
func (u *Underway) all() map[types.UID]bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := make(map[types.UID]bool, len(u.holderOf))
	for victim := range u.holderOf {
		all[victim] = true
	}
	return all
}
