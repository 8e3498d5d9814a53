package gang

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// Explanation is why the pending members of a gang wait. Reason is one of the
// API's reasons, or empty where there is nothing to explain. The message changes
// only when the facts do.
type Explanation struct {
	Gang            Key
	Reason, Message string
	// Pending are the members that have no node.
	Pending []*v1.Pod
	// Created is when the gang came to be.
	Created time.Time
	// HasObject tells that a community PodGroup describes it.
	HasObject bool
}

// Explain tells why a gang waits. ok is false where the gang is not known.
func (s *Gangs) Explain(key Key) (e Explanation, ok bool) {
	g := s.gangs[key]
	if g == nil {
		return Explanation{}, false
	}
	e = Explanation{Gang: key, Created: g.created(), HasObject: g.objects[Community] != nil}
	e.Pending = podsOf(g.sorted(func(m *member) bool { return m.state == Pending }))
	if len(e.Pending) == 0 || g.satisfied() {
		return e, true
	}
	e.Reason, e.Message = s.why(g)
	return e, true
}

func (s *Gangs) why(g *gang) (reason, message string) {
	if g.spec.Min == 0 {
		return v1alpha1.ReasonGangUndefined, g.undefined()
	}
	if ok, message := g.complete(); !ok {
		if g.expired() > 0 && g.failure != "" {
			return v1alpha1.ReasonTimedOut, g.failure + "; " + message
		}
		return v1alpha1.ReasonGangIncomplete, message
	}
	if key, waits := s.awaited(g); waits {
		return v1alpha1.ReasonGangIncomplete, fmt.Sprintf("gang %q waits for gang %q, which it names in its groups", g.key, key)
	}
	for _, other := range g.group.gangs {
		if ok, message := other.complete(); !ok {
			return v1alpha1.ReasonGangIncomplete, fmt.Sprintf("gang %q waits for its group: %s", g.key, message)
		}
	}
	if g.failure != "" {
		return v1alpha1.ReasonUnschedulable, g.failure
	}
	return "", ""
}

// Counts is the number of members by state, for metrics.
type Counts struct {
	Held, Pending int
	// Gangs by what they wait for.
	Incomplete, Unschedulable, Running int
}

// Count adds up the gangs and their members.
func (s *Gangs) Count() Counts {
	var c Counts
	for _, g := range s.gangs {
		c.Held += g.count[Planned] + g.count[Held]
		c.Pending += g.count[Pending]
		switch reason, _ := s.why(g); {
		case g.satisfied():
			c.Running++
		case reason == v1alpha1.ReasonUnschedulable || reason == v1alpha1.ReasonTimedOut:
			c.Unschedulable++
		case reason != "":
			c.Incomplete++
		}
	}
	return c
}

// Position is what orders a member in the queue: that of its gang, so that the
// members stand together.
type Position struct {
	Created time.Time
	Gang    string
	// Extra: the gang runs already; its minimum is not what waits.
	Extra bool
}

// Position answers where a member stands in the queue; ok is false outside gangs.
func (s *Gangs) Position(pod *v1.Pod) (p Position, ok bool) {
	m := s.members[pod.UID]
	if m == nil {
		return Position{}, false
	}
	return Position{Created: m.gang.group.created(), Gang: m.gang.group.key().String(), Extra: m.state == Pending && m.gang.satisfied()}, true
}

// Keys lists the gangs, sorted.
func (s *Gangs) Keys() []Key {
	keys := make([]Key, 0, len(s.gangs))
	for key := range s.gangs {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, compareKeys)
	return keys
}
