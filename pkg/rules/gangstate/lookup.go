package gangstate

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// waits reports whether a member has no node, or only holds one until its group, which
// does not fit, has its minimum.
func (m *member) waits() bool {
	return m.state == Pending || m.state == Planned && m.gang.group.phase == awaiting
}

// Unplaced returns all members that have no node and are not on their way to one.
func (s *Gangs) Unplaced() []*v1.Pod {
	var pods []*v1.Pod
	for _, m := range s.members {
		if m.state == Pending {
			pods = append(pods, m.pod)
		}
	}
	return pods
}

// Keys returns all gangs, in any order.
func (s *Gangs) Keys() []Key { return slices.Collect(maps.Keys(s.gangs)) }

// KeysOf returns the gangs of pods, each once; pods that are no members have none.
func (s *Gangs) KeysOf(pods []types.UID) []Key {
	var keys []Key
	for _, uid := range pods {
		if m := s.members[uid]; m != nil {
			keys = append(keys, m.gang.key)
		}
	}
	slices.SortFunc(keys, compareKeys)
	return slices.Compact(keys)
}

// ByItself reports whether nothing else has to be placed for a pod to start: it is in no gang, or its gang runs, or
// needs no more than one member and starts with no other.
func (s *Gangs) ByItself(uid types.UID) bool {
	m := s.members[uid]
	if m == nil || m.gang.hasStarted() {
		return true
	}
	least := 0
	for _, g := range m.gang.group.gangs {
		if !g.hasStarted() {
			least += g.spec.Min
		}
	}
	return least == 1
}

// Knows reports whether a pod is a member of a gang here.
func (s *Gangs) Knows(uid types.UID) bool { return s.members[uid] != nil }

// Counts is the number of members by state, for metrics.
type Counts struct {
	Held int
	// Gangs by what they wait for.
	Incomplete, Unschedulable, Running int
	// Oldest is since when the gang that waits the longest has had all that it needs except nodes; zero if none waits so.
	Oldest time.Time
}

// Count adds up the gangs and their members.
func (s *Gangs) Count() Counts {
	var c Counts
	for _, g := range s.gangs {
		c.Held += g.byState[Planned].N + g.byState[Held].N
		if g.hasStarted() {
			c.Running++
			continue
		}
		if s.complete(g.group) {
			c.Oldest = earlier(c.Oldest, g.completed)
		}
		switch reason, _ := s.why(g); {
		case reason == "":
		case v1alpha1.IsIncomplete(reason):
			c.Incomplete++
		default:
			c.Unschedulable++
		}
	}
	return c
}
