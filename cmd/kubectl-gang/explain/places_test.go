package explain

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-sh/lockstep/pkg/status/decisions"
)

func TestLooked(t *testing.T) {
	const need = "team/train: 3 members in one rack"
	fits := func(n int) (list []decisions.Domain) {
		for i := range n {
			list = append(list, decisions.Domain{Name: fmt.Sprint("rack r", i), Outcome: fmt.Sprintf("%d of 3 members fit", max(0, 2-i))})
		}
		return list
	}
	placement := decisions.Decision{Kind: decisions.Placement, Need: need, Domains: fits(2), Result: decisions.Unplaced}
	many := placement
	many.Domains, many.Untried = fits(12), 30
	placed := decisions.Decision{Kind: decisions.Placement, Need: need, Domains: fits(2), Result: decisions.Placed, Chosen: "rack r1", Nodes: 3}
	preemption := decisions.Decision{Kind: decisions.Preemption, Need: "24 nvidia.com/gpu", Result: decisions.NoVictims, Domains: []decisions.Domain{
		{Name: "rack r0", Round: "preempt", Outcome: "short"}, {Name: "rack r0", Round: "reclaim", Outcome: "short"}, {Name: "rack r0", Round: "reclaim", Outcome: "short"},
	}}
	evicts := decisions.Decision{Kind: decisions.Preemption, Need: "8 nvidia.com/gpu", Result: decisions.Evict, Bundles: []decisions.Bundle{{Gang: "team/low", Kind: "Whole", Pods: 8, Gain: 1, Cost: 0.5, ROI: 2}}}
	const table = "  Places were looked for, for " + need + ":\n    rack r0: 2 of 3 members fit\n    rack r1: 1 of 3 members fit\n"
	for sentence, c := range map[string]struct {
		decisions []decisions.Decision
		want      string
	}{
		"nothing was decided":         {nil, ""},
		"it fits in no domain":        {[]decisions.Decision{placement}, table},
		"it requires none":            {[]decisions.Decision{{Kind: decisions.Placement, Need: need, Result: decisions.Unplaced}}, ""},
		"it is placed":                {[]decisions.Decision{placement, placed}, "  rack r1 was chosen for " + need + ", and 3 nodes of it\n"},
		"nor would victims help":      {[]decisions.Decision{placement, preemption}, table + "  Victims were looked for, to free 24 nvidia.com/gpu:\n    rack r0, round preempt: short\n    rack r0, round reclaim: short\n"},
		"victims are chosen":          {[]decisions.Decision{evicts, placed}, "  rack r1 was chosen for " + need + ", and 3 nodes of it\n  Victims were looked for, to free 8 nvidia.com/gpu:\n    chosen: 8 pods of team/low (Whole), gain 1.00, cost 0.50, ROI 2.00\n"},
		"many domains are not listed": {[]decisions.Decision{many}, table + rest()},
	} {
		if diff := cmp.Diff(c.want, (&Case{Decisions: c.decisions}).looked()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", sentence, diff)
		}
	}
}

// rest returns the text about domains beyond the second: as many as are shown, and how many others.
func rest() (text string) {
	for i := 2; i < shown; i++ {
		text += fmt.Sprintf("    rack r%d: 0 of 3 members fit\n", i)
	}
	return text + "    and 32 more, not told or not tried\n"
}
