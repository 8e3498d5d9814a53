package gangstate

import (
	"cmp"
	"reflect"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/util/bools"
)

// Describe records what a PodGroup says; nil means that there is none.
func (s *Gangs) Describe(kind gangspec.Kind, key gangspec.Key, object *gangspec.PodGroupDescription,
	now time.Time) Effects {
	if object == nil && s.gangs[key] == nil {
		return s.takeEffects()
	}
	g := s.gang(key)
	madeFor, queue := g.madeFor(), g.objects.Facts().Queue
	if g.objects[kind] = object; object == nil {
		g.told = nil
	}
	if g.objects.Facts().Queue != queue {
		s.mayFit(g.group)
	}
	if object := g.object(); object != nil {
		g.incarnation.recorded = object.Succeeded
	}
	var news []*member
	if now := g.madeFor(); now != madeFor {
		g.incarnation.setMadeFor(now)
		news = s.findReplaced(g)
	}
	s.redefine(g, now)
	s.reviewAll(news, now)
	if object != nil {
		for _, problem := range object.Ignored {
			s.report(g, nil, &g.told, problem)
		}
	}
	if object != nil && kind == gangspec.Native {
		for _, m := range g.sorted(func(*member) bool { return true }) {
			s.reportNative(g, m.pod)
		}
	}
	s.updatePhase(g, now)
	s.forget(g)
	return s.takeEffects()
}

// Dissolve records that the pods that name a native PodGroup are in no gang: they go through the
// gates again, and nothing of them is known here afterwards.
func (s *Gangs) Dissolve(key gangspec.Key, now time.Time) Effects {
	g := s.gangs[key]
	if g == nil {
		return s.takeEffects()
	}
	for _, m := range g.sorted(func(m *member) bool { return gangspec.SourceOf(m.pod) == gangspec.FromSchedulingGroup }) {
		s.leave(m, m.pod, now)
	}
	if len(g.members) > 0 {
		return s.takeEffects()
	}
	for uid, of := range s.succeeded {
		if of == g {
			g.incarnation.drop(uid)
			delete(s.succeeded, uid)
		}
	}
	s.updatePhase(g, now)
	s.forget(g)
	return s.takeEffects()
}

func (g *gang) object() *gangspec.PodGroupDescription { return g.objects.Object() }

// ref refers to the PodGroup that describes the gang, if there is one.
func (g *gang) ref() gangspec.Ref {
	for kind, object := range g.objects {
		if object != nil {
			return gangspec.Ref{Kind: gangspec.Kind(kind), UID: object.UID}
		}
	}
	return gangspec.Ref{}
}

// compareDescribers orders members by which may define the gang: 1. those that state a usable minimum; 2. those that
// are not being deleted; 3. the order of members.
func compareDescribers(a, b *member) int {
	return cmp.Or(bools.Compare(b.defines, a.defines), bools.Compare(a.dying(), b.dying()), compareMembers(a, b))
}

// listen reads whether a member says anything of its gang, and the minimum that it states and that cannot be used.
func (m *member) listen() (describes bool, badMin *gangspec.KeyProblem) {
	m.defines, badMin = gangspec.DefinesGang(m.pod)
	return gangspec.DescribesGang(m.pod), badMin
}

// saysSame reports whether two versions of a pod mean the same for who defines the gang, and how.
func saysSame(a, b *v1.Pod) bool {
	return gangspec.DescribeAlike(a, b) && gangspec.IndexOf(a) == gangspec.IndexOf(b) &&
		(a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil)
}

// listen notes what a member says of its gang.
func (s *Gangs) listen(m *member) {
	g := m.gang
	describes, badMin := m.listen()
	if !describes {
		return
	}
	at, _ := slices.BinarySearchFunc(g.describers, m, compareDescribers)
	g.describers = slices.Insert(g.describers, at, m)
	if badMin != nil && g.defining() != m {
		// For the defining member it is reported with what is used instead.
		s.report(g, m.pod, &m.told, *badMin)
	}
}

// reportDifferences reports what a member that has come says of its gang, or the one that has defined it so far, and
// the member that defines it now does not. Members that change later are not compared: a user changes one by one.
func (s *Gangs) reportDifferences(m *member) {
	g := m.gang
	definer, other := g.defining(), m
	if definer == m && len(g.describers) > 1 {
		other = g.describers[1]
	}
	if definer == nil || definer == other || !definer.lives() || !other.lives() {
		return
	}
	for _, problem := range gangspec.Differences(other.pod, definer.pod) {
		s.report(g, other.pod, &other.told, problem)
	}
}

