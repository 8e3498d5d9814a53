package preemption

import (
	"context"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/planning/victim"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// tiered is a plugin that returns which pods may be evicted.
type tiered struct {
	opinion
	tiers []extensionpoints.Tier
	queue func(*v1.Pod) string
}

func (r *tiered) VictimRounds(context.Context, extensionpoints.Gang, victim.Vector) []extensionpoints.Round {
	return []extensionpoints.Round{{Name: "test", Order: victim.Preempt(), Tiers: r.tiers, Queue: r.queue}}
}

// TestTiers: the first tier that finds any victim decides, domain by domain.
func TestTiers(t *testing.T) {
	permits := func(gangs bool, names ...string) extensionpoints.Tier {
		return extensionpoints.Tier{Gangs: gangs, Permits: func(pod *v1.Pod) bool {
			return slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(pod.Name, name) })
		}}
	}
	nodes := []*v1.Node{node("n0", 4, "r0"), node("n1", 4, "r1")}
	pods := slices.Concat(members("a", 1, 1, 10, 1, "n0"), members("b", 3, 3, 20, 1, "n0"), members("c", 4, 4, 30, 1, "n1"))
	each := []extensionpoints.Domain{{Nodes: []string{"n0"}}, {Nodes: []string{"n1"}}}
	for sentence, c := range map[string]struct {
		tiers   []extensionpoints.Tier
		domains []extensionpoints.Domain
		need    int
		want    string
	}{
		"the first that finds anybody decides":        {tiers: []extensionpoints.Tier{permits(true, "a"), permits(true, "b")}, need: 1, want: "a-0"},
		"even where that is not enough":               {tiers: []extensionpoints.Tier{permits(true, "a"), permits(true, "b", "c")}, need: 2, want: "none"},
		"the next one is asked where it finds nobody": {tiers: []extensionpoints.Tier{permits(true), permits(true, "b")}, need: 2, want: "b-0 b-1 b-2"},
		"a gang of which one has to stay is nobody":   {tiers: []extensionpoints.Tier{permits(true, "b-0", "b-1"), permits(true, "c")}, need: 2, want: "c-0 c-1 c-2 c-3"},
		"without gangs it is pods":                    {tiers: []extensionpoints.Tier{permits(false, "b-0", "b-1")}, need: 2, want: "b-0 b-1"},
		"no tier is nobody":                           {need: 1, want: "none"},
		"each domain by itself":                       {tiers: []extensionpoints.Tier{permits(true, "a"), permits(true, "b", "c")}, domains: each, need: 2, want: "c-0 c-1 c-2 c-3"},
	} {
		t.Run(sentence, func(t *testing.T) {
			plugin := &tiered{opinion: opinion{domains: c.domains}, tiers: c.tiers}
			s := newStageWith(t, plugin, nodes, pods)
			if got := s.victimsOf(t, s.demand(t, gangspec.Spec{}, members("p", c.need, c.need, 100, 1)...)); got != c.want {
				t.Errorf("victims %q, want %q", got, c.want)
			}
		})
	}
}
