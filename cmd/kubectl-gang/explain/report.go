package explain

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/forecast/simulate"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/output"
	"github.com/lockstep-sh/lockstep/pkg/scheduler"
	"github.com/lockstep-sh/lockstep/pkg/status/decisions"
	"github.com/lockstep-sh/lockstep/pkg/view"
)

// Report is the answer about a gang.
type Report struct {
	Gang string `json:"gang"`
	// Phase is the phase in kubectl gang list, and Stands how far the gang has come; empty where that is not known. Held
	// is how many members without a node have one nominated.
	Phase  string `json:"phase,omitempty"`
	Stands string `json:"stands,omitempty"`
	Held   int    `json:"held,omitempty"`
	// Members, Bound and Waiting count its pods that have not ended; Min is how many start together.
	Members int `json:"members"`
	Bound   int `json:"bound"`
	Waiting int `json:"waiting"`
	Min     int `json:"min"`
	// Running: the gang runs, and pods that wait are beyond its minimum.
	Running bool `json:"running"`
	// Missing is what to look at where it has too few pods, and Strangers are its pods that name another scheduler.
	Missing   string `json:"missing,omitempty"`
	Strangers string `json:"strangers,omitempty"`
	// Said is what the conditions of its pods say, each reason once.
	Said []Word `json:"said,omitempty"`
	// Autoscaler is whether an autoscaler acts for it, in words.
	Autoscaler string `json:"autoscaler,omitempty"`
	Queue      *Queue `json:"queue,omitempty"`
	// Line is its place among those that have all their members and would still wait after what the scheduler decides now;
	// nil where it would not wait.
	Line *scheduler.Line `json:"line,omitempty"`
	// Reservations are the Reservations that waiting members may use; null where the profile of its pods uses none, or
	// that is not known.
	Reservations []Reserved `json:"reservations"`
	// Cases are what the scheduler decides now, and with more nodes.
	Cases []Case `json:"cases,omitempty"`
	// Unasked is why the scheduler could not be asked, and Notes what else is not known.
	Unasked string   `json:"unasked,omitempty"`
	Notes   []string `json:"notes,omitempty"`
	Pods    []Member `json:"pods"`
	// Seconds is how long the answer took, from when the cluster was asked first.
	Seconds float64 `json:"seconds"`
}

// Word is what the conditions of pods say.
type Word struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Pods    int    `json:"pods"`
}

// Queue is the numbers of the gang's queue.
type Queue struct {
	Name       string          `json:"name"`
	Share      string          `json:"share,omitempty"`
	Deserved   v1.ResourceList `json:"deserved,omitempty"`
	Allocated  v1.ResourceList `json:"allocated,omitempty"`
	Requested  v1.ResourceList `json:"requested,omitempty"`
	Capability v1.ResourceList `json:"capability,omitempty"`
	Pending    int32           `json:"pendingGangs"`
	Closed     bool            `json:"closed,omitempty"`
}

// Case is what the scheduler decides.
type Case struct {
	Name      string   `json:"case"`
	Placed    int      `json:"placed"`
	Undecided bool     `json:"undecided,omitempty"`
	Why       []Word   `json:"why,omitempty"`
	Nodes     []string `json:"nodes,omitempty"`
	Victims   []string `json:"victims,omitempty"`
	// Others are pods that are evicted meanwhile for other pods that wait.
	Others []string `json:"evictedForOthers,omitempty"`
	// Decisions are how it came to that, the oldest first.
	Decisions []decisions.Decision `json:"decisions,omitempty"`
}

// Member is a pod of the gang.
type Member struct {
	Pod    string `json:"pod"`
	Phase  string `json:"phase"`
	Node   string `json:"node,omitempty"`
	Reason string `json:"reason,omitempty"`
	Since  string `json:"since,omitempty"`
}

func newReport(gang string, members []*v1.Pod, least int, running bool) *Report {
	r := &Report{Gang: gang, Min: least, Running: running, Pods: []Member{}}
	for _, pod := range members {
		m := Member{Pod: pod.Name, Phase: string(pod.Status.Phase), Node: pod.Spec.NodeName}
		_, c := podutil.GetPodCondition(&pod.Status, v1.PodScheduled)
		if c != nil && c.Status == v1.ConditionFalse {
			m.Reason, m.Since = c.Reason, c.LastTransitionTime.UTC().Format("2006-01-02T15:04:05Z")
			r.Said = add(r.Said, c.Reason, c.Message)
		}
		if pod.DeletionTimestamp != nil {
			m.Phase = "Terminating"
		}
		r.Pods = append(r.Pods, m)
		switch {
		case pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed:
			continue
		case pod.Spec.NodeName != "":
			r.Bound++
		default:
			r.Waiting++
			if m.Reason == "" {
				r.Pods[len(r.Pods)-1].Reason = waits(pod)
			}
		}
		r.Members++
	}
	r.Autoscaler = autoscaler(r)
	return r
}

