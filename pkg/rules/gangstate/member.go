package gangstate

import (
	"cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// State is how far a member has come.
type State uint8

const (
	// Pending: it has no node. It may be eligible, or wait for its user.
	Pending State = iota
	// Planned: a plan gives it a node, whose capacity is held for it.
	Planned
	// Held: it is reserved on its node and waits for the others.
	Held
	// Released: it may bind; the binding is under way.
	Released
	// Bound: it is on its node.
	Bound
	// Returning: it was held and is giving that back; until it has, it cannot be
	// planned again.
	Returning

	numStates
)

// member is one pod of a gang, by UID: a pod that is deleted and made again under its name is
// another member.
type member struct {
	pod   *v1.Pod
	gang  *gang
	state State
	node  string

	// admitted: the queue may let it through; only then does it cost a cycle.
	admitted bool
	// waiting: its binding waits for a decision from here.
	waiting bool
	// keepsPlace: it gives back its reservation, and its place stays held for it; see keepPart.
	keepsPlace bool
	// expired: the wait time of its gang ran out while it was waiting, or the pod carries the timeout annotation. It
	// revives when that is removed.
	expired bool

	// losing are the claims reserved for it whose allocation is being taken back; see Withdraw.
	losing sets.Set[types.NamespacedName]
	// outdated: a claim was taken back, or it has come from another gang, since it last left the queue.
	outdated bool
	// replaced: it is about to be deleted in favour of others, see [incarnation.replaces].
	replaced bool

	// refused is why it cannot be scheduled as it is: an amount that it asks for; nil for nothing.
	refused *resource.Fault

	// defines: the pod states a usable minimum of its gang.
	defines bool
	// told are the bad values of this pod that its user was told of.
	told map[badValue]bool
	// index is the number that the pod carries.
	index gangspec.Index
}

func newMember(pod *v1.Pod) *member { return &member{pod: pod, index: gangspec.IndexOf(pod)} }

func (m *member) uid() types.UID { return m.pod.UID }

// free reports whether nothing but the scheduler stands in its way.
func (m *member) free() bool {
	return !m.expired && m.lives() && len(m.losing) == 0 && !new(gangspec.UncountedPods).Add(m.pod, m.refused)
}

// eligible reports whether a plan may place it.
func (m *member) eligible() bool { return m.state == Pending && m.free() }

// coming reports whether it is eligible, or will be once it has given back its node.
func (m *member) coming() bool { return m.eligible() || m.state == Returning && m.free() }

// lives reports whether it has not ended, is not being deleted, and will not be.
func (m *member) lives() bool { return !m.dying() && !m.replaced }

// dying reports whether it is being deleted.
func (m *member) dying() bool { return m.pod.DeletionTimestamp != nil }

// leaving reports whether it ran and is being deleted, or will be. It no longer counts: the members of a
// gang that was evicted whole, or is run again, must not pass for a running gang while they terminate.
func (m *member) leaving() bool { return m.state == Bound && !m.lives() }

// evicting reports whether its eviction has begun: the scheduler is about to delete it.
func (m *member) evicting() bool { return objectstate.IsBeingEvicted(m.pod) }

// runs reports whether it is on its node, or on its way there.
func (m *member) runs() bool { return m.state == Released || m.state == Bound }

// placed reports whether it counts as having a node.
func (m *member) placed() bool {
	switch m.state {
	case Planned, Held, Released:
		return true
	case Bound:
		return !m.leaving()
	default:
		return false
	}
}

func (m *member) role() string { return gangspec.RoleOf(m.pod) }

// observe takes over what the API server says of the pod.
func (m *member) observe(pod *v1.Pod) {
	_, was := m.pod.Annotations[v1alpha1.TimeoutAnnotation]
	if _, is := pod.Annotations[v1alpha1.TimeoutAnnotation]; is || was {
		m.expired = is
	}
	m.pod, m.index = pod, gangspec.IndexOf(pod)
	m.replaced = m.gang.incarnation.replaces(gangspec.OriginOf(pod))
	m.refused = resource.CheckPod(pod)
	if pod.Spec.NodeName != "" {
		m.state, m.node = Bound, pod.Spec.NodeName
	}
}

// compareMembers orders by: 1. priority, high first; 2. rank, see compareRanks; 3. creation,
// old first; 4. name, with the numbers in it by value; 5. UID.
func compareMembers(a, b *member) int {
	return cmp.Or(
		cmp.Compare(corev1helpers.PodPriority(b.pod), corev1helpers.PodPriority(a.pod)),
		gangspec.CompareIndexes(a.index, b.index),
		a.pod.CreationTimestamp.Compare(b.pod.CreationTimestamp.Time),
		gangspec.CompareNatural(a.pod.Name, b.pod.Name),
		cmp.Compare(a.uid(), b.uid()),
	)
}
