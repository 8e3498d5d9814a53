package explain

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/output"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/source"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
	"github.com/lockstep-sh/lockstep/pkg/status/decisions"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

const (
	unschedulable = "Unschedulable"
	noFit         = `gang "a/b": 1 of 4 members fit; short 24 nvidia.com/gpu (of 8 nodes: 7 Insufficient nvidia.com/gpu)`
	ceiling       = `queue "a" would exceed its capability of 4 nvidia.com/gpu: 3 nvidia.com/gpu used, 2 nvidia.com/gpu asked for`
)

// placement is a failed attempt to place a/b in racks that take so many of its 10 members.
func placement(fits ...int) *decisions.Decision {
	d := &decisions.Decision{Kind: decisions.Placement, Result: decisions.Unplaced}
	for i, n := range fits {
		d.Fits = append(d.Fits, decisions.Fit{
			Gang: "a/b", Topology: "topology.lockstep.dev/rack", Domain: string("rst"[i]), Fits: n, Min: 10, Short: map[string]string{"nvidia.com/gpu": "16"},
		})
	}
	return d
}

// TestVerdict: the first line answers, and contradicts nothing below it.
func TestVerdict(t *testing.T) {
	waits := func(d *decisions.Decision, reason, message string) []Case {
		return []Case{{Name: "now", Asked: 10, Why: []view.Wait{{Reason: reason, Message: message, Pods: 10}}, Placement: d}}
	}
	placed := []Case{{Name: "now", Placed: 4, Asked: 4, Nodes: []string{"n-0 (4)"}}}
	anywhere := &decisions.Decision{Fits: []decisions.Fit{{Gang: "a/b", Fits: 1, Min: 4, Short: map[string]string{"nvidia.com/gpu": "24"}}}}
	nowhere := &decisions.Decision{Fits: []decisions.Fit{{Gang: "a/b", Topology: "example.com/block", Min: 4}}}
	builtIn := &source.Origin{BuiltIn: "none was found"}
	for want, r := range map[string]Report{
		"a/b waits: no rack has room for 10; best rack r fits 6":                                {State: "waiting for room", Waiting: 10, Minimum: 10, Cases: waits(placement(6, 5), unschedulable, noFit)},
		"a/b waits: no rack has room for any of its 10 members":                                 {State: "waiting for room", Waiting: 10, Minimum: 10, Cases: waits(placement(0), unschedulable, noFit)},
		"a/b waits: 1 of 4 members fit; short 24 nvidia.com/gpu":                                {State: "waiting for room", Waiting: 4, Minimum: 4, Cases: waits(anywhere, unschedulable, noFit)},
		"a/b waits: no node has the label example.com/block, which it requires as its topology": {State: "waiting for room", Waiting: 4, Minimum: 4, Cases: waits(nowhere, unschedulable, noFit)},
		"a/b waits: " + ceiling: {State: "queued", Waiting: 4, Minimum: 4, Cases: waits(nil, "QueueCapability", ceiling)},
		"a/b waits: there is room for it, and it starts on n-0 (4)":                                                              {State: "planning", Waiting: 4, Minimum: 4, Cases: placed},
		"a/b waits: it starts in rack r by evicting a/low (8)":                                                                   {State: "planning", Waiting: 4, Minimum: 4, Cases: []Case{{Placed: 4, Asked: 4, Chosen: "rack r", Victims: []string{"a/low (8)"}}}},
		"a/b waits: 1 of its minimum of 2 members are there":                                                                     {State: "gathering", Members: 1, Waiting: 1, Minimum: 2, Cases: waits(nil, "GangIncomplete", "")},
		"a/b runs: 2 of 2 members have a node, and it needs 2":                                                                   {State: "bound", Members: 2, Bound: 2, Minimum: 2},
		"a/b runs with 4 of 12 members, and it needs 4; 8 wait: " + strings.TrimPrefix(noFit, `gang "a/b": `):                    {State: "bound", Members: 12, Bound: 4, Waiting: 8, Minimum: 4, Cases: waits(nil, unschedulable, noFit)},
		"a/b: 2 of 2 members have a node; its minimum is not known":                                                              {Members: 2, Bound: 2},
		"a/b waits: no scheduler leads, since there is no lease x/y; once one does: no rack has room for 10; best rack r fits 6": {State: "planning", Waiting: 10, Minimum: 10, Leaderless: "there is no lease x/y", Cases: waits(placement(6), unschedulable, noFit)},
		// The built-in configuration has no queues: what it would place does not count beside what the scheduler has said.
		"a/b waits: queue says no": {State: "queued", Waiting: 4, Minimum: 4, Configuration: builtIn, Cases: placed, Said: []view.Wait{{Reason: "QueueCapability", Message: "queue says no", Pods: 4}}},
	} {
		r.Gang = "a/b"
		if r.judge(&view.Gang{}); r.Verdict != want {
			t.Errorf("it says %q, want %q", r.Verdict, want)
		}
	}
}

