package explain

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/output"
	"github.com/lockstep-sh/lockstep/pkg/rules/placement/topology"
	"github.com/lockstep-sh/lockstep/pkg/status/decisions"
	"github.com/lockstep-sh/lockstep/pkg/util/bools"
	"github.com/lockstep-sh/lockstep/pkg/util/words"
)

// explanationKind is the kind of what is printed as data.
const explanationKind = "GangExplanation"

// shown is how many domains are printed. The data has more.
const shown = 10

var (
	podColumns = output.Columns[Member]{
		{Name: "POD", Of: func(m Member) any { return m.Pod }},
		{Name: "PHASE", Of: func(m Member) any { return m.Phase }},
		{Name: "NODE", Of: func(m Member) any { return output.OrNone(m.Node) }},
		{Name: "REASON", Of: func(m Member) any { return m.Reason }},
		{Name: "SINCE", Wide: true, Of: func(m Member) any { return m.Since }},
	}
	fitColumns = output.Columns[decisions.Fit]{
		{Name: "DOMAIN", Of: func(f decisions.Fit) any { return domainOf(&f) }},
		{Name: "FITS", Of: func(f decisions.Fit) any { return fmt.Sprintf("%d/%d", f.Fits, f.Min) }},
		{Name: "SHORT", Of: func(f decisions.Fit) any { return shortage(f.Short) }},
	}
	unusableColumn = output.Columns[decisions.Fit]{{Name: "NOT USABLE", Of: func(f decisions.Fit) any {
		return words.FirstOf(named, decisions.TextUnusable(f.Unusable))
	}}}
)

// print prints the verdict and how many members fit where; all that is known if it is verbose.
func (r *Report) print(p *output.Printer, out io.Writer, verbose bool) error {
	if !p.IsTable() {
		return output.Print(p, explanationKind, nil, []*Report{r})
	}
	if err := output.Wrap(out, r.Verdict); err != nil {
		return err
	}
	var now *Case
	if len(r.Cases) > 0 && !r.contradicted() {
		now = &r.Cases[0]
	}
	if now != nil && now.Placement != nil {
		if err := now.printFits(p, out, r.Gang); err != nil {
			return err
		}
	}
	lines := r.summary()
	if verbose {
		lines = append(lines, r.details(&repetition{r.Gang, append([]string{r.Verdict}, lines...), r.messages()})...)
	}
	for _, line := range lines {
		if err := output.Wrap(out, line); err != nil {
			return err
		}
	}
	if !verbose || len(r.Pods) == 0 {
		return nil
	}
	fmt.Fprintln(out)
	return output.Table(p, podColumns, r.Pods)
}

// printFits prints how many members fit in which domain.
func (c *Case) printFits(p *output.Printer, out io.Writer, gang string) error {
	fits := slices.DeleteFunc(slices.Clone(c.Placement.Fits),
		func(f decisions.Fit) bool { return f.Topology != "" && f.Domain == "" }) // no node has the label
	if len(fits) == 0 {
		return nil
	}
	if c.Placement.Together {
		fits = slices.DeleteFunc(fits, func(f decisions.Fit) bool { return f.Gang != gang })
	}
	of := len(fits)
	// Those of the gang come before those of others that start with it.
	slices.SortStableFunc(fits, func(x, y decisions.Fit) int { return bools.Compare(x.Gang != gang, y.Gang != gang) })
	fits = fits[:min(shown, len(fits))]
	columns := fitColumns
	if slices.ContainsFunc(fits, func(f decisions.Fit) bool { return len(f.Unusable) > 0 }) {
		columns = slices.Concat(columns, unusableColumn)
	}
	if slices.ContainsFunc(fits, func(f decisions.Fit) bool { return f.Gang != gang }) {
		columns = append(output.Columns[decisions.Fit]{{Name: "GANG", Of: func(f decisions.Fit) any {
			return f.Gang
		}}}, columns...)
	}
	if err := output.Table(p, columns, fits); err != nil {
		return err
	}
	if more := of - len(fits) + c.Placement.Untried; more > 0 {
		fmt.Fprintf(out, "and %d more\n", more)
	}
	return nil
}

// summary returns the lines below the table that are printed without -v, too.
func (r *Report) summary() (lines []string) {
	lines = append(lines, r.Advice...)
	for i := range r.Cases {
		c := &r.Cases[i]
		if i == 0 {
			if best := c.best(r.Gang); best != nil && len(best.Short)+len(best.Unusable) == 0 && len(c.Placement.Refusals) > 0 {
				lines = append(lines, refusals(c.Placement))
			}
			if c.Placement != nil && c.Placement.Hopeless && c.Placed < c.Asked && r.MoreNodes != MoreNodesWithLabel {
				lines = append(lines, c.hopeless())
			}
			lines = append(lines, r.ways()...)
			continue
		}
		if c.Placed == c.Asked && len(c.Victims) == 0 {
			lines = append(lines, fmt.Sprintf("%s the scheduler would place %d pods%s", upper(c.Name), c.Placed, c.at()))
		} else {
			lines = append(lines, upper(c.Name)+": "+c.why(r.Gang))
		}
	}
	if r.Unasked != "" {
		lines = append(lines, "Note: what the scheduler would decide now is not known: "+r.Unasked)
	}
	if o := r.Configuration; o != nil && o.BuiltIn != "" && len(r.Cases) > 0 {
		doing := "predicted with "
		if r.contradicted() {
			doing = "not predicted: the cluster's scheduler has said something else than what follows from "
		}
		lines = append(lines, "Note: "+doing+o.String())
	}
	return lines
}

