package gang

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Gangs is every gang of one scheduler profile. It is not safe for concurrent
// use.
type Gangs struct {
	defaultWait time.Duration
	backoff     Backoff

	gangs   map[Key]*gang
	members map[types.UID]*member
	// naming lists, for a gang, the gangs that name it in their groups.
	naming map[Key]map[Key]bool
	// timed are the groups that time can move.
	timed map[*group]bool
	// changes counts what happened in the cluster that could help a gang.
	changes uint64

	effects Effects
}

// New makes an empty set of gangs.
func New(defaultWait time.Duration, backoff Backoff) *Gangs {
	return &Gangs{
		defaultWait: defaultWait,
		backoff:     backoff,
		gangs:       map[Key]*gang{},
		members:     map[types.UID]*member{},
		naming:      map[Key]map[Key]bool{},
		timed:       map[*group]bool{},
	}
}

// take hands out the effects that gathered during an input.
func (s *Gangs) take() Effects {
	e := s.effects
	s.effects = Effects{}
	return e
}

func (s *Gangs) gang(key Key) *gang {
	g := s.gangs[key]
	if g == nil {
		g = &gang{
			key: key, members: map[types.UID]*member{}, succeeded: map[types.UID]types.UID{},
			byRole: map[string]*roleCount{}, spec: Spec{Mode: Strict, Policy: OnceSatisfied},
		}
		g.group = &group{gangs: []*gang{g}}
		s.gangs[key] = g
		s.regroup(g)
	}
	return g
}

// See takes in what the API server says of a pod that has not ended. Pods
// outside gangs are ignored; a pod that changed its gang leaves the old one.
func (s *Gangs) See(pod *v1.Pod, now time.Time) Effects {
	key, _, ok := KeyOf(pod)
	m := s.members[pod.UID]
	if m != nil && (!ok || m.gang.key != key) {
		s.remove(m, now)
		m = nil
	}
	if !ok {
		return s.take()
	}
	g := s.gang(key)
	redefine := false
	if m == nil {
		m = &member{pod: pod, gang: g}
		m.observe(pod)
		s.members[pod.UID] = m
		g.members[pod.UID] = m
		g.owner = ownerOf(pod)
		g.enter(m)
		redefine = s.mayDefine(g, m)
	} else {
		redefine = !maps.Equal(pod.Annotations, m.pod.Annotations) || !maps.Equal(pod.Labels, m.pod.Labels)
		g.change(m, func() { m.observe(pod) })
	}
	if redefine {
		s.redefine(g)
	}
	s.settle(g, now)
	s.admit(m)
	return s.take()
}

// Gone takes in that a pod was deleted, or has ended.
func (s *Gangs) Gone(uid types.UID, now time.Time) Effects {
	if m := s.members[uid]; m != nil {
		s.remove(m, now)
	}
	return s.take()
}

func (s *Gangs) remove(m *member, now time.Time) {
	g := m.gang
	switch m.state {
	case Planned:
		s.effects.Unhold = append(s.effects.Unhold, m.uid())
	case Held:
		s.effects.Reject = append(s.effects.Reject, m.uid())
	}
	g.leave(m)
	delete(g.members, m.uid())
	delete(s.members, m.uid())
	if g.definer == m {
		s.redefine(g)
	}
	s.settle(g, now)
	s.forget(g, now)
}

// forget drops a gang of which nothing is left.
func (s *Gangs) forget(g *gang, now time.Time) {
	if !g.empty() {
		return
	}
	for _, other := range g.spec.Groups {
		delete(s.naming[other], g.key)
	}
	delete(s.timed, g.group)
	delete(s.gangs, g.key)
	others := slices.DeleteFunc(slices.Clone(g.group.gangs), func(other *gang) bool { return other == g })
	for _, other := range others {
		s.regroup(other)
		s.settle(other, now)
	}
}

// Succeeded takes in that a member ran to success; it counts towards the
// minimum of what runs under the same owner.
func (s *Gangs) Succeeded(pod *v1.Pod, now time.Time) Effects {
	key, _, ok := KeyOf(pod)
	if !ok || pod.Spec.NodeName == "" {
		return s.take()
	}
	g := s.gang(key)
	if _, known := g.succeeded[pod.UID]; !known {
		g.succeeded[pod.UID] = ownerOf(pod)
		s.settle(g, now)
	}
	return s.take()
}

// ForgetSucceeded takes in that the object of such a member was deleted.
func (s *Gangs) ForgetSucceeded(pod *v1.Pod, now time.Time) Effects {
	key, _, _ := KeyOf(pod)
	if g := s.gangs[key]; g != nil {
		delete(g.succeeded, pod.UID)
		s.settle(g, now)
		s.forget(g, now)
	}
	return s.take()
}

// Kind tells the two kinds of PodGroup apart. Where both describe a gang, the
// community's wins.
type Kind int

// The kinds of PodGroup.
const (
	Community Kind = iota
	Native
)

