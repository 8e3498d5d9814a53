package gangstate

import (
	"cmp"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
	"github.com/lockstep-sh/lockstep/pkg/util/times"
)

// phase is what a group waits for. README.md of the plugin has the diagram.
type phase uint8

const (
	// gathering: members are missing, or there is none to place.
	gathering phase = iota
	// awaiting: it waits for its turn. Members of a NonStrict group may hold capacity.
	awaiting
	// inTurn: the leader may come and plan.
	inTurn
	// following: a plan stands and its members are on their way.
	following
)

// group is the gangs that start together: a GangGroup, or one gang alone. It is
// the unit of planning, holding and releasing.
type group struct {
	gangs  []*gang // sorted by key
	phase  phase
	leader types.UID // in phase inTurn: the one member that is let through
	// visited: the leader has come, and the outcome of its attempt was not reported yet.
	visited bool

	// failures counts the rounds that failed in a row although a plan stood; the next
	// attempt is not made before notBefore.
	failures  int
	notBefore time.Time
	// tried: an attempt was made since the group came together.
	tried bool
	// changes is the number of the last change of the group itself after which it may fit. roomFor is what room is made
	// for if that is not the group: its only pod.
	changes int
	roomFor string
	// replans counts the plans of this round that failed while they were followed.
	replans int
	// sent is when its members were last let through, and resendAfter how long they may take to come. After that they are
	// let through once more.
	sent        time.Time
	resendAfter time.Duration
	clocks      clocks

	// rank is the place of the group among others, if ranked; see rankOf.
	rank   turns.Rank
	ranked bool
}

// holder returns what room is made for when the group does not fit.
func (g *group) holder() string { return cmp.Or(g.roomFor, g.key().String()) }

// maxReplans bounds how often a round is replanned around members that fail on
// their node, before it counts as failed.
const maxReplans = 3

func (g *group) key() gangspec.Key { return g.gangs[0].key }

// releasable reports whether the group may be released.
func (g *group) releasable() bool {
	return !slices.ContainsFunc(g.gangs, func(gang *gang) bool { return !gang.releasable() })
}

// sum adds up something of the gangs.
func (g *group) sum(of func(*gang) int) (n int) {
	for _, gang := range g.gangs {
		n += of(gang)
	}
	return n
}

func (g *group) countIn(state State) int {
	return g.sum(func(gang *gang) int { return gang.byState[state].N })
}

// holding counts the members whose capacity is held until the group is complete. Members of a gang
// that runs already hold theirs for themselves.
func (g *group) holding() int { return g.waiting(Planned) + g.waiting(Held) }

// waiting counts the members in a state, except those of gangs that run already.
func (g *group) waiting(state State) int {
	return g.sum(func(gang *gang) int {
		if gang.hasStarted() {
			return 0
		}
		return gang.byState[state].N
	})
}

// notStarted lists the members that waiting counts, in no order.
func (g *group) notStarted(state State) (members []*member) {
	for _, gang := range g.gangs {
		if gang.hasStarted() {
			continue
		}
		for _, m := range gang.members {
			if m.state == state {
				members = append(members, m)
			}
		}
	}
	return members
}

// need returns the number of members that a plan has to place.
func (g *group) need() int { return g.sum((*gang).need) }

// assembled reports whether all members that the gangs of a group need can be planned.
func (g *group) assembled() bool {
	return !slices.ContainsFunc(g.gangs, func(gang *gang) bool { return !gang.assembled() })
}

// pickLeader returns the first eligible member of a gang that needs one: high priority first, then
// old ones. There is none until the group is assembled.
func (g *group) pickLeader() *member {
	var leader *member
	if !g.assembled() {
		return nil
	}
	for _, gang := range g.gangs {
		if gang.need() == 0 {
			continue
		}
		for _, m := range gang.members {
			if m.eligible() && (leader == nil || compareMembers(m, leader) < 0) {
				leader = m
			}
		}
	}
	return leader
}

// priority returns the highest of its members that wait for a node.
func (g *group) priority() int32 {
	priority := int32(math.MinInt32)
	for _, gang := range g.gangs {
		priority = max(priority, gang.priorityOf(func(m *member) bool { return !m.runs() && m.lives() }))
	}
	return priority
}

func (g *group) created() (first time.Time) {
	for _, gang := range g.gangs {
		first = times.Earlier(first, gang.created())
	}
	return first
}

// rankOf returns the rank of a group. It is kept until a member or an object of the group changes:
// finding the priority takes a look at every member.
func (g *group) rankOf() turns.Rank {
	if !g.ranked {
		g.ranked, g.rank = true, turns.Rank{Priority: g.priority(), Begun: g.begun(), Created: g.created(),
			Name: g.key().String()}
	}
	return g.rank
}

func compareRank(a, b *group) int { return a.rankOf().Compare(b.rankOf()) }

// miss notes that the group did not fit.
func (g *group) miss(now time.Time) {
	for _, one := range g.gangs {
		if one.missed.IsZero() && one.need() > 0 {
			one.missed = now
		}
	}
}

// missed returns when any of its gangs first did not fit; zero if none was tried.
func (g *group) missed() (first time.Time) {
	for _, one := range g.gangs {
		first = times.Earlier(first, one.missed)
	}
	return first
}

// preemptionDelay returns the longest delay of its gangs that have not started.
func (g *group) preemptionDelay() (delay time.Duration) {
	for _, one := range g.gangs {
		if !one.hasStarted() {
			delay = max(delay, one.spec.PreemptionDelay)
		}
	}
	return delay
}

// reportScope reports gangs of a group that ask in vain for one domain for all of it.
func (s *Gangs) reportScope(grp *group) {
	for _, g := range grp.gangs {
		if !g.spec.Layout.Shared {
			continue
		}
		s.reportDescription(g, gangspec.KeyProblem{
			Key: v1alpha1.TopologyScopeAnnotation, Value: v1alpha1.TopologyScopeGroup,
			Want: "said by all gangs of the group, with one " + v1alpha1.RequiredTopologyAnnotation, Used: "a domain of its own",
		})
	}
}
