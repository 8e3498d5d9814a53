package gang

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Pending answers a member as it was last seen, and whether it still has no node.
func (s *Gangs) Pending(uid types.UID) (*v1.Pod, bool) {
	m := s.members[uid]
	if m == nil {
		return nil, false
	}
	return m.pod, m.state == Pending
}
