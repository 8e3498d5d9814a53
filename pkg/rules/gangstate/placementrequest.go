package gangstate

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/util/times"
)

// PlacementRequest is what has to be placed when a pod that the gate lets through is scheduled.
type PlacementRequest struct {
	// Job names what is placed together: the group of the pod's gang; empty for a pod that is in
	// none.
	Job string
	// Pods are the pods that have to be placed.
	Pods []*v1.Pod
	// Alone: the gang has started, so the pod is placed alone.
	Alone bool
	// Ready: the pod is beyond the minimum of a gang that has started.
	Ready bool
	// Begun: part of the minimum is bound already: its release was interrupted, or members
	// were lost. The rest comes before everything of its rank.
	Begun bool
	// Created is when the first of the gangs, or the oldest member that any had, came to be; zero where the pod goes by
	// itself. So pods that are made again keep the place of those before them.
	Created time.Time
	// Never: it evicts no pod.
	Never bool
	// Parts: the pods may be placed one by one, and hold their places until all have theirs.
	Parts bool
}

// Together reports whether its pods start together, and the pod stands for their gangs.
func (want PlacementRequest) Together() bool { return want.Job != "" && !want.Alone }

// Wants returns what must be placed if a pod is scheduled; false for a pod whose place is decided:
// it follows a plan.
func (s *Gangs) Wants(pod *v1.Pod) (PlacementRequest, bool) {
	m := s.memberOf(pod)
	switch {
	case m == nil:
		return PlacementRequest{Pods: []*v1.Pod{pod}}, true
	case m.state != Pending:
		return PlacementRequest{}, false
	case m.gang.hasStarted():
		reaches, mends := m.gang.makesUp(m.pod)
		return PlacementRequest{Job: m.gang.group.key().String(), Pods: []*v1.Pod{m.pod}, Alone: true, Ready: !reaches,
			Begun: mends, Never: m.gang.spec.NeverPreempts}, true
	}
	want := PlacementRequest{Job: m.gang.group.key().String(), Begun: m.gang.group.begun(),
		Created: m.gang.group.created(), Parts: !m.gang.group.strict()}
	for _, g := range m.gang.group.gangs {
		want.Never = want.Never || g.spec.NeverPreempts
		want.Created = times.Earlier(want.Created, g.oldest)
		want.Pods = append(want.Pods, g.minimumPods(podsOf(g.sorted((*member).eligible)))...)
	}
	return want, true
}

// makesUp reports whether a pod is one of those that reach the minimum of a running gang, and
// whether it mends the gang: makes up for a member that was lost. What the minimum was raised by
// since it ran is reached, but not mended.
func (g *gang) makesUp(pod *v1.Pod) (reaches, mends bool) {
	if g.short() == 0 {
		return false, false
	}
	least := g.minimumPods(podsOf(g.sorted((*member).eligible)))
	i := slices.Index(least, pod)
	return i >= 0, i >= 0 && (g.spec.Min <= g.lastMin || g.have().N+i < g.lastMin)
}

// minimumPods returns those of some pods that reach the minimum.
func (g *gang) minimumPods(pods []*v1.Pod) []*v1.Pod {
	return firstMembers(pods, g.short(), g.have().Lacks(&g.spec))
}

// firstMembers returns n of some pods, in order: of each role those that are missing, then the next ones.
func firstMembers(pods []*v1.Pod, n int, byRole map[string]int) []*v1.Pod {
	missing := maps.Clone(byRole)
	var least, others []*v1.Pod
	for _, pod := range pods {
		if role := pod.Labels[v1alpha1.RoleLabel]; missing[role] > 0 {
			missing[role]--
			least = append(least, pod)
		} else {
			others = append(others, pod)
		}
	}
	return append(least, others[:max(0, min(n-len(least), len(others)))]...)
}
