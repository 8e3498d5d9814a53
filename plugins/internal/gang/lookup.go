package gang

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Pending returns a member as it was last seen, and whether it still waits.
func (s *Gangs) Pending(uid types.UID) (*v1.Pod, bool) {
	m := s.members[uid]
	if m == nil {
		return nil, false
	}
	return m.pod, m.waits()
}

// waits reports whether a member has no node, or only holds one until its group, which
// does not fit, has its minimum.
func (m *member) waits() bool {
	return m.state == Pending || m.state == Planned && m.gang.group.phase == resting
}

// Unplaced are all members that have no node and are not on their way to one.
func (s *Gangs) Unplaced() []*v1.Pod {
	var pods []*v1.Pod
	for _, m := range s.members {
		if m.state == Pending {
			pods = append(pods, m.pod)
		}
	}
	return pods
}
