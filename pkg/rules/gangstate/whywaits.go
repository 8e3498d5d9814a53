package gangstate

import (
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// Explanation is why the pending members of a gang wait. Reason is one of the API's reasons, or
// empty if there is nothing to explain. The message changes only when the facts do.
type Explanation struct {
	Gang            gangspec.Key
	Reason, Message string
	// Topology is the label key of the required topology, if that alone keeps the gang waiting: no domain of it has room
	// for the gang, and several together do. Empty otherwise.
	Topology string
	// Leader is the pod whose cycle found that the gang is Unschedulable: kube-scheduler reports that, and more, on it.
	// Empty otherwise.
	Leader types.UID
	// Group is the group that it is placed with, as the ledger knows it.
	Group string
	// Min is the minimum of the gang; 0 if it has none.
	Min int
	// Running: the gang runs; members that wait are beyond its minimum.
	Running bool
	// Pending are the members that have no node, or only hold one for now.
	Pending []*v1.Pod
	// Created is when the gang came to be.
	Created time.Time
	// Object refers to the PodGroup that describes it, if one does.
	Object gangspec.Ref
}

// longestEnd is how long after their grace period pods that are being deleted may take to be gone. Those that take
// longer are stuck, such as on a node that is lost.
const longestEnd = 30 * time.Second

// Explain returns why a gang waits. ok is false if the gang is not known.
func (s *Gangs) Explain(key gangspec.Key) (e Explanation, ok bool) {
	g := s.gangs[key]
	if g == nil {
		return Explanation{}, false
	}
	e = Explanation{Gang: key, Group: g.group.holder(), Min: g.spec.Min, Created: g.created(), Object: g.ref()}
	ends := func(m *member) bool { return m.dying() && s.ticked.Sub(m.pod.DeletionTimestamp.Time) < longestEnd }
	if g.object() == nil && g.spec.Min == 0 && g.countOf(ends) > 0 {
		return e, true // it is being deleted, and its PodGroup went first
	}
	stale := func(m *member) bool {
		return m.state == Pending && !m.dying() && m.replaced && g.incarnation.hasStaleOwner(gangspec.OriginOf(m.pod))
	}
	if newer := g.sorted(stale); len(newer) > 0 {
		e.Pending, e.Reason, e.Message = podsOf(newer), v1alpha1.ReasonGangUndefined, textStaleOwner(key, len(newer))
		return e, true
	}
	e.Pending = podsOf(g.sorted((*member).waits))
	if e.Running = g.hasStarted(); len(e.Pending) == 0 || e.Running {
		return e, true
	}
	e.Reason, e.Message = s.why(g)
	if e.Reason == v1alpha1.ReasonUnschedulable {
		e.Topology, e.Leader = g.failure.topology, g.failure.leader
	}
	return e, true
}

func (s *Gangs) why(g *gang) (reason, message string) {
	switch {
	case g.spec.Refused != "":
		return v1alpha1.ReasonGangUnsupported, g.undefined()
	case g.spec.Min == 0:
		return v1alpha1.ReasonGangUndefined, g.undefined()
	}
	if !g.gathered() {
		message := g.lacks()
		switch {
		case g.expired() == 0:
			return v1alpha1.ReasonGangIncomplete, message
		case !g.failure.none():
			message = g.failure.message + "; " + message
		}
		return v1alpha1.ReasonTimedOut, message
	}
	if key, waits := s.awaited(g); waits {
		if other := s.gangs[key]; other != nil && other.names(g.key) {
			return v1alpha1.ReasonGangUnsupported, textTooMany(g.key, key)
		}
		return v1alpha1.ReasonGangIncomplete, s.awaits(g, key)
	}
	for _, other := range g.group.gangs {
		if !other.gathered() {
			return v1alpha1.ReasonGangIncomplete, textAwaitsGroup(g.key, other.lacks())
		}
		if key, waits := s.awaited(other); waits {
			return v1alpha1.ReasonGangIncomplete, textAwaitsGroup(g.key, s.awaits(other, key))
		}
	}
	if g.failure.none() {
		return "", ""
	}
	return g.failure.reason, g.failure.message
}

// awaits returns that g waits for a gang that it names, for users.
func (s *Gangs) awaits(g *gang, key gangspec.Key) string {
	text := textAwaitsGang(g.key, key)
	if other := s.gangs[key]; other == nil || len(other.members) == 0 {
		text += textNoPods(slices.DeleteFunc(slices.SortedFunc(maps.Keys(s.naming[g.key]), gangspec.CompareKeys),
			func(naming gangspec.Key) bool { return g.names(naming) }))
	}
	return text
}

// lacks returns what an incomplete gang waits for, for users.
func (g *gang) lacks() string {
	if g.spec.Min == 0 {
		return g.undefined()
	}
	have := g.have().Plus(g.coming)
	if have.N < g.spec.Min {
		return g.incomplete(have.N)
	}
	return TextLacks(g.key, &g.spec, have)
}

func (g *gang) incomplete(have int) string {
	var aside []string
	if n := g.expired(); n > 0 {
		aside = append(aside, fmt.Sprintf("%d timed out: remove the annotation %s from them, or replace them", n,
			v1alpha1.TimeoutAnnotation))
	}
	others := g.aside()
	aside = append(aside, others.Texts()...)
	if n := g.countOf(func(m *member) bool { return len(m.losing) > 0 }); n > 0 {
		aside = append(aside, textLosesClaims(n))
	}
	return TextIncomplete(g.key, have, g.spec.Min, TextStage(g.spec.Stage()), aside...)
}

func (g *gang) undefined() string {
	switch {
	case g.spec.Refused != "":
		return TextRefused(g.key, g.spec.Refused)
	case g.object() != nil:
		return TextUndefined(g.key, g.madeFor())
	case g.source() == gangspec.FromAnnotation:
		return fmt.Sprintf("gang %q has no minimum: set the annotation %s on its pods", g.key,
			v1alpha1.MinAvailableAnnotation)
	case g.source() == gangspec.FromOwner:
		return fmt.Sprintf("gang %q has no minimum: its PodGroup does not exist, which lockstep-controller makes: "+
			"see whether that runs", g.key)
	default:
		return fmt.Sprintf("gang %q has no minimum: its PodGroup does not exist", g.key)
	}
}

// source returns the way by which its members joined; of several, the first in order.
func (g *gang) source() gangspec.Source {
	source := gangspec.FromOwner
	for _, m := range g.members {
		source = min(source, gangspec.SourceOf(m.pod))
	}
	return source
}

func (g *gang) expired() int {
	return g.countOf(func(m *member) bool { return m.state == Pending && m.expired })
}

func (g *gang) countOf(test func(*member) bool) int {
	n := 0
	for _, m := range g.members {
		if test(m) {
			n++
		}
	}
	return n
}