// TestVerdictOnAGangThatEnded: the pods of one whose Job failed as they were evicted are gone, and say nothing.
func TestVerdictOnAGangThatEnded(t *testing.T) {
	for want, g := range map[string]view.Gang{
		"a/b has ended: 3 pods have succeeded, 1 have failed": {Phase: "Failed", Succeeded: 3, Failed: 1, Reason: "GangIncomplete"},
		`a/b has ended: Job "b" has failed (why)`:             {Phase: "Failed", Reason: "JobFailed", Message: `Job "b" has failed (why)`},
	} {
		r := Report{Gang: "a/b", State: stands(&g)}
		if r.judge(&g); r.Verdict != want {
			t.Errorf("it says %q, want %q", r.Verdict, want)
		}
	}
}

// printed returns what a report prints without flags, or with -v.
func printed(t *testing.T, r *Report, verbose bool) string {
	t.Helper()
	var out bytes.Buffer
	cmd := output.Command(&cobra.Command{}, &out, func(_ context.Context, p *output.Printer, _ []string) error {
		return r.print(p, &out, verbose)
	})
	cmd.SetArgs([]string{})
	must.Succeed(t, cmd.ExecuteContext(t.Context()))
	return out.String()
}

// TestPrint: what nobody should miss is printed without -v, and no message twice.
func TestPrint(t *testing.T) {
	said := view.Wait{Reason: unschedulable, Message: noFit, Pods: 10}
	failed := placement(6, 5)
	failed.Hopeless = true
	failed.Untried, failed.Refusals, failed.Visited = 3, map[string]int{"Insufficient nvidia.com/gpu": 7}, 8
	search := &decisions.Decision{Need: "80 nvidia.com/gpu", Domains: []decisions.Domain{{Name: "rack r", Outcome: "short"}, {Name: "rack r", Outcome: "short"}}}
	r := Report{
		Gang: "a/b", Phase: "Pending", State: "waiting for room", Members: 10, Waiting: 10, Minimum: 10, Said: []view.Wait{said}, MoreNodes: MoreNodesInOneDomain,
		Cases: []Case{{Name: "now", Asked: 10, Why: []view.Wait{said}, Placement: failed, Search: search}, {Name: "with 1 more node like n-0", Placed: 10, Asked: 10, Chosen: "rack r"}},
	}
	r.judge(&view.Gang{})
	const brief = `a/b waits: no rack has room for 10; best rack r fits 6
DOMAIN   FITS   SHORT
rack r   6/10   16 nvidia.com/gpu
rack s   5/10   16 nvidia.com/gpu
and 3 more
It would not fit even if the cluster were empty
Several racks together have room for it: add nodes to one, or make the topology a preferred one
With 1 more node like n-0 the scheduler would place 10 pods in rack r
`
	if got := printed(t, &r, false); got != brief {
		t.Errorf("it prints\n%s", got)
	}
	got := printed(t, &r, true)
	if !strings.HasPrefix(got, brief) {
		t.Errorf("with -v it prints\n%s", got)
	}
	if n := strings.Count(strings.Join(strings.Fields(got), " "), strings.TrimPrefix(noFit, `gang "a/b": `)); n != 1 {
		t.Errorf("the message is printed %d times:\n%s", n, got)
	}
	if n := strings.Count(strings.ToLower(strings.Join(strings.Fields(got), " ")), "of 8 nodes: 7 insufficient"); n != 1 {
		t.Errorf("the refusal is printed %d times:\n%s", n, got)
	}
	for line := range strings.Lines(got) {
		if len(line) > 101 {
			t.Errorf("line %q is longer than 100 columns", line)
		}
	}
	nowhere := &decisions.Decision{Fits: []decisions.Fit{{Gang: "a/b", Topology: "example.com/rail", Min: 10}}, Hopeless: true}
	r = Report{Gang: "a/b", Waiting: 10, Minimum: 10, MoreNodes: MoreNodesWithLabel, Cases: []Case{{Name: "now", Asked: 10, Why: []view.Wait{said}, Placement: nowhere}}}
	r.judge(&view.Gang{})
	if got := printed(t, &r, false); got != "a/b waits: no node has the label example.com/rail, which it requires as its topology\n" {
		t.Errorf("where no node has the label it prints\n%s", got)
	}
}

