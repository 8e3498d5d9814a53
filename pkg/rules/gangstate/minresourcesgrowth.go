package gangstate

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// outstandingFor is how long after its begin a gang is expected to grow to its minResources: images are pulled before
// a driver makes its executors. What has not come by then may never come.
const outstandingFor = 5 * time.Minute

// Outstanding is what a gang that runs has still to take of its minResources, by members that are made when the first
// of them run.
type Outstanding struct {
	Gang   gangspec.Key
	Amount resource.Vector
	// Nodes are the nodes of its members, by name.
	Nodes []string
}

// expect notes what the members of a gang whose minimum came to run leave of its minResources.
func (g *gang) expect(now time.Time) {
	g.rest = nil
	if stage, stages := g.spec.Stage(); len(g.spec.MinResources) == 0 || stages > 0 && stage == stages {
		return // it asks for nothing, or all of it is there
	}
	g.growing = now
	if at := firstBound(g); !at.IsZero() {
		g.growing = at // before this process began
	}
	g.rest = maps.Clone(g.spec.MinResources)
	g.shrink()
}

// shrink takes off what members have by now. What was there once is not expected again.
func (g *gang) shrink() {
	have := resource.Vector{}
	for _, m := range g.members {
		if m.placed() {
			have.Add(resource.OfPod(m.pod), 1)
			have[v1.ResourcePods]++
		}
	}
	for name := range g.rest {
		g.rest[name] = min(g.rest[name], g.spec.MinResources[name]-have[name])
	}
	maps.DeleteFunc(g.rest, func(_ v1.ResourceName, amount int64) bool { return amount <= 0 })
}

// yields reports whether a group leaves room to gangs that are to grow: it asks for minResources, too, and
// nothing of it runs or ran to success.
func (g *group) yields() bool {
	asks := slices.ContainsFunc(g.gangs, func(gang *gang) bool { return len(gang.spec.MinResources) > 0 })
	return asks && !slices.ContainsFunc(g.gangs, func(gang *gang) bool { return gang.runningOrSucceeded().N > 0 })
}

// outstanding lists, by gang, what gangs outside a group that run with at least a priority have still to take.
func (s *Gangs) outstanding(besides *group, priority int32) []Outstanding {
	var list []Outstanding
	for _, g := range s.gangs {
		if len(g.rest) == 0 || g.group == besides {
			continue
		}
		if g.shrink(); s.ticked.Sub(g.growing) >= outstandingFor {
			g.rest = nil
		}
		if len(g.rest) > 0 && g.priorityOf((*member).runs) >= priority {
			list = append(list, Outstanding{Gang: g.key, Amount: maps.Clone(g.rest), Nodes: g.runsOn()})
		}
	}
	slices.SortFunc(list, func(a, b Outstanding) int { return gangspec.CompareKeys(a.Gang, b.Gang) })
	return list
}

// runsOn lists the nodes of the members that run, in order.
func (g *gang) runsOn() []string {
	var nodes []string
	for _, m := range g.members {
		if m.runs() {
			nodes = append(nodes, m.node)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}
