package gang

import (
	"context"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	pgclientset "sigs.k8s.io/scheduler-plugins/pkg/generated/clientset/versioned"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/kube/leadership"
	"github.com/lockstep-sh/lockstep/pkg/kube/workloop"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
	"github.com/lockstep-sh/lockstep/pkg/status"
)

// statusReporter reports to users why gangs wait: in events, in the condition of the PodGroup,
// and in the PodScheduled condition of every pending member, so that an
// autoscaler sees the whole demand. It runs beside the scheduling goroutine, at
// a bounded rate, and reports only what changed.
type statusReporter struct {
	pl     *Gang
	groups pgclientset.Interface
	// leading is given once this process schedules.
	leading leadership.Signal
	// conditions writes the conditions of the pending members of gangs.
	conditions *status.ConditionQueue[gangspec.Key]
	// changed are the gangs whose explanation may have changed; none before this process schedules.
	changed workqueue.TypedRateLimitingInterface[change]
	// news are the gangs with possible news for events and PodGroups. Nothing waits for these: they are for people.
	news  workqueue.TypedRateLimitingInterface[gangspec.Key]
	marks workqueue.TypedRateLimitingInterface[mark]
	// problems are bad values of gangs.
	problems problems
	// lastReported is what was last reported of a gang in an event, by its key.
	lastReported sync.Map
}

// change is a gang whose explanation may have changed, or a pod of one.
type change struct {
	gang gangspec.Key
	pod  types.UID
}

func newStatusReporter(pl *Gang, groups pgclientset.Interface, qps int32, statuses *status.Writer,
	leads leadership.Signal) *statusReporter {
	t := &statusReporter{
		pl: pl, groups: groups, leading: leads,
		problems: problems{pending: map[problem]map[types.UID]gangstate.Report{}, quiet: map[problem]time.Time{}},
		changed:  newQueue[change](), news: newQueue[gangspec.Key](), marks: newQueue[mark](),
	}
	t.conditions = status.NewConditionQueue(statuses, pl.fw.ClientSet(), qps, t.pendingConditionOf)
	return t
}

func newQueue[T comparable]() workqueue.TypedRateLimitingInterface[T] {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[T](retryFirst, retryMost)
	return workqueue.NewTypedRateLimitingQueue(limiter)
}

// recordEffects queues the reports that effects ask for.
func (t *statusReporter) recordEffects(e gangstate.Effects) {
	for _, pod := range e.Expire {
		t.marks.Add(mark{types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, pod.UID})
	}
	t.problems.note(e.Problems)
	for key := range e.Changed {
		t.scheduleReport(key)
	}
}

// Pauses before the users of a gang get the reason why it waits: it may only be gathering, or the next event may help.
// A gang that has enough pods waits for other gangs of its group, or for other roles; othersPause is for that.
const (
	incompletePause    = 5 * time.Second
	othersPause        = time.Second
	unschedulablePause = time.Second
	// problemsEvery is how often bad values are reported.
	problemsEvery = 250 * time.Millisecond
	// retryFirst and retryMost are the pauses after a write that failed.
	retryFirst, retryMost = time.Second, time.Minute
)

// run reports, from when this process schedules until it ends.
func (t *statusReporter) run(ctx context.Context) {
	if !t.leading.Wait(ctx) {
		return
	}
	go workloop.Run(ctx, t.marks, t.mark, "Failed to mark a member whose gang timed out; trying again")
	go t.conditions.Run(ctx)
	for range newsAtOnce {
		go workloop.Run(ctx, t.news, t.tellNews, "Failed to tell why a gang waits; trying again")
	}
	go workloop.Run(ctx, t.changed, t.report, "Failed to find out why a gang waits; trying again")
	t.all()
	t.leading.Every(ctx, t.pl.clock, problemsEvery, func() {
		for _, bad := range t.problems.take(t.pl.clock.Now()) {
			badValue(bad).Record(t.pl.fw.EventRecorder())
		}
	})
}

// report queues the writes that a change calls for.
func (t *statusReporter) report(_ context.Context, c change) error {
	if c.pod != "" {
		t.pl.gangs.WithGangs(func(s *gangstate.Gangs) {
			if at, member := s.Progress(c.pod); member {
				t.scheduleReport(at.Gang)
			}
		})
		return nil
	}
	if t.pl.requests != nil {
		t.pl.requests.Note(c.gang)
	}
	if _, ok := t.toTell(c.gang); ok {
		t.conditions.Tell(c.gang)
		t.news.Add(c.gang)
	}
	return nil
}

// all schedules reports of all gangs: what came before this process scheduled was not noted.
func (t *statusReporter) all() {
	var keys []gangspec.Key
	t.pl.gangs.WithGangs(func(s *gangstate.Gangs) { keys = s.Keys() })
	for _, key := range keys {
		t.scheduleReport(key)
	}
}

