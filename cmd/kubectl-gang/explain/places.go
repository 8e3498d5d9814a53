package explain

import (
	"fmt"
	"strings"

	"github.com/lockstep-sh/lockstep/pkg/status/decisions"
)

// shown is how many domains of a decision are put into words. The data has all.
const shown = 10

// looked words where places were looked for, and where victims were, by the last decision of each kind.
func (c *Case) looked() string {
	return c.last(decisions.Placement, places) + c.last(decisions.Preemption, sought)
}

// last words the last decision of a kind; empty where there is none.
func (c *Case) last(kind string, words func(*decisions.Decision) string) string {
	for i := len(c.Decisions) - 1; i >= 0; i-- {
		if d := &c.Decisions[i]; d.Kind == kind {
			return words(d)
		}
	}
	return ""
}

// places words how many members fit in which domain, or which was chosen; empty where no topology is required.
func places(d *decisions.Decision) string {
	switch {
	case d.Result == decisions.Placed && d.Chosen != "":
		return fmt.Sprintf("  %s was chosen for %s, and %d nodes of it\n", d.Chosen, d.Need, d.Nodes)
	case d.Result == decisions.Placed || len(d.Domains) == 0:
		return ""
	}
	return fmt.Sprintf("  Places were looked for, for %s:\n", d.Need) + domains(d)
}

// sought words where victims were looked for, and which were chosen.
func sought(d *decisions.Decision) string {
	var b strings.Builder
	b.WriteString("  Victims were looked for")
	if d.Need != "" {
		fmt.Fprintf(&b, ", to free %s", d.Need)
	}
	fmt.Fprintf(&b, ":\n%s", domains(d))
	for _, bundle := range d.Bundles {
		fmt.Fprintf(&b, "    chosen: %d pods of %s (%s), gain %.2f, cost %.2f, ROI %.2f\n", bundle.Pods, bundle.Gang,
			bundle.Kind, bundle.Gain, bundle.Cost, bundle.ROI)
	}
	return b.String()
}

// domains words the domains of a decision, each with how far it came there, in their order. What came out alike in a
// later round is left out.
func domains(d *decisions.Decision) string {
	var b strings.Builder
	told, more := map[string]bool{}, d.Untried
	for _, domain := range d.Domains {
		in := domain.Name
		if domain.Round != "" {
			in += ", round " + domain.Round
		}
		switch line := fmt.Sprintf("    %s: %s\n", in, domain.Outcome); {
		case told[line]:
		case len(told) == shown:
			more++
		default:
			told[line] = true
			b.WriteString(line)
		}
	}
	if more > 0 {
		fmt.Fprintf(&b, "    and %d more, not told or not tried\n", more)
	}
	return b.String()
}
