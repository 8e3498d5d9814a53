package simulate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/evictions"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
)

// Verdict is what became of a pod.
type Verdict struct {
	Pod *v1.Pod
	// Node is the one to which it is, or would be bound; empty for none.
	Node string
	// Reason and Message are why it would wait, and Preemption why preemption would not help it; empty where Message is
	// that of its gang. stands is whether only a change from outside the scheduler can end that.
	Reason, Message, Preemption string
	stands                      bool
}

// Words returns why it would wait, and why preemption would not help it.
func (v *Verdict) Words() string { return strings.TrimSpace(v.Message + " " + v.Preemption) }

// isOpen reports whether neither a node nor a reason is known.
func (v *Verdict) isOpen() bool { return v.Node == "" && v.Reason == "" }

// ReasonOtherScheduler is the reason of a pod that no profile of the configuration schedules.
const ReasonOtherScheduler = "OtherScheduler"

// ReasonKeptOut is the reason of a pod that a plugin keeps out of the scheduling queue, and of those in its gang: for
// example, its ResourceClaim does not exist. It is also that of a pod that is being deleted.
const ReasonKeptOut = "KeptOut"

// Answer is what the scheduler decided.
type Answer struct {
	// Asked is when the scheduler was asked.
	Asked    time.Time
	Verdicts []Verdict
	// Victims are the pods that it would evict for them, in order; Others those that it would evict meanwhile for other
	// pods that wait.
	Victims, Others []*v1.Pod
	// Undecided: it had not come to an end in the time that it had.
	Undecided bool
}

// Placed counts the pods that have a node, or would.
func (a *Answer) Placed() int {
	n := 0
	for i := range a.Verdicts {
		if a.Verdicts[i].Node != "" {
			n++
		}
	}
	return n
}

// decided reports whether there is a verdict on all pods, and how long it has to stand.
func (a *Answer) decided() (decided bool, quiet time.Duration) {
	quiet = settled
	for i := range a.Verdicts {
		switch v := &a.Verdicts[i]; {
		case v.Node != "":
		case v.Reason == "":
			return false, 0
		case !final[v.Reason] && !v.stands:
			quiet = stillWorking
		}
	}
	return true, quiet
}

// final are the reasons that stand until something else happens in the cluster.
var final = map[string]bool{
	v1alpha1.ReasonUnschedulable: true, v1alpha1.ReasonGangIncomplete: true, v1alpha1.ReasonMemberRejected: true,
	v1alpha1.ReasonGangUnsupported: true,
}

// queuesNotRead is the reason where the scheduler cannot read all that its queues need: it goes on once it can.
const queuesNotRead = "QueuesNotRead"

func (a *Answer) words() string {
	text := ""
	for i := range a.Verdicts {
		text += a.Verdicts[i].Reason + a.Verdicts[i].Node + "\n"
	}
	return text
}

// simulationRun is how far the scheduler has come with some pods.
type simulationRun struct {
	*Simulation
	pods []*v1.Pod
	// unseen is how many of the first pods may not have come to the scheduler yet.
	unseen int
	// changes is what was written when now and gone were read: the pods as they are, by UID, and those that were deleted.
	changes int
	now     map[types.UID]*v1.Pod
	gone    []*v1.Pod
	// evictedFor are the pods for which pods were evicted, by the UID of the evicted pod, from the first said events.
	evictedFor map[types.UID]*v1.ObjectReference
	said       int
}

func (l *simulationRun) look(ctx context.Context) (*Answer, error) {
	if err := l.read(); err != nil {
		return nil, err
	}
	answer := &Answer{}
	explanations := map[string]gangstate.Explanation{} // by gang
	for _, pod := range l.pods {
		answer.Verdicts = append(answer.Verdicts, l.verdict(pod, explanations))
	}
	if slices.ContainsFunc(answer.Verdicts, func(v Verdict) bool { return v.isOpen() }) {
		failed := l.scheduler.Failed()
		for i := range answer.Verdicts {
			if v := &answer.Verdicts[i]; v.isOpen() && failed.Has(v.Pod.UID) {
				// A pod that has the same condition already is not written to again.
				v.Reason, v.Message, v.Preemption = l.waitOf(v.Pod)
			}
		}
		l.keptOut(ctx, answer.Verdicts)
	}
	answer.Victims, answer.Others = l.victims(explanations)
	return answer, nil
}

// keptOut gives pods without a verdict the reason that a plugin keeps them out of the scheduling queue, or another one
// of their gang.
func (l *simulationRun) keptOut(ctx context.Context, verdicts []Verdict) {
	why := map[string]string{} // by gang
	for i := range verdicts {
		v := &verdicts[i]
		if !v.isOpen() {
			continue
		}
		text := l.scheduler.Refusal(ctx, v.Pod)
		if gang := l.GangOf(v.Pod); gang != "" && text != "" {
			why[gang] = fmt.Sprintf("pod %q of the gang: %s", v.Pod.Name, text)
		} else if text != "" {
			v.Reason, v.Message = ReasonKeptOut, text
		}
	}
	for i := range verdicts {
		if text := why[l.GangOf(verdicts[i].Pod)]; text != "" && verdicts[i].isOpen() {
			verdicts[i].Reason, verdicts[i].Message = ReasonKeptOut, text
		}
	}
}

