package explain

import (
	"fmt"
	"strings"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
	"github.com/lockstep-sh/lockstep/pkg/rules/placement/topology"
	"github.com/lockstep-sh/lockstep/pkg/status/decisions"
	"github.com/lockstep-sh/lockstep/pkg/util/words"
)

// named is how many gangs or nodes a sentence names.
const named = 3

// judge says in one sentence how a gang stands and why it waits. g is how kubectl gang list reports it; nil where it is
// not listed.
func (r *Report) judge(g *view.Gang) {
	starts := r.State == "bound"
	switch {
	case r.State == "ended" && g != nil && g.Reason == v1alpha1.ReasonJobFailed:
		r.Verdict = r.Gang + " has ended: " + g.Message
	case r.State == "ended" && g != nil:
		r.Verdict = fmt.Sprintf("%s has ended: %d pods have succeeded, %d have failed", r.Gang, g.Succeeded, g.Failed)
	case starts && r.Waiting == 0:
		r.Verdict = fmt.Sprintf("%s runs: %d of %d members have a node%s", r.Gang, r.Bound, r.Members, r.needs())
	case starts:
		r.Verdict = fmt.Sprintf("%s runs with %d of %d members%s; %d wait%s: %s", r.Gang, r.Bound, r.Members, r.needs(),
			r.Waiting, singular(r.Waiting), r.why(g))
	case r.Waiting == 0 && r.Minimum == 0 && r.State != "evicted":
		r.Verdict = fmt.Sprintf("%s: %d of %d members have a node; its minimum is not known", r.Gang, r.Bound, r.Members)
	default:
		r.Verdict = r.Gang + " waits: " + r.why(g)
	}
}

func (r *Report) needs() string {
	if r.Minimum == 0 {
		return ""
	}
	return fmt.Sprintf(", and it needs %d", r.Minimum)
}

// singular is the ending of a verb whose subject is one.
func singular(n int) string {
	if n == 1 {
		return "s"
	}
	return ""
}

// why says why a gang, or what is left of it, waits.
func (r *Report) why(g *view.Gang) string {
	if r.unscheduled != "" {
		return r.unscheduled
	}
	text := ""
	switch {
	case r.State == "gathering" && r.there >= r.Minimum && g != nil && g.Message != "":
		text = brief(r.Gang, g.Message)
	case r.State == "gathering" && r.Minimum > 0:
		text = fmt.Sprintf("%d of its minimum of %d members are there", r.Members, r.Minimum)
	case len(r.Cases) > 0 && !r.contradicted():
		text = r.Cases[0].why(r.Gang)
	case g != nil && g.Message != "":
		text = brief(r.Gang, g.Message)
	case len(r.Said) > 0:
		text = brief(r.Gang, r.Said[0].Message)
	}
	if r.Leaderless != "" {
		return "no scheduler leads, since " + r.Leaderless + "; once one does: " + text
	}
	return text
}

// contradicted reports whether the cluster's scheduler gave a reason for what the built-in configuration places, or
// another reason: then it has another configuration, and knows better.
func (r *Report) contradicted() bool {
	return r.Configuration != nil && r.Configuration.BuiltIn != "" && len(r.Said) > 0 && len(r.Cases) > 0 &&
		(len(r.Cases[0].Why) == 0 || r.Cases[0].Why[0].Reason != r.Said[0].Reason)
}

// brief returns a message without the name of the gang that it begins with.
func brief(gang, message string) string {
	return strings.TrimPrefix(message, fmt.Sprintf("gang %q: ", gang))
}

// why says what becomes of the members that the scheduler was asked about.
func (c *Case) why(gang string) string {
	switch {
	case c.Undecided:
		return "the scheduler came to no end in the time it had; see --timeout"
	case c.Placed == c.Asked && len(c.Victims) > 0:
		return "it starts" + c.at() + " by evicting " + words.FirstOf(named, c.Victims)
	case c.Placed == c.Asked:
		return "there is room for it, and it starts" + c.at()
	}
	text := c.lacks(gang)
	if c.Placed > 0 {
		text = fmt.Sprintf("%d of %d get a node; for the others: %s", c.Placed, c.Asked, text)
	}
	return text
}

// at says where members are placed.
func (c *Case) at() string {
	if c.Chosen != "" {
		return " in " + c.Chosen
	}
	return " on " + words.FirstOf(named, c.Nodes)
}

// lacks says why members are not placed.
func (c *Case) lacks(gang string) string {
	if c.Why[0].Reason == v1alpha1.ReasonUnschedulable {
		if text := c.shortest(gang); text != "" {
			return text
		}
	}
	return brief(gang, c.Why[0].Message)
}

// shortest says how far the last attempt came; empty where that is not why the gang waits.
func (c *Case) shortest(gang string) string {
	best := c.best(gang)
	switch {
	case best == nil || best.Fits >= best.Min:
		return ""
	case best.Fits == 0 && c.barred(gang) != "":
		return c.barred(gang)
	case best.Topology == "":
		text := fmt.Sprintf("%d of %d members fit", best.Fits, best.Min)
		if short := shortage(best.Short); short != "" {
			text += "; short " + short
		}
		return text
	case best.Domain == "":
		return fmt.Sprintf("no node has the label %s, which it requires as its topology", best.Topology)
	}
	key, group := topology.ShortKey(best.Topology), ""
	if c.Placement.Together {
		group = " with its group"
	}
	if best.Fits == 0 {
		return fmt.Sprintf("no %s has room for any of its %d members%s", key, best.Min, group)
	}
	text := fmt.Sprintf("no %s has room for %d%s; best %s %s fits %d", key, best.Min, group, key, best.Domain, best.Fits)
	if len(best.Unusable) > 0 {
		text += ", where " + words.FirstOf(named, decisions.TextUnusable(best.Unusable))
	}
	return text
}

// barred says that the members of a gang may use no node, and why; empty where they may use some.
func (c *Case) barred(gang string) string {
	d, nodes := c.Placement, 0
	for _, n := range d.Refusals {
		nodes += n
	}
	for i := range d.Fits {
		if f := &d.Fits[i]; f.Gang == gang && (f.Nodes == 0 || f.Usable() > 0) {
			return ""
		}
	}
	if nodes != d.Visited || nodes == 0 {
		return "" // some domains were not tried
	}
	return "its members may use no node: " + words.FirstOf(named, reasons(d))
}

// growing returns the best domain of a gang that more nodes like one of its own would make large enough; nil for none.
func (c *Case) growing(gang string) *decisions.Fit {
	for i := range c.Placement.Fits {
		if fit := &c.Placement.Fits[i]; fit.Gang == gang && fit.More > 0 {
			return fit
		}
	}
	return nil
}

// best returns the domain in which most members of a gang fit; nil where its placement was not tried.
func (c *Case) best(gang string) *decisions.Fit {
	if c.Placement == nil {
		return nil
	}
	for i := range c.Placement.Fits {
		if fit := &c.Placement.Fits[i]; fit.Gang == gang {
			return fit
		}
	}
	return nil
}