// TestUnusable: nodes that members may not use are named with the reason, and lack nothing.
func TestUnusable(t *testing.T) {
	const noMatch = "node(s) didn't match Pod's node affinity/selector"
	tainted, picky := placement(6, 0), placement(0, 0)
	tainted.Refusals, tainted.Visited = map[string]int{"node(s) had untolerated taint {a}": 1}, 5
	tainted.Fits[0].Usability = decisions.Usability{Nodes: 3, More: 2, Like: "n-1", Unusable: []decisions.Unusable{
		{Reason: "node(s) had untolerated taint {a}", Nodes: 1, Node: "n-0"},
	}}
	tainted.Fits[1].Usability = decisions.Usability{Nodes: 2, Unusable: []decisions.Unusable{{Reason: "node(s) were unschedulable", Nodes: 2}}}
	tainted.Fits[1].Short = nil
	picky.Refusals, picky.Visited = map[string]int{noMatch: 4}, 4
	for i := range picky.Fits {
		picky.Fits[i].Short = nil
		picky.Fits[i].Usability = decisions.Usability{Nodes: 2, Unusable: []decisions.Unusable{{Reason: noMatch, Nodes: 2}}}
	}
	for want, d := range map[string]*decisions.Decision{
		`a/b waits: no rack has room for 10; best rack r fits 6, where n-0 had untolerated taint {a}
DOMAIN   FITS   SHORT               NOT USABLE
rack r   6/10   16 nvidia.com/gpu   n-0 had untolerated taint {a}
rack s   0/10                       2 node(s) were unschedulable
To see whether more nodes would do, try --nodes +2:n-1
`: tainted,
		`a/b waits: its members may use no node: 4 node(s) didn't match Pod's node affinity/selector
DOMAIN   FITS   SHORT   NOT USABLE
rack r   0/10           2 node(s) didn't match Pod's node affinity/selector
rack s   0/10           2 node(s) didn't match Pod's node affinity/selector
`: picky,
	} {
		r := Report{Gang: "a/b", State: "waiting for room", Waiting: 10, Minimum: 10, MoreNodes: MoreNodesHelp,
			Cases: []Case{{Name: "now", Asked: 10, Why: []view.Wait{{Reason: unschedulable, Message: noFit, Pods: 10}}, Placement: d}}}
		r.judge(&view.Gang{})
		if diff := cmp.Diff(want, printed(t, &r, false)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// TestWays: where a gang does not fit, the numbers and the ways out are said without -v, and which nodes to ask for.
func TestWays(t *testing.T) {
	const (
		hopeless = "It would not fit even if the cluster were empty: the nodes of one rack have room for 4 of 12 members"
		several  = "Several racks together have room for it: add nodes to one, or make the topology a preferred one"
		try      = "To see whether more nodes would do, try --nodes +"
	)
	full := fmt.Sprintf("%s; %s preemption: no victims", noFit, strings.ToLower(hopeless[:1])+hopeless[1:])
	anywhere := &decisions.Decision{Fits: []decisions.Fit{{Gang: "a/b", Fits: 1, Min: 4, Usability: decisions.Usability{Nodes: 2, More: 2, Like: "n-1"}}}}
	tooSmall := &decisions.Decision{Fits: []decisions.Fit{{Gang: "a/b", Fits: 1, Min: 4, Usability: decisions.Usability{Nodes: 2}}}}
	never := placement(6)
	never.Fits[0].Usability = decisions.Usability{Nodes: 2, More: 4, Like: "n-1"}
	never.Hopeless, never.EmptyCluster = true, "the nodes of one rack have room for 4 of 12 members"
	for sentence, c := range map[string]struct {
		help      MoreNodes
		placement *decisions.Decision
		cases     int
		want      []string
	}{
		"nodes in one rack would help":   {MoreNodesInOneDomain, never, 1, []string{hopeless, several, try + "4:n-1"}},
		"nodes anywhere would help":      {MoreNodesHelp, anywhere, 1, []string{try + "2:n-1"}},
		"no node takes a member":         {MoreNodesHelp, tooSmall, 1, nil},
		"it was asked with more already": {MoreNodesHelp, anywhere, 2, nil},
		"more nodes would not help":      {MoreNodesNoHelp, anywhere, 1, nil},
		"it was not tried":               {MoreNodesHelp, nil, 1, nil},
	} {
		r := &Report{Gang: "a/b", MoreNodes: c.help, Cases: []Case{{Asked: 4, Placement: c.placement, Why: []view.Wait{{Reason: unschedulable, Message: full}}}}}
		for range c.cases - 1 {
			r.Cases = append(r.Cases, Case{Name: "with 1 more node", Placed: 4, Asked: 4})
		}
		if diff := cmp.Diff(c.want, r.summary()[:len(r.summary())-c.cases+1], cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", sentence, diff)
		}
	}
}

// TestRepetition: what a line above says is not said again, whatever preemption adds to it.
func TestRepetition(t *testing.T) {
	const victims = "no victims: evicting every eligible pod would still not fit the minimum"
	brief := strings.TrimPrefix(noFit, `gang "a/b": `)
	told := repetition{"a/b", []string{"a/b waits: " + ceiling}, []string{ceiling, brief, "another"}}
	for _, c := range [][2]string{
		{ceiling, ", as above"}, {noFit + ". preemption: " + victims, ": " + brief + "; preemption: " + victims},
		{noFit, ", as above"}, {noFit + ". preemption: " + victims, ", as above"}, {"another", ": another"},
		{"another. preemption: aborted", ", as above; preemption: aborted"},
	} {
		if got := told.message(c[0]); got != c[1] {
			t.Errorf("of %q it says %q, want %q", c[0], got, c[1])
		}
	}
	if refused := "Of 8 nodes: 7 Insufficient nvidia.com/gpu"; !told.has(refused) || told.has("Of 9 nodes") {
		t.Errorf("%q is not seen in what was said", refused)
	}
}

func TestExpired(t *testing.T) {
	now := time.Unix(1000, 0)
	lease := func(holder string, renewed time.Time) *coordinationv1.Lease {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "lockstep-scheduler"},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: new(metav1.NewMicroTime(renewed)), LeaseDurationSeconds: new(int32(15))},
		}
	}
	for want, lease := range map[string]*coordinationv1.Lease{
		"": lease("me", now.Add(-15*time.Second)),
		"nobody holds the lease kube-system/lockstep-scheduler":        lease("", now),
		"the lease kube-system/lockstep-scheduler has expired 45s ago": lease("me", now.Add(-time.Minute)),
	} {
		if got := expired(lease, now); got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
}

// TestNotSearched: of a search that looked nowhere, as for members beyond the minimum, nothing is told.
func TestNotSearched(t *testing.T) {
	c := &Case{Name: "now", Search: &decisions.Decision{Need: "8 nvidia.com/gpu"}}
	if got := c.details(&repetition{}); len(got) != 1 {
		t.Errorf("it says %q", got)
	}
	c.Search.Domains = []decisions.Domain{{Name: "rack r0"}}
	if got := c.details(&repetition{}); len(got) != 3 {
		t.Errorf("it says %q", got)
	}
}
