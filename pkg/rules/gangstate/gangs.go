package gangstate

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/pkg/util/times"
)

// Gangs is every gang of one scheduler profile. It is not safe for concurrent
// use.
type Gangs struct {
	defaults gangspec.Defaults
	backoff  Backoff

	gangs   map[gangspec.Key]*gang
	members map[types.UID]*member
	// succeeded are the gangs of members that ran to success.
	succeeded map[types.UID]*gang
	// naming lists, for a gang, the gangs that name it in their groups.
	naming map[gangspec.Key]map[gangspec.Key]bool
	// timed are the groups that time can move; ticked is when it was looked at last.
	timed  map[*group]bool
	ticked time.Time
	turns  claimTurns
	// withdrawals are the claims whose allocation is being taken back, and the members that
	// they are reserved for.
	withdrawals map[types.NamespacedName]sets.Set[types.UID]
	// closed: no member is let through yet, see Open.
	closed bool
	// lastChange numbers the changes of all groups: none is taken for one of a group that had the same name before.
	lastChange int

	effects Effects
}

// New returns an empty set of gangs, which lets no member through until Open.
func New(defaults gangspec.Defaults, backoff Backoff) *Gangs {
	return &Gangs{
		defaults:  defaults,
		backoff:   backoff,
		gangs:     map[gangspec.Key]*gang{},
		members:   map[types.UID]*member{},
		succeeded: map[types.UID]*gang{},
		naming:    map[gangspec.Key]map[gangspec.Key]bool{},
		timed:     map[*group]bool{},
		turns:     newClaimTurns(),
		closed:    true,

		withdrawals: map[types.NamespacedName]sets.Set[types.UID]{},
	}
}

// FromObjects returns the gangs of a profile as a scheduler finds them that begins now. pods are those that name the
// profile. What depends on its configuration is left out.
func FromObjects(objects map[gangspec.Key]gangspec.PodGroups, pods []*v1.Pod, now time.Time) *Gangs {
	s := New(gangspec.Defaults{}, Backoff{})
	for key, said := range objects {
		for kind, object := range said.OfGang() {
			if object != nil {
				s.Describe(gangspec.Kind(kind), key, object, now)
			}
		}
	}
	native := func(key gangspec.Key) *gangspec.PodGroupDescription { return objects[key][gangspec.Native] }
	for _, pod := range pods {
		_, _, member := gangspec.GangOf(pod, native)
		if member && pod.Status.Phase != v1.PodFailed {
			s.ObservePod(pod, now)
		}
	}
	s.Open(now)
	return s
}

// Open lets through the members that may go: until then every member is kept out of the queue. It records that what
// there was to see at the start has been seen: after a restart, a gang that is about to be seen half bound has to come
// before gangs that wait.
func (s *Gangs) Open(now time.Time) Effects {
	s.closed = false
	for _, g := range s.gangs {
		s.updatePhase(g, now)
	}
	for _, g := range s.gangs {
		s.admitGang(g)
	}
	return s.takeEffects()
}

// takeEffects returns the effects that gathered during an input.
func (s *Gangs) takeEffects() Effects {
	e := s.effects
	s.effects = Effects{}
	return e
}

// mayFit notes that something about a group has changed after which it may fit.
func (s *Gangs) mayFit(grp *group) {
	s.lastChange++
	grp.changes = s.lastChange
}

// markChanged notes that there may be something new to say about a gang, or about the group of its name.
func (s *Gangs) markChanged(g *gang) {
	if s.effects.Changed == nil {
		s.effects.Changed = sets.New[gangspec.Key]()
	}
	s.effects.Changed.Insert(g.key)
}

func (s *Gangs) gang(key gangspec.Key) *gang {
	g := s.gangs[key]
	if g == nil {
		nothing := gangspec.Spec{Mode: gangspec.Strict, Policy: gangspec.OnceSatisfied, WaitTime: s.defaults.WaitTime}
		g = &gang{
			key: key, members: map[types.UID]*member{}, numbers: numbering{}, incarnation: newIncarnation(),
			description: description{asked: nothing, spec: nothing},
		}
		g.group = &group{gangs: []*gang{g}}
		s.gangs[key] = g
	}
	return g
}