// tell adds how the gang stands as kubectl gang list reports it; nil where it is not listed.
func (r *Report) tell(g *view.Gang, profiles []string) {
	if g == nil {
		return
	}
	there := 0
	for _, m := range r.Pods {
		if m.Phase != "Terminating" && m.Phase != string(v1.PodSucceeded) && m.Phase != string(v1.PodFailed) {
			there++
		}
	}
	r.Phase, r.Stands, r.Held, r.Missing = g.Phase, stands(g), g.Held, missing(g, there, profiles)
}

// reserve adds the Reservations that members which wait may use. What cannot be found out is noted.
func (r *Report) reserve(list []*v1alpha1.Reservation, waiting []*v1.Pod) {
	var err error
	if r.Reservations, err = reserved(list, waiting); err != nil {
		r.Notes = append(r.Notes, "Reservations are not known: "+err.Error())
	}
}

// waiting returns the members that are to get a node.
func waiting(members []*v1.Pod) []*v1.Pod {
	return slices.DeleteFunc(slices.Clone(members), func(pod *v1.Pod) bool {
		ended := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
		return pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || ended
	})
}

// waits returns why a pod waits that has no condition of the scheduler.
func waits(pod *v1.Pod) string {
	if len(pod.Spec.SchedulingGates) > 0 {
		return "SchedulingGated"
	}
	return "NotTriedYet"
}

func add(words []Word, reason, message string) []Word {
	at := slices.IndexFunc(words, func(w Word) bool { return w.Reason == reason && w.Message == message })
	if at < 0 {
		words, at = append(words, Word{Reason: reason, Message: message}), len(words)
	}
	words[at].Pods++
	return words
}

// autoscaler words whether an autoscaler acts for the pods that wait, by the reasons of their conditions.
func autoscaler(r *Report) string {
	demand := 0
	for _, m := range r.Pods {
		if m.Node == "" && m.Reason == v1alpha1.ReasonUnschedulable {
			demand++
		}
	}
	switch {
	case r.Waiting == 0:
		return ""
	case demand == 0:
		return "none adds nodes for it: no pod is Unschedulable"
	case slices.ContainsFunc(r.Said, func(w Word) bool {
		return strings.Contains(w.Message, "autoscalers try pods one by one and add no nodes")
	}):
		return "none adds nodes for it, since each pod would fit on a node that is free"
	default:
		return fmt.Sprintf("one may add nodes: %d pods are Unschedulable", demand)
	}
}

// queueOf returns the queue of a pod; nil where there are none.
func queueOf(ctx context.Context, simulation *simulate.Simulation, pod *v1.Pod) *Queue {
	name := simulation.QueueOf(pod)
	if name == "" {
		return nil
	}
	q := &Queue{Name: name}
	_ = q.read(ctx, simulation.Read) // the default queue exists without being created
	return q
}

// read reads the numbers of a queue.
func (q *Queue) read(ctx context.Context, read reader) error {
	var object v1alpha1.Queue
	if err := read(ctx, "/apis/scheduling.lockstep.dev/v1alpha1/queues/"+q.Name, &object); err != nil {
		return err
	}
	q.Share, q.Deserved, q.Allocated, q.Requested = object.Status.Share, object.Status.Deserved,
		object.Status.Allocated, object.Status.Requested
	q.Capability, q.Pending, q.Closed = object.Spec.Capability, object.Status.PendingGangs, object.Spec.Closed
	return nil
}

// add notes what the scheduler decides in a case that it has looked at since a time.
func (r *Report) add(name string, answer *simulate.Answer, simulation *simulate.Simulation, began time.Time) {
	c := Case{Name: name, Placed: answer.Placed(), Undecided: answer.Undecided,
		Decisions: simulation.Decisions(r.Gang, began)}
	nodes := map[string]int{}
	for i := range answer.Verdicts {
		if v := &answer.Verdicts[i]; v.Node != "" {
			nodes[v.Node]++
		} else {
			c.Why = add(c.Why, cmp.Or(v.Reason, "Undecided"), v.Message)
		}
	}
	gangsOf := func(pods []*v1.Pod) []string {
		counts := map[string]int{}
		for _, pod := range pods {
			counts[cmp.Or(simulation.GangOf(pod), pod.Namespace+"/"+pod.Name+" (no gang)")]++
		}
		return counted(counts)
	}
	c.Nodes, c.Victims, c.Others = counted(nodes), gangsOf(answer.Victims), gangsOf(answer.Others)
	r.Cases = append(r.Cases, c)
}

// counted lists what was counted: "node-1 (2)".
func counted(counts map[string]int) []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, fmt.Sprintf("%s (%d)", name, counts[name]))
	}
	return list
}