// Describe takes in what a PodGroup says; nil means that there is none.
func (s *Gangs) Describe(kind Kind, key Key, object *Object, created, now time.Time) Effects {
	if object == nil && s.gangs[key] == nil {
		return s.take()
	}
	g := s.gang(key)
	if object == nil {
		g.objects[kind] = nil
	} else {
		g.objects[kind] = &described{Object: *object, created: created}
	}
	s.redefine(g)
	s.settle(g, now)
	s.forget(g, now)
	return s.take()
}

// Changed takes in that something happened in the cluster which could help a
// gang that does not fit.
func (s *Gangs) Changed() { s.changes++ }

func fieldsOf(pod *v1.Pod) Fields {
	return Fields{Annotations: pod.Annotations, Labels: pod.Labels}
}

func describes(pod *v1.Pod) bool { return fieldsOf(pod).Describes() }

// mayDefine tells whether a new member could change what the gang is.
func (s *Gangs) mayDefine(g *gang, m *member) bool {
	if !describes(m.pod) {
		return false
	}
	if _, bad := fieldsOf(m.pod).Defines(); bad != nil {
		s.report(g, m.pod, *bad)
	}
	return g.definer == nil || compareMembers(m, g.definer) < 0
}

// redefine makes the spec anew. The oldest pod that states a usable minimum
// defines the gang; failing that, the oldest that adds to its PodGroup.
func (s *Gangs) redefine(g *gang) {
	before := g.spec
	var object *Object
	if d := cmpOr(g.objects[Community], g.objects[Native]); d != nil {
		object = &d.Object
	}
	g.definer = nil
	var fields Fields
	var fallback *member
	for _, m := range g.sorted(func(m *member) bool { return describes(m.pod) }) {
		ok, bad := fieldsOf(m.pod).Defines()
		if bad != nil {
			s.report(g, m.pod, *bad)
		}
		if ok && g.definer == nil {
			g.definer = m
		}
		if fallback == nil {
			fallback = m
		}
	}
	if g.definer == nil && object != nil {
		g.definer = fallback
	}
	var from *v1.Pod
	if g.definer != nil {
		from, fields = g.definer.pod, fieldsOf(g.definer.pod)
	}
	spec, problems := Parse(g.key, object, fields, s.defaultWait)
	g.spec = spec
	for _, problem := range problems {
		s.report(g, from, problem)
	}
	if !slices.Equal(before.Groups, spec.Groups) {
		s.rename(g, before.Groups, spec.Groups)
	}
}

func cmpOr(a, b *described) *described {
	if a != nil {
		return a
	}
	return b
}

// report tells of a problem once for as long as its pod, or the gang, is there.
func (s *Gangs) report(g *gang, pod *v1.Pod, problem Problem) {
	told := &g.told
	if pod != nil {
		told = &s.members[pod.UID].told
	}
	if (*told)[problem] {
		return
	}
	if *told == nil {
		*told = map[Problem]bool{}
	}
	(*told)[problem] = true
	s.effects.Problems = append(s.effects.Problems, Report{Gang: g.key, Pod: pod, Problem: problem})
}

// rename keeps the reverse index of groups, and groups anew.
func (s *Gangs) rename(g *gang, before, after []Key) {
	for _, key := range before {
		delete(s.naming[key], g.key)
	}
	for _, key := range after {
		if s.naming[key] == nil {
			s.naming[key] = map[Key]bool{}
		}
		s.naming[key][g.key] = true
	}
	s.regroup(g)
}

// regroup puts g and whoever agrees with it into one group: gangs that name each
// other. A gang that names one which does not name it back waits for that one,
// but does not bind it. What the old groups held is given back.
func (s *Gangs) regroup(g *gang) {
	together := s.agreeing(g)
	old := map[*group]bool{}
	for _, member := range together {
		old[member.group] = true
	}
	if len(old) == 1 && len(g.group.gangs) == len(together) {
		return
	}
	left := []*gang{}
	for former := range old {
		s.giveBack(former)
		delete(s.timed, former)
		for _, member := range former.gangs {
			if !slices.Contains(together, member) && s.gangs[member.key] == member {
				left = append(left, member)
			}
		}
	}
	s.form(together)
	for _, member := range left {
		s.form(s.agreeing(member))
	}
}

func (s *Gangs) form(gangs []*gang) {
	joint := &group{gangs: gangs}
	for _, member := range gangs {
		member.group = joint
	}
}

// agreeing lists the gangs that are bound to g by mutual naming, g included.
func (s *Gangs) agreeing(g *gang) []*gang {
	found := []*gang{g}
	for i := 0; i < len(found); i++ {
		for _, key := range found[i].spec.Groups {
			other := s.gangs[key]
			if other != nil && slices.Contains(other.spec.Groups, found[i].key) && !slices.Contains(found, other) {
				found = append(found, other)
			}
		}
	}
	slices.SortFunc(found, func(a, b *gang) int { return compareKeys(a.key, b.key) })
	return found
}

// awaited is the first gang that g names, that does not name it back (or does
// not exist), and that does not run yet.
func (s *Gangs) awaited(g *gang) (Key, bool) {
	for _, key := range g.spec.Groups {
		other := s.gangs[key]
		if other == nil || (other.group != g.group && !other.satisfied()) {
			return key, true
		}
	}
	return Key{}, false
}
