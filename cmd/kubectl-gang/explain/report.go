package explain

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang-forecast/simulate"
	"github.com/lockstep-sh/lockstep/pkg/scheduler"
	"github.com/lockstep-sh/lockstep/pkg/status/decisions"
	"github.com/lockstep-sh/lockstep/pkg/view"
)

// Report is the answer about a gang.
type Report struct {
	Gang string `json:"gang"`
	// Verdict is the answer in one sentence.
	Verdict string `json:"verdict"`
	// Phase is the phase in kubectl gang list, and State how far the gang has come; empty where that is not known.
	Phase string `json:"phase,omitempty"`
	State string `json:"state,omitempty"`
	// Members, Bound and Waiting count its pods that have not ended; Held of those that wait have a node nominated.
	// Minimum is how many start together; 0 where that is not stated, or not known.
	Members int `json:"members"`
	Bound   int `json:"bound"`
	Waiting int `json:"waiting"`
	Held    int `json:"held"`
	Minimum int `json:"minimum"`
	// Said is what the conditions of its pods say, each reason once.
	Said []view.Wait `json:"said,omitempty"`
	// MoreNodes is whether an autoscaler would help; empty where nothing waits, or that is not known.
	MoreNodes MoreNodes `json:"moreNodes,omitempty"`
	Queue     *Queue    `json:"queue,omitempty"`
	// Line is its place among those that have all their members and would still wait after what the scheduler decides now;
	// nil where it would not wait.
	Line *scheduler.Line `json:"line,omitempty"`
	// Reservations are the Reservations that waiting members may use; null where the profile of its pods uses none, or
	// that is not known.
	Reservations []Reserved `json:"reservations"`
	// Cases are what the scheduler decides now, and with more nodes; empty where it was not asked.
	Cases []Case `json:"cases,omitempty"`
	// Configuration is where the configuration comes from by which the cases were decided, and Leaderless why no scheduler
	// leads in the cluster; empty where one does, or that is not known.
	Configuration *simulate.Origin `json:"configuration,omitempty"`
	Leaderless    string           `json:"leaderless,omitempty"`
	// Unasked is why the scheduler could not be asked, Advice what to look at, and Notes what else is not known.
	Unasked string   `json:"unasked,omitempty"`
	Advice  []string `json:"advice,omitempty"`
	Notes   []string `json:"notes,omitempty"`
	Pods    []Member `json:"pods"`
	// Seconds is how long the answer took, from when the cluster was asked first.
	Seconds float64 `json:"seconds"`

	// there is how many of Members are not on their way out.
	there int
}

// MoreNodes is whether an autoscaler would help pods that wait.
type MoreNodes string

// What more nodes would do.
const (
	// MoreNodesHelp: autoscalers see pods that are Unschedulable, and more nodes would help them.
	MoreNodesHelp MoreNodes = "Help"
	// MoreNodesInOneDomain: each pod fits on a node that is free, so that autoscalers add none; nodes in one domain of its
	// topology would help.
	MoreNodesInOneDomain MoreNodes = "InOneDomain"
	// MoreNodesWithLabel: only nodes with the label of its topology would help, and no node has it.
	MoreNodesWithLabel MoreNodes = "WithLabel"
	// MoreNodesNoHelp: no pod waits for a node alone.
	MoreNodesNoHelp MoreNodes = "NoHelp"
)

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
	Name      string      `json:"case"`
	Placed    int         `json:"placed"`
	Undecided bool        `json:"undecided,omitempty"`
	Why       []view.Wait `json:"why,omitempty"`
	// Placement is the last attempt to place it that failed, if that is why it waits: how many members fit in which
	// domain.
	Placement *decisions.Decision `json:"placement,omitempty"`
	// Search is where victims were last looked for; nil where they were not, or it is placed without any.
	Search *decisions.Decision `json:"search,omitempty"`
	Nodes  []string            `json:"nodes,omitempty"`
	// Victims are the pods that are evicted for it, counted by gang; Others those that are evicted meanwhile for others.
	Victims []string `json:"victims,omitempty"`
	Others  []string `json:"evictedForOthers,omitempty"`

	asked  int
	chosen string
}

// Member is a pod of the gang.
type Member struct {
	Pod    string `json:"pod"`
	Phase  string `json:"phase"`
	Node   string `json:"node,omitempty"`
	Reason string `json:"reason,omitempty"`
	Since  string `json:"since,omitempty"`
}

