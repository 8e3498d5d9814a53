package explain

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/source"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
)

// Report is the answer about a gang.
type Report struct {
	Gang string `json:"gang"`
	// Verdict is the answer in one sentence.
	Verdict string `json:"verdict"`
	// Phase is the phase in kubectl gang list, and State how far the gang has come; empty where that is not known.
	Phase string `json:"phase,omitempty"`
	State string `json:"state,omitempty"`
	// Members and Bound are those in kubectl gang list. Waiting pods are to get a node; Held of them have one nominated.
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
	Line *Line `json:"line,omitempty"`
	// Reservations are the Reservations that waiting members may use; null where the profile of its pods uses none, or
	// that is not known.
	Reservations []Reserved `json:"reservations"`
	// Cases are what the scheduler decides now, and with more nodes; empty where it was not asked.
	Cases []Case `json:"cases,omitempty"`
	// Configuration is where the configuration comes from by which the cases were decided, and Leaderless why no scheduler
	// leads in the cluster; empty where one does, or that is not known.
	Configuration *source.Origin `json:"configuration,omitempty"`
	Leaderless    string         `json:"leaderless,omitempty"`
	// Unasked is why the scheduler could not be asked, Advice what to look at, and Notes what else is not known.
	Unasked string   `json:"unasked,omitempty"`
	Advice  []string `json:"advice,omitempty"`
	Notes   []string `json:"notes,omitempty"`
	Pods    []Member `json:"pods"`
	// Seconds is how long the answer took, from when the cluster was asked first.
	Seconds float64 `json:"seconds"`

	// there is how many pods have neither ended nor are being deleted; refusedByKubelet are the pods that kubelets
	// refused.
	there            int
	refusedByKubelet []*v1.Pod
	// unscheduled says that no profile schedules its pods that wait; empty where one does, or that is not known.
	unscheduled string
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

// Member is a pod of the gang.
type Member struct {
	Pod    string `json:"pod"`
	Phase  string `json:"phase"`
	Node   string `json:"node,omitempty"`
	Reason string `json:"reason,omitempty"`
	Since  string `json:"since,omitempty"`
}

// newReport begins the report about a gang with its pods. g is how kubectl gang list reports it; nil where it is not
// listed.
func newReport(gang string, members []*v1.Pod, g *view.Gang) *Report {
	r := &Report{Gang: gang, Waiting: len(Waiting(members)), Pods: []Member{}}
	if g != nil {
		r.Members, r.Bound = g.Members, g.Bound
	}
	for _, pod := range members {
		m := Member{Pod: pod.Name, Phase: string(pod.Status.Phase), Node: pod.Spec.NodeName}
		if c := objectstate.WaitCondition(pod); c != nil {
			m.Reason, m.Since = c.Reason, c.LastTransitionTime.UTC().Format(time.RFC3339)
			r.Said = view.AddWait(r.Said, c.Reason, c.Message)
		}
		if pod.DeletionTimestamp != nil {
			m.Phase = "Terminating"
		}
		if gangstate.KubeletRefusal(pod) != "" {
			m.Reason, r.refusedByKubelet = pod.Status.Reason, append(r.refusedByKubelet, pod)
		}
		if !objectstate.HasEnded(pod) {
			if pod.DeletionTimestamp == nil {
				r.there++
			}
			if pod.Spec.NodeName == "" {
				m.Reason = cmp.Or(m.Reason, waits(pod))
			}
		}
		r.Pods = append(r.Pods, m)
	}
	return r
}

// tell adds how the gang stands as kubectl gang list reports it.
func (r *Report) tell(g *view.Gang, profiles []string) {
	r.Phase, r.State, r.Held, r.Minimum = g.Phase, stands(g), g.Held, g.Minimum
	if text := missing(g, r.there, profiles); text != "" {
		if refused := gangstate.TextRefusedByKubelet(r.refusedByKubelet); refused != "" {
			r.Advice = append(r.Advice, refused)
		}
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

// Waiting returns the members that are to get a node.
func Waiting(members []*v1.Pod) []*v1.Pod {
	return slices.DeleteFunc(slices.Clone(members), func(pod *v1.Pod) bool {
		return !objectstate.AwaitsNode(pod)
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
		Name: name, Share: q.Status.Share, Deserved: q.Status.Deserved, Allocated: q.Status.Allocated,
		Requested:  q.Status.Requested,
		Capability: q.Spec.Capability, Pending: q.Status.PendingGangs, Closed: q.Spec.Closed,
	}, err
}

// Counted lists what was counted: "node-1 (2)".
func Counted(counts map[string]int) []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, fmt.Sprintf("%s (%d)", name, counts[name]))
	}
	return list
}