// hopeless says that the gang would not fit into an empty cluster, and how much of it would.
func (c *Case) hopeless() string {
	text := "It would not fit even if the cluster were empty"
	if c.Placement.EmptyCluster != "" {
		text += ": " + c.Placement.EmptyCluster
	}
	return text
}

// ways are what its user may do about a gang that does not fit now: a preferred topology, or more nodes, if there are
// nodes that its members may use and that are large enough.
func (r *Report) ways() (lines []string) {
	best := r.Cases[0].best(r.Gang)
	if best == nil || best.Fits >= best.Min || r.contradicted() {
		return nil
	}
	if r.MoreNodes == MoreNodesInOneDomain {
		lines = append(lines, fmt.Sprintf("Several %ss together have room for it: add nodes to one, or make the topology a "+
			"preferred one", topology.ShortKey(best.Topology)))
	}
	if len(r.Cases) == 1 && (r.MoreNodes == MoreNodesHelp || r.MoreNodes == MoreNodesInOneDomain) {
		if growing := r.Cases[0].growing(r.Gang); growing != nil {
			lines = append(lines, fmt.Sprintf("To see whether more nodes would do, try --nodes +%d:%s",
				growing.More, growing.Like))
		}
	}
	return lines
}

// details are the lines that -v adds to those that the repetition knows.
func (r *Report) details(t *repetition) (lines []string) {
	state := ""
	if r.Phase != "" {
		state = r.Phase + ", " + r.State + "; "
	}
	lines = append(lines, fmt.Sprintf("State: %s%d of %d members have a node, %d have one nominated; minimum %d", state,
		r.Bound, r.Members, r.Held, r.Minimum))
	for _, w := range r.Said {
		lines = append(lines, fmt.Sprintf("Said to %s: %s%s", words.Count(w.Pods, "pod"), w.Reason, t.message(w.Message)))
	}
	if text := autoscaler[r.MoreNodes]; text != "" {
		lines = append(lines, text)
	}
	if r.Queue != nil {
		lines = append(lines, r.Queue.words())
	}
	if r.Line != nil {
		lines = append(lines, lineWords(r.Line))
	}
	for i := range r.Reservations {
		lines = append(lines, r.Reservations[i].words())
	}
	for i := range r.Cases {
		lines = append(lines, r.Cases[i].details(t)...)
	}
	if o := r.Configuration; o != nil && o.BuiltIn == "" {
		lines = append(lines, "Predicted with "+o.String())
	}
	for _, note := range r.Notes {
		lines = append(lines, "Note: "+note)
	}
	return lines
}

// messages returns why members wait, each reason once, as the cluster and the scheduler have said it.
func (r *Report) messages() (all []string) {
	for _, w := range r.Said {
		all = append(all, brief(r.Gang, w.Message))
	}
	for i := range r.Cases {
		for _, w := range r.Cases[i].Why {
			all = append(all, brief(r.Gang, w.Message))
		}
	}
	return all
}

// repetition replaces a message that a line above shows already by "as above". What kube-scheduler adds to one of the
// messages is compared apart from it.
type repetition struct {
	gang            string
	above, messages []string
}

const (
	asAbove = ", as above"
	// between is what kube-scheduler's sentences end with.
	between = ". "
)

// message returns a message after a colon, or that it stands above.
func (t *repetition) message(message string) string {
	message = brief(t.gang, message)
	for _, one := range t.messages {
		if added, ok := strings.CutPrefix(message, one+between); ok && !t.has(message) {
			text := t.part(one)
			if !t.has(added) {
				t.above = append(t.above, added)
				text += "; " + added
			}
			return text
		}
	}
	return t.part(message)
}

func (t *repetition) part(part string) string {
	if t.has(part) {
		return asAbove
	}
	t.above = append(t.above, part)
	return ": " + part
}

// has reports whether a line above has a text.
func (t *repetition) has(text string) bool {
	return slices.ContainsFunc(t.above, func(line string) bool {
		return strings.Contains(strings.ToLower(line), strings.ToLower(text))
	})
}

// autoscaler is what autoscalers do, in a sentence.
var autoscaler = map[MoreNodes]string{
	MoreNodesHelp: "An autoscaler may add nodes",
	MoreNodesInOneDomain: "Autoscalers add no nodes, since each pod fits on a node that is free: " +
		"add some to one domain of its topology",
	MoreNodesWithLabel: "An autoscaler adds nodes only if one of its node groups has the label that is missing",
	MoreNodesNoHelp:    "Autoscalers add no nodes: more would not help",
}

