package gangstate

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
	"github.com/lockstep-sh/lockstep/pkg/util/times"
)

// waits reports whether a member has no node, or only holds one until its group, which
// does not fit, has its minimum. What is being deleted waits for nothing.
func (m *member) waits() bool {
	return !m.dying() && (m.state == Pending || m.state == Planned && m.gang.group.phase == awaiting)
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
func (s *Gangs) Keys() []gangspec.Key { return slices.Collect(maps.Keys(s.gangs)) }

// Progress is how far the gang of a member has come, and those that start with it.
type Progress struct {
	Gang gangspec.Key
	// Group is the name of the group.
	Group string
	// Alone: nothing else has to be placed for the member to start: its gang runs, or needs no more than one member and
	// starts with no other.
	Alone bool
	// IsComplete: the gangs could start if there were room: all have their members, or the member goes alone since its
	// gang runs.
	IsComplete bool
	// WaitsForRoom: they are whole, and none was refused for anything else than room on nodes, as far as is known.
	WaitsForRoom bool
}

// Progress returns how far the gang of a pod has come; false if the pod is no member.
func (s *Gangs) Progress(uid types.UID) (at Progress, ok bool) {
	m := s.members[uid]
	if m == nil {
		return Progress{}, false
	}
	grp := m.gang.group
	at = Progress{Gang: m.gang.key, Group: grp.key().String()}
	if m.gang.hasStarted() {
		at.Alone, at.IsComplete, at.WaitsForRoom = true, true, true
		return at, true
	}
	least, refused := 0, false
	for _, g := range grp.gangs {
		if !g.hasStarted() {
			least += g.spec.Min
		}
		refused = refused || !g.failure.ofRoom()
	}
	at.Alone, at.IsComplete = least == 1, s.isComplete(grp)
	at.WaitsForRoom = at.IsComplete && !refused
	return at, true
}

// IsPlacedAlone reports whether a pod is placed alone: it is in no gang, or its gang runs. Pods of native pod groups
// that are no gangs here are kube-scheduler's own affair.
func (s *Gangs) IsPlacedAlone(pod *v1.Pod) bool {
	if m := s.memberOf(pod); m != nil {
		return m.state == Pending && m.gang.hasStarted()
	}
	return pod.Spec.SchedulingGroup == nil
}

// PlacedWith returns the name of the group with which a pod is placed; false if there is none.
func (s *Gangs) PlacedWith(pod *v1.Pod) (group string, together bool) {
	m := s.memberOf(pod)
	if m == nil || s.IsPlacedAlone(pod) {
		return "", false
	}
	return m.gang.group.key().String(), true
}

// RankAlone returns the rank of a pod that is placed alone.
func (s *Gangs) RankAlone(pod *v1.Pod) turns.Rank {
	rank := turns.Rank{Priority: corev1helpers.PodPriority(pod), Created: pod.CreationTimestamp.Time}
	if m := s.memberOf(pod); m != nil {
		rank = m.rank()
	}
	rank.Name = pod.Namespace + "/" + pod.Name
	return rank
}

// ofRoom reports whether nothing failed, or only for lack of room: after PlacementFailed a gang is about to take it.
func (f failure) ofRoom() bool {
	return f.none() || f.reason == v1alpha1.ReasonUnschedulable || f.reason == v1alpha1.ReasonPlacementFailed
}

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
		if s.isComplete(g.group) {
			c.Oldest = times.Earlier(c.Oldest, g.completed)
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

// PodGroups returns what the PodGroups of a gang say.
func (s *Gangs) PodGroups(key gangspec.Key) gangspec.PodGroups {
	if g := s.gangs[key]; g != nil {
		return g.objects
	}
	return gangspec.PodGroups{}
}