// toTell returns what to report about a gang now; false for nothing, or not yet.
func (t *statusReporter) toTell(key gangspec.Key) (gangstate.Explanation, bool) {
	e, ok := t.pl.Explanation(key)
	if !ok || e.Reason == "" {
		t.lastReported.Delete(key)
		return e, false
	}
	gathers := v1alpha1.IsIncomplete(e.Reason) && e.Reason != v1alpha1.ReasonGangUnsupported
	pause := incompletePause
	if e.Min > 0 && len(e.Pending) >= e.Min {
		pause = othersPause
	}
	isYoung := func(pod *v1.Pod) bool { return t.pl.clock.Since(pod.CreationTimestamp.Time) < pause }
	if gathers && slices.ContainsFunc(e.Pending, isYoung) {
		t.scheduleReport(key)
		return e, false
	}
	return e, true
}

// noteRenominated notes a pod whose nomination has ended or changed: room may no longer be made for its gang. It
// is called under locks.
func (t *statusReporter) noteRenominated(pod types.UID) {
	if t.leading.Given() { // otherwise nothing has been reported yet
		t.changed.Add(change{pod: pod}) // gangs have a lock of their own
	}
}

// scheduleReport makes a gang be reported after a pause.
func (t *statusReporter) scheduleReport(key gangspec.Key) {
	if t.leading.Given() { // otherwise run does that for all gangs
		t.changed.AddAfter(change{gang: key}, unschedulablePause)
	}
}

// Explanation returns why a gang waits, with everything considered, in the form that is reported.
func (pl *Gang) Explanation(key gangspec.Key) (gangstate.Explanation, bool) {
	e, ok := pl.gangs.Explanation(key)
	if !ok || e.Running || len(e.Pending) == 0 {
		return e, ok
	}
	if v1alpha1.AsksForNothing(e.Reason) {
		return e, ok
	}
	for _, pod := range e.Pending { // some may be beyond what the queue keeps waiting
		wait := pl.turns.ReportedWait(pod)
		reason := string(wait.Reason)
		if wait.Reason == queueing.Overused && e.Reason != "" && e.Reason != reason {
			break // nodes would give its queue a larger share, and not help the gang
		}
		if reason != "" {
			e.Reason, e.Message, e.Topology, e.Leader = reason, wait.Message, "", "" // it does not get as far as being placed
			return e, ok
		}
	}
	if e.Reason == v1alpha1.ReasonUnschedulable {
		pl.setNodesHelpReason(&e)
	}
	if outdated := outdated(e.Pending); e.Reason == "" && len(outdated) > 0 {
		e.Reason, e.Message, e.Pending = v1alpha1.ReasonAwaitingPlacement, gangstate.TextAwaiting(key, e.Min), outdated
	}
	return e, ok
}

// outdated returns the members whose status has an old reason of a gang that no longer has anything to explain: for
// example, that members were missing. The reason of an attempt, or of a queue, may still hold, and is replaced
// by the next one.
func outdated(pending []*v1.Pod) (pods []*v1.Pod) {
	for _, pod := range pending {
		word := objectstate.WaitCondition(pod)
		if word != nil && (v1alpha1.AsksForNothing(word.Reason) || word.Reason == v1alpha1.ReasonPreemptionInProgress) {
			pods = append(pods, pod)
		}
	}
	return pods
}

// pendingConditionOf returns what the status of the pending members of a gang should have now.
func (t *statusReporter) pendingConditionOf(key gangspec.Key) status.PendingCondition {
	e, ok := t.pl.Explanation(key)
	if !ok || e.Reason == "" {
		return status.PendingCondition{}
	}
	pods := slices.DeleteFunc(e.Pending, func(pod *v1.Pod) bool {
		return pod.UID == e.Leader && status.Gives(pod, e.Reason) // kube-scheduler has written it, with more words
	})
	return status.PendingCondition{Reason: e.Reason, Message: e.Message, Pods: pods}
}

// newsAtOnce is for how many gangs the news are written at the same time: a PodGroup that cannot be written to keeps
// few other gangs waiting.
const newsAtOnce = 4

// tellNews reports what is new of a gang in an event, and in the PodGroup's condition.
func (t *statusReporter) tellNews(ctx context.Context, key gangspec.Key) error {
	e, ok := t.toTell(key)
	if !ok {
		return nil
	}
	before, _ := t.lastReported.Swap(key, textOf(e))
	isNew := before != textOf(e)
	if !isNew && t.news.NumRequeues(key) == 0 { // otherwise its PodGroup could not be written to
		return nil
	}
	if err := t.conditions.Wait(ctx); err != nil {
		return err
	}
	if isNew && e.Reason != v1alpha1.ReasonAwaitingPlacement { // it takes back what was reported, and is no event
		waits(e).Record(t.pl.fw.EventRecorder())
	}
	// Lockstep-controller derives the conditions of native PodGroups from the pods.
	if e.Object.UID != "" && e.Object.Kind == gangspec.Community {
		return status.WriteScheduled(ctx, t.groups, e.Gang, e.Reason, e.Message, t.pl.clock.Now())
	}
	return nil
}

// textOf returns what is reported of a gang, and on which PodGroup: a PodGroup that is recreated under its name has
// nothing yet.
func textOf(e gangstate.Explanation) string { return string(e.Object.UID) + e.Reason + e.Message }