// verdict returns what is known of a pod, and of its gang if that has not been asked for before.
func (l *simulationRun) verdict(pod *v1.Pod, explanations map[string]gangstate.Explanation) Verdict {
	v := Verdict{Pod: pod, Node: pod.Spec.NodeName}
	changed := l.now[pod.UID]
	if changed != nil {
		v.Node = changed.Spec.NodeName
	}
	switch {
	case v.Node != "":
		return v
	case l.scheduler.Profiles[pod.Spec.SchedulerName] == nil:
		v.Reason, v.stands = ReasonOtherScheduler, true
		v.Message = fmt.Sprintf("spec.schedulerName is %q, of which the scheduler has no profile: it has %s",
			pod.Spec.SchedulerName, strings.Join(l.Profiles(), ", "))
		return v
	case pod.DeletionTimestamp != nil:
		v.Reason, v.Message, v.stands = ReasonKeptOut, "it is being deleted", true
		return v
	case len(pod.Spec.SchedulingGates) > 0:
		v.Reason, v.Message, v.stands = v1.PodReasonSchedulingGated,
			"spec.schedulingGates is not empty: it is not scheduled before that is", true
		return v
	case changed != nil:
		v.Reason, v.Message, v.Preemption = l.waitOf(changed)
	}
	if gang := l.GangOf(pod); gang != "" {
		e, asked := explanations[gang]
		if !asked {
			e, _ = l.Set().Gangs().Why(pod)
			explanations[gang] = e
		}
		if e.Reason != "" {
			v.Reason, v.Message, v.Preemption = e.Reason, e.Message, ""
		}
	}
	if v.Reason == "" { // before its condition says so; most are for a moment only
		wait := l.Set().CurrentWait(pod)
		v.Reason, v.Message, v.stands = string(wait.Reason), wait.Message, wait.Reason.Shut()
	}
	return v
}

// victims returns the pods that were evicted for those that were asked about, or for what is placed with them, and
// those evicted for others.
func (l *simulationRun) victims(explanations map[string]gangstate.Explanation) (own, others []*v1.Pod) {
	asked, groups := uidsOf(l.pods), sets.New[string]()
	for _, e := range explanations {
		groups.Insert(e.Group)
	}
	for _, pod := range l.gone {
		preemptor := l.evictedFor[pod.UID]
		if preemptor == nil || asked.Has(preemptor.UID) || groups.Has(l.groupOf(preemptor)) {
			own = append(own, pod)
		} else {
			others = append(others, pod)
		}
	}
	return own, others
}

// groupOf returns the gang of a pod; "-" for a pod that is gone, or in none.
func (l *simulationRun) groupOf(ref *v1.ObjectReference) string {
	pod, err := l.scheduler.Pod(ref.Namespace, ref.Name)
	if err != nil {
		return "-" // pods that were asked about are recognized by their UID
	}
	if e, ok := l.Set().Gangs().Why(pod); ok {
		return e.Group
	}
	return "-"
}

// behind reports whether the scheduler does not know all pods yet that are asked about: it does not know supposed pods
// before the watch has delivered them, and what it says of a gang meanwhile is of the members that it knows.
func (l *simulationRun) behind() bool {
	for ; l.unseen > 0; l.unseen-- {
		asked := l.pods[l.unseen-1]
		if slices.ContainsFunc(l.gone, func(pod *v1.Pod) bool { return pod.UID == asked.UID }) {
			continue
		}
		_, counts := l.Set().Gangs().Progress(asked)
		if pod, err := l.scheduler.Pod(asked.Namespace, asked.Name); err != nil || pod.UID != asked.UID ||
			l.GangOf(asked) != "" && !counts {
			return true
		}
	}
	return false
}

// read reads pods, if anything was written since it last did.
func (l *simulationRun) read() error {
	if err := l.readEvents(); err != nil {
		return err
	}
	changes := l.server.Changes()
	if l.now != nil && changes == l.changes {
		return nil
	}
	asked := uidsOf(l.pods)
	l.now, l.gone, l.changes = map[types.UID]*v1.Pod{}, nil, changes
	for _, o := range l.server.Made(Pods) {
		if !asked.Has(o.GetUID()) {
			continue
		}
		pod, err := podOf(o)
		if err != nil {
			return err
		}
		l.now[pod.UID] = pod
	}
	for _, o := range l.server.DeletedPods()[l.told:] {
		pod, err := podOf(o)
		if err != nil {
			return err
		}
		l.gone = append(l.gone, pod)
	}
	return nil
}

// readEvents reads the events that were written since it last did.
func (l *simulationRun) readEvents() error {
	events := l.server.Events(l.said)
	l.said += len(events)
	for _, o := range events {
		var e eventsv1.Event
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &e); err != nil {
			return fmt.Errorf("reading an event: %w", err)
		}
		if e.Reason == evictions.EventPreempted && e.Related != nil {
			l.evictedFor[e.Regarding.UID] = e.Related
		}
	}
	return nil
}

func uidsOf(pods []*v1.Pod) sets.Set[types.UID] {
	uids := sets.New[types.UID]()
	for _, pod := range pods {
		uids.Insert(pod.UID)
	}
	return uids
}

// waitOf returns why a pod waits, as its status has it, and why preemption did not help it.
func (l *simulationRun) waitOf(pod *v1.Pod) (reason, message, preemption string) {
	if c := objectstate.WaitCondition(pod); c != nil {
		return c.Reason, c.Message, l.scheduler.Preemption(pod.UID)
	}
	return "", "", ""
}

func podOf(o *unstructured.Unstructured) (*v1.Pod, error) {
	pod := &v1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, pod); err != nil {
		return nil, fmt.Errorf("reading a pod: %w", err)
	}
	return pod, nil
}
