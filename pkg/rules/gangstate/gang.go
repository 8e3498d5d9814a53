package gangstate

import (
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// gang is the members that agree on a key, and what is known of their wishes.
type gang struct {
	key     gangspec.Key
	group   *group
	members map[types.UID]*member
	// numbers are those that the members carry.
	numbers numbering
	// oldest is the creation of the oldest member that it ever had: its place in
	// the queue does not change when that one goes.
	oldest time.Time
	// incarnation says which members that ran to success still count: those of this run of the gang, so that a job that is
	// run again starts as a gang.
	incarnation incarnation
	description
	tallies
	attempts
	// wasStarted and admittedSingly are the results of hasStarted and admitsSingly when they were last acted upon.
	wasStarted, admittedSingly bool
	progress
}

// description is what a gang asks for, and who says so.
type description struct {
	objects gangspec.PodGroups
	// asked is what the user asked for; spec is that, with the minimum of the stage that is
	// to run now.
	asked, spec gangspec.Spec
	// apart are the gangs that it names and is not grouped with.
	apart []gangspec.Key
	// describers are the members that say something of the gang, in the order in
	// which they may define it. definer is the first of them if it does.
	describers []*member
	definer    *member
	// told is what was reported about its PodGroup, toldOf about the members that defined it, for
	// as long as it has any: all members of a workload have the same value.
	told, toldOf map[badValue]bool
}

// tallies are counts over members, kept by enter and leave. Leaving members are not counted.
type tallies struct {
	byState [numStates]gangspec.Count
	// coming are the ones that are, or will be, eligible, and returning those of them that have yet to give back a node.
	coming, returning gangspec.Count
	// evicting counts those whose eviction has begun.
	evicting int
}

// attempts is what came of the attempts to place a gang.
type attempts struct {
	// failure is why the last one failed; zero if none failed since the gang was last complete.
	failure failure
	// missed is when it first did not fit; zero if it was not tried, has started since, or has lost all its members. It
	// does not begin again when a member is replaced.
	missed time.Time
	// completed is when the round that is to start it began; zero once it has started.
	completed time.Time
}

// progress is what is known of a gang of which part runs, see updateStarted. It is zero if nothing runs.
type progress struct {
	// interrupted: the rest of the minimum was there to run with what runs, or is of a later stage. It starts as a whole.
	interrupted bool
	// lastMin is the minimum when the gang last ran whole; confirmedMin is the part of it that certainly ran. For a gang
	// that ran before it was seen, the first is what its minimum is.
	lastMin, confirmedMin int
	// lowered is by how much the minimum was lowered, less the members that were seen to be gone for it; negative until
	// the minimum follows.
	lowered int
	// broken is since when less than the minimum runs and the gang does not grow; zero if the minimum runs.
	broken time.Time
	// rest is what it has still to take of its minResources, and growing when it began to run; see expect.
	rest    resource.Vector
	growing time.Time
}

// enter and leave keep the counts; every change of a member stands between them.
func (g *gang) enter(m *member) { g.countMember(m, 1) }
func (g *gang) leave(m *member) { g.countMember(m, -1) }

func (g *gang) countMember(m *member, by int) {
	g.group.ranked = false
	if m.leaving() {
		return
	}
	role := m.role()
	g.byState[m.state].Add(by, role)
	if m.evicting() {
		g.evicting += by
	}
	if m.coming() {
		g.coming.Add(by, role)
		if m.state == Returning {
			g.returning.Add(by, role)
		}
	}
}

// change applies f to m and keeps the counts.
func (g *gang) change(m *member, f func()) {
	g.leave(m)
	f()
	g.enter(m)
}

// have counts what a plan can build on: members that have a node, or had one to
// the end.
func (g *gang) have() gangspec.Count {
	if !g.spec.Policy.CountsRunning() {
		return g.byState[Planned].Plus(g.byState[Held])
	}
	return g.byState[Planned].Plus(g.byState[Held], g.byState[Released], g.byState[Bound], g.succeeded())
}

// releasable reports whether the gang could be released: its minimum is held,
// released or bound. Planned members do not count: they hold capacity, but the
// scheduler has not yet checked them on their node.
func (g *gang) releasable() bool {
	if g.hasStarted() {
		return true
	}
	return g.have().Minus(g.byState[Planned]).Reaches(&g.spec)
}

// need returns the number of members that a plan has to place.
func (g *gang) need() int {
	if g.hasStarted() {
		return 0
	}
	return g.short()
}

// short returns how many members the minimum lacks, whether or not they go alone.
func (g *gang) short() int { return g.have().Short(&g.spec) }

// gathered reports whether a round could reach the minimum. Members that give back
// a node will be eligible again.
func (g *gang) gathered() bool {
	return g.hasStarted() || g.have().Plus(g.coming).Reaches(&g.spec)
}

// assembled reports whether all members that a gathered gang needs can be planned: an attempt without those that have
// yet to give back their nodes would fail, and report that the gang is too large.
func (g *gang) assembled() bool {
	return g.need() == 0 || g.returning.N == 0 || g.have().Plus(g.coming).Minus(g.returning).Reaches(&g.spec)
}

// created returns when the gang came to be: its object, else its oldest member. It is zero if
// neither was seen.
func (g *gang) created() time.Time {
	if object := g.object(); object != nil {
		return object.Created
	}
	return g.oldest
}

// sorted lists the members that pass the test, in their order.
func (g *gang) sorted(test func(*member) bool) []*member {
	var out []*member
	for _, m := range g.members {
		if test(m) {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, compareMembers)
	return out
}

// priorityOf returns the highest priority of the members that pass the test, or less than any if none does.
func (g *gang) priorityOf(test func(*member) bool) int32 {
	priority := int32(math.MinInt32)
	for _, m := range g.members {
		if test(m) {
			priority = max(priority, corev1helpers.PodPriority(m.pod))
		}
	}
	return priority
}

func (g *gang) empty() bool {
	return len(g.members) == 0 && g.object() == nil && len(g.incarnation.finished) == 0
}

func podsOf(members []*member) []*v1.Pod {
	pods := make([]*v1.Pod, len(members))
	for i, m := range members {
		pods[i] = m.pod
	}
	return pods
}

// failure is why an attempt or a round failed, for users. topology is the label key of the required topology,
// if that alone is why.
type failure struct {
	reason, message, topology string
	// leader is the pod whose cycle found all of it; empty for none.
	leader types.UID
}

// none reports whether nothing failed.
func (f failure) none() bool { return f.message == "" }

// aside counts those of the pods of a gang.
func (g *gang) aside() (a gangspec.UncountedPods) {
	for _, m := range g.sorted(func(m *member) bool { return m.state == Pending && m.lives() }) {
		a.Add(m.pod, m.refused)
	}
	return a
}