// details are the lines of a case that -v adds.
func (c *Case) details(t *repetition) (lines []string) {
	text := fmt.Sprintf("%s: %d of %d placed", upper(c.Name), c.Placed, c.Asked)
	if len(c.Nodes) > 0 {
		text += ", on " + strings.Join(c.Nodes, ", ")
	}
	if len(c.Victims) > 0 {
		text += "; evicted: " + strings.Join(c.Victims, ", ")
	}
	if len(c.Others) > 0 {
		text += "; evicted meanwhile for others that wait: " + strings.Join(c.Others, ", ")
	}
	lines = append(lines, text)
	for _, w := range c.Why {
		lines = append(lines, fmt.Sprintf("  %d wait%s, %s%s", w.Pods, singular(w.Pods), w.Reason, t.message(w.Message)))
	}
	if c.Placement != nil && len(c.Placement.Refusals) > 0 && !t.has(refusals(c.Placement)) {
		lines = append(lines, "  "+refusals(c.Placement))
	}
	if c.Search != nil && len(c.Search.Domains) > 0 {
		lines = append(lines, searched(c.Search)...)
	}
	return lines
}

// refusals says why nodes refused members, the most frequent reason first.
func refusals(d *decisions.Decision) string {
	return fmt.Sprintf("Of %d nodes: %s", d.Visited, strings.Join(reasons(d), ", "))
}

// reasons lists why nodes refused members, with how many did, the most frequent reason first.
func reasons(d *decisions.Decision) []string {
	list := slices.SortedFunc(maps.Keys(d.Refusals), func(a, b string) int {
		return cmp.Or(cmp.Compare(d.Refusals[b], d.Refusals[a]), cmp.Compare(a, b))
	})
	for i, reason := range list {
		list[i] = fmt.Sprintf("%d %s", d.Refusals[reason], reason)
	}
	return list
}

// searched says where victims were looked for, and which were chosen.
func searched(d *decisions.Decision) (lines []string) {
	lines = append(lines, fmt.Sprintf("  Victims were looked for, to free %s", d.Need))
	told, more := map[string]bool{}, d.Untried
	for _, domain := range d.Domains {
		in := domain.Name
		if domain.Round != "" {
			in += ", to " + domain.Round
		}
		switch line := fmt.Sprintf("    %s: %s", in, domain.Outcome); {
		case told[line]: // of a later round
		case len(told) == shown:
			more++
		default:
			told[line] = true
			lines = append(lines, line)
		}
	}
	if more > 0 {
		lines = append(lines, fmt.Sprintf("    and %d more", more))
	}
	for _, bundle := range d.Bundles {
		lines = append(lines, fmt.Sprintf("    Chosen: %d pods of %s (%s), gain %.2f, cost %.2f, ROI %.2f", bundle.Pods,
			bundle.Gang, bundle.Kind, bundle.Gain, bundle.Cost, bundle.ROI))
	}
	return lines
}

// domainOf returns what users call the domain of a fit: rack r2.
func domainOf(f *decisions.Fit) string {
	if f.Topology == "" {
		return "all nodes"
	}
	return topology.ShortKey(f.Topology) + " " + f.Domain
}

// shortage lists amounts by name.
func shortage(short map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(short)) {
		parts = append(parts, short[name]+" "+name)
	}
	return strings.Join(parts, ", ")
}

func (q *Queue) words() string {
	var parts []string
	for _, one := range []struct {
		name   string
		amount v1.ResourceList
	}{{"deserves", q.Deserved}, {"has", q.Allocated}, {"asks for", q.Requested}, {"may have at most", q.Capability}} {
		if len(one.amount) > 0 {
			parts = append(parts, one.name+" "+amounts(one.amount))
		}
	}
	if q.Pending > 0 {
		parts = append(parts, words.Count(int(q.Pending), "gang")+" wait"+singular(int(q.Pending))+" in it")
	}
	if q.Closed {
		parts = append(parts, "it is closed")
	}
	return strings.TrimSuffix(fmt.Sprintf("Queue %s: %s", q.Name, strings.Join(parts, "; ")), ": ")
}

func amounts(list v1.ResourceList) string {
	short := map[string]string{}
	for name, amount := range list {
		short[string(name)] = amount.String()
	}
	return shortage(short)
}

// lineWords says where a gang stands among those that wait.
func lineWords(line *Line) string {
	queue := "the queue"
	if line.Queue != "" {
		queue = "queue " + line.Queue
	}
	text := fmt.Sprintf("Place in %s: %d of %d", queue, line.At, line.Of)
	if line.At > 1 && line.First != "" {
		text += "; " + line.First + " comes first"
	}
	return text
}

func upper(text string) string { return strings.ToUpper(text[:1]) + text[1:] }