// ObservePod records what the API server says of a pod that has not failed. If the pod names another gang than before,
// it moves to that gang. If it ran to success, it counts towards the minimum in this life of the gang, also when it is
// deleted later.
func (s *Gangs) ObservePod(pod *v1.Pod, now time.Time) Effects {
	key, _, ok := gangspec.KeyOf(pod)
	if !ok {
		return s.Leave(pod, now)
	}
	if pod.Status.Phase == v1.PodSucceeded {
		s.seeSucceeded(pod, key, now)
		return s.takeEffects()
	}
	m := s.members[pod.UID]
	switch {
	case m == nil:
		m = &member{pod: pod}
		s.join(s.gang(key), m, now)
	case m.gang.key != key:
		left := m
		s.remove(left, now)
		m = &member{pod: pod}
		m.carry(left)
		s.join(s.gang(key), m, now)
	default:
		s.update(m, pod, now)
	}
	s.updatePhase(m.gang, now)
	s.admit(m)
	return s.takeEffects()
}

// Leave records that a pod is in no gang. If it waits, it goes through the gates again: no gang keeps it back.
func (s *Gangs) Leave(pod *v1.Pod, now time.Time) Effects {
	if m := s.members[pod.UID]; m != nil {
		s.leave(m, pod, now)
	}
	s.leaveSucceeded(pod.UID, now)
	return s.takeEffects()
}

func (s *Gangs) leave(m *member, pod *v1.Pod, now time.Time) {
	s.dismiss(m, now)
	if pod.Spec.NodeName == "" {
		s.effects.Activate = append(s.effects.Activate, pod)
	}
}

// memberOf returns the member that a version of a pod is; nil if the pod is not known to be in the gang that this
// version names. The scheduling queue and the watch of members get new versions at different times.
func (s *Gangs) memberOf(pod *v1.Pod) *member {
	m := s.members[pod.UID]
	if m == nil {
		return nil
	}
	if key, _, ok := gangspec.KeyOf(pod); !ok || m.gang.key != key {
		return nil
	}
	return m
}

// carry takes over how far a member had come in the gang that it left. It may be in a cycle of that gang: what the
// cycle finds is void.
func (m *member) carry(left *member) {
	m.losing, m.outdated = left.losing, true
	switch left.state {
	case Held, Returning:
		m.state, m.node, m.waiting = Returning, left.node, left.waiting
	case Released, Bound:
		m.state, m.node, m.waiting = left.state, left.node, left.waiting
	case Pending, Planned:
	}
}

func (s *Gangs) join(g *gang, m *member, now time.Time) {
	m.gang = g
	supersedes := g.incarnation.issue(gangspec.OriginOf(m.pod))
	m.observe(m.pod)
	s.members[m.uid()] = m
	g.members[m.uid()] = m
	s.number(m)
	s.turns.add(m)
	g.oldest = times.Earlier(g.oldest, m.pod.CreationTimestamp.Time)
	g.relive(m)
	g.enter(m)
	s.listen(m)
	s.reportDifferences(m)
	s.reportRefused(m)
	s.reportNative(g, m.pod)
	if g.defining() != g.definer {
		s.redefine(g, now)
	}
	if m.coming() {
		s.mayFit(g.group)
	}
	if len(g.members) == 1 {
		s.reportOneSided(g)
		s.updateAwaiting(g, now)
	}
	if supersedes {
		s.reviewAll(s.findReplaced(g), now)
	}
}

func (s *Gangs) update(m *member, pod *v1.Pod, now time.Time) {
	g := m.gang
	changed := !saysSame(m.pod, pod)
	was, came := *m, m.coming()
	g.change(m, func() { m.observe(pod) })
	s.reportRefused(m)
	g.relive(m)
	g.numbers.remove(was.index)
	s.number(m)
	switch {
	case m.state == Bound:
		s.releaseMemberHold(m, was.state)
		s.endTurn(m)
		m.waiting = false
	case !m.free():
		// Its user, or another scheduler, has taken it out of the round.
		s.unreserveMember(m)
	}
	if changed {
		g.ignore(m)
		s.listen(m)
		if g.defining() != g.definer || m == g.definer {
			s.redefine(g, now)
		}
	}
	if m.coming() && (!came || !objectstate.AsksForTheSame(was.pod, pod)) {
		s.mayFit(g.group)
	}
	if a, b := gangspec.OriginOf(was.pod), gangspec.OriginOf(pod); a.Series != b.Series || a.Issue != b.Issue {
		g.incarnation.seeAgain(podsOf(g.sorted(func(*member) bool { return true })))
		s.reviewAll(s.findReplaced(g), now)
	}
}