var columns = output.Columns[Member]{
	{Name: "POD", Of: func(m Member) any { return m.Pod }},
	{Name: "PHASE", Of: func(m Member) any { return m.Phase }},
	{Name: "NODE", Of: func(m Member) any { return cmp.Or(m.Node, "<none>") }},
	{Name: "REASON", Of: func(m Member) any { return m.Reason }},
	{Name: "SINCE", Wide: true, Of: func(m Member) any { return m.Since }},
}

func (r *Report) print(flags *output.Flags, out io.Writer) error {
	p, err := flags.Printer(out)
	if err != nil {
		return err
	}
	if !p.IsTable() {
		return output.Print(p, "GangExplanation", nil, []*Report{r})
	}
	if _, err := io.WriteString(out, r.words()); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	if len(r.Pods) == 0 {
		return nil
	}
	return output.Table(flags, out, columns, r.Pods)
}

// words returns all but the table.
func (r *Report) words() string {
	var b strings.Builder
	b.WriteString(r.first())
	for _, text := range []string{r.Missing, r.Strangers} {
		if text != "" {
			fmt.Fprintf(&b, "Members: %s\n", text)
		}
	}
	for _, w := range r.Said {
		fmt.Fprintf(&b, "The scheduler said to %d pods, %s: %s\n", w.Pods, w.Reason, w.Message)
	}
	if r.Autoscaler != "" {
		fmt.Fprintf(&b, "Autoscaler: %s\n", r.Autoscaler)
	}
	if q := r.Queue; q != nil {
		b.WriteString(q.words())
	}
	if r.Line != nil {
		b.WriteString(lineWords(r.Line))
	}
	if r.Reservations != nil {
		b.WriteString(reservedWords(r.Reservations))
	}
	for i := range r.Cases {
		b.WriteString(r.Cases[i].words())
	}
	if r.Unasked != "" {
		fmt.Fprintf(&b, "What the scheduler would decide now is not known: %s\n", r.Unasked)
	}
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "Note: %s\n", note)
	}
	if len(r.Pods) > 0 {
		b.WriteString("\n")
	}
	return b.String()
}

// first returns the line that says how the gang stands.
func (r *Report) first() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Gang %s: ", r.Gang)
	if r.Phase != "" {
		fmt.Fprintf(&b, "%s, %s; ", r.Phase, r.Stands)
	}
	switch {
	case len(r.Pods) == 0:
		b.WriteString("it has no pods")
	case r.Members == 0:
		b.WriteString("its pods have ended")
	default:
		fmt.Fprintf(&b, "%d of %d members have a node", r.Bound, r.Members)
	}
	if r.Held > 0 {
		fmt.Fprintf(&b, ", and room is kept for %d", r.Held)
	}
	switch {
	case r.Min == 0 && r.Phase == "" && r.Unasked != "":
		b.WriteString("; its minimum is not known\n")
	case r.Min == 0:
		b.WriteString("; it has no minimum\n")
	case r.Running:
		fmt.Fprintf(&b, "; it runs, and needs %d\n", r.Min)
	default:
		fmt.Fprintf(&b, "; it starts with %d\n", r.Min)
	}
	return b.String()
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
		parts = append(parts, fmt.Sprintf("%d gangs wait in it", q.Pending))
	}
	if q.Closed {
		parts = append(parts, "it is closed")
	}
	if len(parts) == 0 {
		return fmt.Sprintf("Queue %s\n", q.Name)
	}
	return fmt.Sprintf("Queue %s: %s\n", q.Name, strings.Join(parts, "; "))
}

func amounts(list v1.ResourceList) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(list)) {
		amount := list[name]
		parts = append(parts, amount.String()+" "+string(name))
	}
	return strings.Join(parts, ", ")
}

func (c *Case) words() string {
	var b strings.Builder
	title := strings.ToUpper(c.Name[:1]) + c.Name[1:]
	if c.Undecided {
		fmt.Fprintf(&b, "%s the scheduler has not come to an end in the time it had; so far", title)
	} else {
		fmt.Fprintf(&b, "%s the scheduler", title)
	}
	b.WriteString(" would")
	if len(c.Victims) > 0 {
		fmt.Fprintf(&b, " evict %s, and", strings.Join(c.Victims, ", "))
	}
	if c.Placed > 0 {
		fmt.Fprintf(&b, " place %d pods: %s\n", c.Placed, strings.Join(c.Nodes, ", "))
	} else {
		b.WriteString(" place none\n")
	}
	if len(c.Others) > 0 {
		fmt.Fprintf(&b, "  Meanwhile it would evict %s, for others that wait\n", strings.Join(c.Others, ", "))
	}
	for _, w := range c.Why {
		fmt.Fprintf(&b, "  %d would wait, %s: %s\n", w.Pods, w.Reason, w.Message)
	}
	b.WriteString(c.looked())
	return b.String()
}