// ignore undoes listen.
func (g *gang) ignore(m *member) {
	if at := slices.Index(g.describers, m); at >= 0 {
		g.describers = slices.Delete(g.describers, at, at+1)
	}
}

func (g *gang) defining() *member { return definerOf(g.describers, g.object()) }

// definerOf returns the first of members, in the order in which they may define a gang, if it states a usable minimum,
// or adds to the PodGroup.
func definerOf(describers []*member, object *gangspec.PodGroupDescription) *member {
	if len(describers) == 0 || !describers[0].defines && object == nil {
		return nil
	}
	return describers[0]
}

// lowers reports whether some role has a lower minimum than before.
func lowers(before, now map[string]int) bool {
	for role, n := range before {
		if now[role] < n {
			return true
		}
	}
	return false
}

// redefine rebuilds the spec.
func (s *Gangs) redefine(g *gang, now time.Time) {
	g.definer = g.defining()
	var from *v1.Pod
	if g.definer != nil {
		from = g.definer.pod
	}
	before, asked := g.spec.Groups, g.asked
	spec, fault, problems := gangspec.ParseStarted(g.key, g.object(), from, s.defaults)
	switch {
	case fault == "":
	case g.running() == 0:
		spec.Refuse(fault)
	case g.asked.Min > 0:
		spec = g.asked // what runs goes on as it began
	}
	g.asked, g.spec = spec, spec
	g.lower(asked.Min)
	if fewer := spec.Min < asked.Min || lowers(asked.MinByRole, spec.MinByRole); fewer && g.running() > 0 {
		s.effects.Freed = true // more of it is surplus, which helps preemptors
	}
	if more := spec.Min > asked.Min || lowers(spec.MinByRole, asked.MinByRole); more && g.hasStarted() {
		s.readmitExtras(g) // they may be needed now
	}
	s.enterStage(g)
	g.group.ranked = false
	if !reflect.DeepEqual(asked, spec) {
		s.mayFit(g.group)
	}
	for _, problem := range problems {
		if problem.OnObject {
			s.report(g, nil, &g.told, problem)
		} else {
			s.report(g, from, &g.toldOf, problem)
		}
	}
	if !slices.Equal(before, spec.Groups) {
		s.updateNamedGangs(g, before, now)
	}
	s.reportOneSided(g)
}

// reportRefused reports a member that asks for what no pod can have.
func (s *Gangs) reportRefused(m *member) {
	if fault := m.refused; fault != nil {
		s.report(m.gang, m.pod, &m.told, gangspec.KeyProblem{Key: fault.Field, Value: fault.Value, Want: fault.Want,
			Used: "nothing: the pod waits, and is no member for now"})
	}
}

// badValue is what a user is told of once: the same value is the same mistake, whatever is used
// instead.
type badValue struct{ key, value string }

// mostTold is how many bad values of one object are remembered, which may be changed in a loop.
const mostTold = 64

// report reports a problem of a pod or of the PodGroup, unless told has it already.
func (s *Gangs) report(g *gang, pod *v1.Pod, told *map[badValue]bool, problem gangspec.KeyProblem) {
	bad := badValue{problem.Key, problem.Value}
	if (*told)[bad] {
		return
	}
	if *told == nil {
		*told = map[badValue]bool{}
	}
	if len(*told) >= mostTold {
		clear(*told)
	}
	(*told)[bad] = true
	s.effects.Problems = append(s.effects.Problems, Report{Gang: g.key, Pod: pod, Object: g.ref(), Problem: problem})
}

// reportDescription reports a problem of an annotation that describes a gang, on the pod that defines the gang, or else
// on its PodGroup.
func (s *Gangs) reportDescription(g *gang, problem gangspec.KeyProblem) {
	if g.definer != nil && g.definer.pod.Annotations[problem.Key] != "" {
		s.report(g, g.definer.pod, &g.toldOf, problem)
		return
	}
	problem.OnObject = true
	s.report(g, nil, &g.told, problem)
}

// reportNative reports what is not understood of the native PodGroup of a member. PodGroups whose pods other
// schedulers place are not reported.
func (s *Gangs) reportNative(g *gang, pod *v1.Pod) {
	if g.ref().Kind != gangspec.Native {
		return
	}
	for _, problem := range g.object().ProblemsWith(pod) {
		s.report(g, nil, &g.told, problem)
	}
}