func newReport(gang string, members []*v1.Pod) *Report {
	r := &Report{Gang: gang, Pods: []Member{}}
	for _, pod := range members {
		m := Member{Pod: pod.Name, Phase: string(pod.Status.Phase), Node: pod.Spec.NodeName}
		_, c := podutil.GetPodCondition(&pod.Status, v1.PodScheduled)
		if c != nil && c.Status == v1.ConditionFalse {
			m.Reason, m.Since = c.Reason, c.LastTransitionTime.UTC().Format("2006-01-02T15:04:05Z")
			r.Said = view.AddWait(r.Said, c.Reason, c.Message)
		}
		if pod.DeletionTimestamp != nil {
			m.Phase = "Terminating"
		}
		if !podutil.IsPodTerminal(pod) {
			r.Members++
			if pod.DeletionTimestamp == nil {
				r.there++
			}
			if pod.Spec.NodeName != "" {
				r.Bound++
			} else {
				r.Waiting++
				m.Reason = cmp.Or(m.Reason, waits(pod))
			}
		}
		r.Pods = append(r.Pods, m)
	}
	return r
}

// tell adds how the gang stands as kubectl gang list reports it; nil where it is not listed.
func (r *Report) tell(g *view.Gang, profiles []string) {
	if g == nil {
		return
	}
	r.Phase, r.State, r.Held, r.Minimum = g.Phase, stands(g), g.Held, g.Minimum
	if text := missing(g, r.there, profiles); text != "" {
		r.Advice = append(r.Advice, text)
	}
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
		return pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || podutil.IsPodTerminal(pod)
	})
}

// waits returns why a pod waits that has no condition of the scheduler.
func waits(pod *v1.Pod) string {
	if len(pod.Spec.SchedulingGates) > 0 {
		return "SchedulingGated"
	}
	return "NotTriedYet"
}

// readQueue returns the numbers of a queue, as far as they can be read.
func readQueue(ctx context.Context, read reader, name string) (*Queue, error) {
	var q v1alpha1.Queue
	err := read(ctx, "/apis/scheduling.lockstep.dev/v1alpha1/queues/"+name, &q)
	return &Queue{
		Name: name, Share: q.Status.Share, Deserved: q.Status.Deserved, Allocated: q.Status.Allocated, Requested: q.Status.Requested,
		Capability: q.Spec.Capability, Pending: q.Status.PendingGangs, Closed: q.Spec.Closed,
	}, err
}

// add adds what the scheduler decides about members in a case that it has looked at since a time.
func (r *Report) add(name string, answer *simulate.Answer, simulation *simulate.Simulation, began time.Time) {
	c := Case{Name: name, Placed: answer.Placed(), Undecided: answer.Undecided, asked: len(answer.Verdicts)}
	nodes := map[string]int{}
	for i := range answer.Verdicts {
		if v := &answer.Verdicts[i]; v.Node != "" {
			nodes[v.Node]++
		} else {
			c.Why = view.AddWait(c.Why, cmp.Or(v.Reason, "Undecided"), v.Message)
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
	first := answer.Verdicts[0].Pod
	kept, _, _ := simulation.Set().Kept(first)
	c.decide(simulation.Decisions(r.Gang, began), kept != "")
	if len(r.Cases) == 0 && c.Placed < c.asked {
		why, _ := simulation.Set().Gangs().Why(first)
		r.MoreNodes = moreNodes(&c, why.Topology)
	}
	r.Cases = append(r.Cases, c)
}

// decide adds the decisions that led to a case, of all that were made, the oldest first. kept is whether the queue
// keeps the gang from being tried: then what was tried before is not why it waits.
func (c *Case) decide(all []decisions.Decision, kept bool) {
	waits := c.Placed < c.asked
	for i := range all {
		switch d := &all[i]; {
		case d.Kind == decisions.Placement && d.Result == decisions.Placed:
			c.chosen = d.Chosen
		case d.Kind == decisions.Placement && waits && !kept && len(d.Fits) > 0:
			c.Placement = d
		case d.Kind == decisions.Preemption && (waits && !kept || len(c.Victims) > 0 && d.Result == decisions.Evict):
			c.Search = d
		}
	}
}

// moreNodes returns whether more nodes would help in a case in which pods wait. scattered is the topology that alone
// keeps the gang waiting; empty for none.
func moreNodes(c *Case, scattered string) MoreNodes {
	switch {
	case !slices.ContainsFunc(c.Why, func(w view.Wait) bool { return w.Reason == v1alpha1.ReasonUnschedulable }):
		return MoreNodesNoHelp
	case scattered != "":
		return MoreNodesInOneDomain
	case c.Placement != nil && slices.ContainsFunc(c.Placement.Fits, func(f decisions.Fit) bool { return f.Topology != "" && f.Domain == "" }):
		return MoreNodesWithLabel
	}
	return MoreNodesHelp
}

// counted lists what was counted: "node-1 (2)".
func counted(counts map[string]int) []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, fmt.Sprintf("%s (%d)", name, counts[name]))
	}
	return list
}
