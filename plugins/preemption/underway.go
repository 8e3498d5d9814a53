package preemption

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// underway is the preemptions whose victims have not all ended.
type underway struct {
	mu      sync.Mutex
	byGroup map[string]map[types.UID]bool
	groupOf map[types.UID][]string
}

// begin notes the victims of a group.
func (u *underway) begin(group string, victims []*v1.Pod) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.byGroup == nil {
		u.byGroup, u.groupOf = map[string]map[types.UID]bool{}, map[types.UID][]string{}
	}
	set := map[types.UID]bool{}
	for _, pod := range victims {
		set[pod.UID] = true
		u.groupOf[pod.UID] = append(u.groupOf[pod.UID], group)
	}
	u.byGroup[group] = set
}

// gone notes that a victim has ended, or will not.
func (u *underway) gone(victim types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, group := range u.groupOf[victim] {
		delete(u.byGroup[group], victim)
		if len(u.byGroup[group]) == 0 {
			delete(u.byGroup, group)
		}
	}
	delete(u.groupOf, victim)
}

// end forgets a group.
func (u *underway) end(group string) {
	u.mu.Lock()
	victims := u.byGroup[group]
	delete(u.byGroup, group)
	for victim := range victims {
		delete(u.groupOf, victim)
	}
	u.mu.Unlock()
}

// victims is how many of a group have not ended.
func (u *underway) victims(group string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.byGroup[group])
}
