package gangstate

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/util/times"
)

// running counts the members that are bound, or on their way to be.
func (g *gang) running() int { return g.byState[Released].N + g.byState[Bound].N }

// runningOrSucceeded counts what the gang has of its minimum, except what is only held.
func (g *gang) runningOrSucceeded() gangspec.Count {
	return g.byState[Released].Plus(g.byState[Bound], g.succeeded())
}

// succeeded counts the members that ran to success in this incarnation.
func (g *gang) succeeded() gangspec.Count {
	all, _ := g.incarnation.counted()
	return all
}

// minimumRuns reports whether the minimum runs, or ran to success.
func (g *gang) minimumRuns() bool { return g.runningOrSucceeded().Reaches(&g.spec) }

// hasStarted reports whether members may go alone: the gang has started and runs, or
// as many as have to start together ran to the end. It ends when all pods are gone.
func (g *gang) hasStarted() bool {
	if g.spec.Min == 0 {
		return false
	}
	switch g.spec.Policy {
	case gangspec.OnlyWaiting:
		return false
	case gangspec.WaitingAndRunning:
		return g.runningOrSucceeded().N >= g.spec.Min
	default:
		return g.ranTogether() && g.running() > 0 || g.succeeded().N >= g.spec.Min
	}
}

// ranTogether reports whether the minimum ran since anything of the gang runs. No later stage waits to start.
func (g *gang) ranTogether() bool { return g.lastMin > 0 && !g.interrupted }

// admitsSingly reports whether members may go alone now. While members are being evicted none comes: it would be
// evicted with its gang.
func (g *gang) admitsSingly() bool { return g.hasStarted() && g.evicting == 0 }

// updateStarted finds out whether the gang has started, and since when it is broken. It has to be called when the
// number of members that run may have changed.
func (s *Gangs) updateStarted(g *gang, now time.Time) {
	s.enterStage(g)
	running, whole := g.running(), g.minimumRuns()
	switch {
	case running == 0:
		g.progress = progress{}
	case whole:
		if !g.ranTogether() {
			g.expect(now)
		}
		g.interrupted, g.lastMin, g.confirmedMin, g.lowered = false, g.spec.Min, g.spec.Min, max(0, g.lowered)
	case g.laterStage():
		stage, _ := g.spec.Stage()
		ran := g.asked.Stages[stage-2]
		g.interrupted, g.lastMin, g.confirmedMin = true, ran, ran // what was made later is to start with what runs
	case g.interrupted || g.lastMin > 0 || s.closed || g.spec.Min == 0:
		// It stays as it is; of what runs, not everything may be known yet.
	case g.wasInterrupted():
		g.interrupted = true
	default:
		g.lastMin, g.confirmedMin = g.spec.Min, g.certainMin()
	}
	s.updateBroken(g, now)
}

// readmitExtras makes members that wait go through the gates again: they were beyond the minimum.
func (s *Gangs) readmitExtras(g *gang) {
	if g.byState[Pending].N == 0 {
		return
	}
	for _, m := range g.sorted((*member).eligible) {
		if m.admitted {
			s.effects.Activate = append(s.effects.Activate, m.pod)
		}
	}
}

// wasInterrupted distinguishes a gang whose release was interrupted from one that has lost members,
// if less than the minimum runs: the members that wait were there before the first of the others
// was bound, and are enough. Replacements are younger.
func (g *gang) wasInterrupted() bool {
	first := firstBound(g)
	return !first.IsZero() && g.wasThere(first)
}

// firstBound returns when the first of the members of gangs that run was bound; zero if not known.
func firstBound(gangs ...*gang) time.Time {
	var first time.Time
	for _, g := range gangs {
		for _, m := range g.members {
			if m.state != Bound || m.leaving() {
				continue
			}
			first = times.Earlier(first, BoundAt(m.pod))
		}
	}
	return first
}

// wasThere reports whether the members that do not run and were created by then are enough
// for the rest of the minimum.
func (g *gang) wasThere(first time.Time) bool {
	var before gangspec.Count
	for _, m := range g.members {
		if m.free() && !m.runs() && !m.pod.CreationTimestamp.After(first) {
			before.Add(1, m.role())
		}
	}
	return g.runningOrSucceeded().Plus(before).Reaches(&g.spec)
}

// BoundAt returns when a pod was bound, in whole seconds; zero if not known.
func BoundAt(pod *v1.Pod) time.Time {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == v1.PodScheduled && c.Status == v1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	if pod.Status.StartTime != nil {
		return pod.Status.StartTime.Time
	}
	return time.Time{}
}

// begun reports whether part of the group's minimum runs and the rest was to run with it, or did. A
// gang that came later, or a minimum that was raised, starts over; so does each wave of members if
// those that run do not count.
func (g *group) begun() bool {
	if !slices.ContainsFunc(g.gangs, func(gang *gang) bool {
		return gang.spec.Policy.CountsRunning() && gang.running() > 0
	}) {
		return false
	}
	return !slices.ContainsFunc(g.gangs, func(gang *gang) bool {
		return gang.spec.Policy.CountsRunning() && gang.short() > 0 && !gang.lacksPartOfStarted()
	})
}

// lacksPartOfStarted reports whether what a gang lacks of its minimum ran, or was to run together with what
// runs of its group.
func (g *gang) lacksPartOfStarted() bool {
	if g.running() > 0 {
		return g.interrupted || g.spec.Min <= g.lastMin
	}
	first := firstBound(g.group.gangs...)
	return first.IsZero() || g.wasThere(first)
}
