package gang

import (
	"context"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/leading"
	"github.com/lockstep-sh/lockstep/plugins/podstatus"
)

// teller tells users why gangs wait: in events, and in the PodScheduled condition of every
// pending member, so that an autoscaler sees the whole demand. From there the controller takes
// it to the PodGroup. It works beside the scheduling goroutine, at a bounded rate, and tells what
// changed only.
type teller struct {
	pl *Gang
	// leading is given once this process schedules.
	leading leading.Signal
	// lane is where the pending members of gangs are told.
	lane  *podstatus.Lane[gang.Key]
	marks workqueue.TypedRateLimitingInterface[mark]
	// problems are bad values of gangs.
	problems problems

	mu sync.Mutex
	// due are the gangs of which the explanation may have changed, and since when.
	due map[gang.Key]time.Time
	// told is what was last said of a gang.
	told map[gang.Key]string
}

func newTeller(pl *Gang, qps int32, statuses *podstatus.Writer, leads leading.Signal) *teller {
	t := &teller{
		pl: pl, leading: leads, problems: problems{pending: map[problem]gang.Report{}},
		marks: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[mark]()),
		due:   map[gang.Key]time.Time{}, told: map[gang.Key]string{},
	}
	t.lane = podstatus.NewLane(statuses, pl.handle.ClientSet(), qps, t.say)
	return t
}

// note takes in what there is to tell.
func (t *teller) note(e gang.Effects) {
	for _, pod := range e.Expire {
		t.marks.Add(mark{types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, pod.UID})
	}
	t.problems.note(e.Problems)
	for _, key := range e.Changed {
		t.again(key)
	}
}

// Pauses before the users of a gang are told that it waits: it may only be
// gathering, or the next event may help.
const (
	incompletePause    = 5 * time.Second
	unschedulablePause = time.Second
	tellEvery          = 250 * time.Millisecond
)

// run tells, from when this process schedules until it ends.
func (t *teller) run(ctx context.Context) {
	if !t.leading.Wait(ctx) {
		return
	}
	go t.runMarks(ctx)
	go t.lane.Run(ctx)
	t.leading.Every(ctx, t.pl.clock, tellEvery, func() {
		for _, report := range t.problems.take() {
			badValue(report).Record(t.pl.handle.EventRecorder())
		}
		for _, key := range t.dueNow() {
			t.gang(ctx, key)
		}
	})
}

// dueNow takes the gangs whose pause is over.
func (t *teller) dueNow() []gang.Key {
	now := t.pl.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	var keys []gang.Key
	for key, since := range t.due {
		if now.Sub(since) >= unschedulablePause {
			keys = append(keys, key)
			delete(t.due, key)
		}
	}
	return keys
}

func (t *teller) again(key gang.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.due[key]; !ok {
		t.due[key] = t.pl.clock.Now()
	}
}

// explanation is what is to be said of a gang now.
func (t *teller) explanation(key gang.Key) (gang.Explanation, bool) {
	e, ok := t.pl.explain(key)
	if !ok || e.Running || len(e.Pending) == 0 || e.Reason != "" && e.Reason != v1alpha1.ReasonUnschedulable {
		return e, ok
	}
	for _, pod := range e.Pending { // some may be beyond what is kept
		if reason, message := t.pl.roster.Keeps(pod); reason != "" {
			e.Reason, e.Message = reason, message // it does not get so far as to be placed
			break
		}
	}
	return e, ok
}

// say returns what the pending members of a gang are to say now.
func (t *teller) say(key gang.Key) podstatus.Saying {
	switch e, ok := t.explanation(key); {
	case !ok || e.Running:
		return podstatus.Saying{}
	case e.Reason == "":
		return podstatus.Saying{Reason: v1alpha1.ReasonAwaitingPlacement, Message: gang.TextAwaiting(key, e.Min), Pods: t.outdated(e)}
	default:
		return podstatus.Saying{Reason: e.Reason, Message: e.Message, Pods: e.Pending}
	}
}

// outdated are the pending members of a gang of which nothing is to be explained, and that say what
// they were told before: members were missing, or it was not their turn. What kube-scheduler says of
// a pod that it has tried may be so still, and is replaced by what comes of the next attempt; so may
// what is said of queues, as long as a queue keeps the gang.
func (t *teller) outdated(e gang.Explanation) (pods []*v1.Pod) {
	kept := sync.OnceValue(func() bool { return slices.ContainsFunc(e.Pending, t.pl.roster.Waiting) })
	for _, pod := range e.Pending {
		word := podstatus.Word(pod)
		if word == nil {
			continue
		}
		switch word.Reason {
		case v1.PodReasonUnschedulable, v1.PodReasonSchedulerError, v1.PodReasonSchedulingGated:
		case v1alpha1.ReasonGangIncomplete, v1alpha1.ReasonGangUndefined, v1alpha1.ReasonTimedOut, v1alpha1.ReasonAwaitingPlacement:
			pods = append(pods, pod)
		default:
			if !kept() {
				pods = append(pods, pod)
			}
		}
	}
	return pods
}

// gang tells of one gang what has changed.
func (t *teller) gang(ctx context.Context, key gang.Key) {
	e, ok := t.explanation(key)
	if !ok || e.Reason == "" {
		t.forget(key)
		if len(t.outdated(e)) > 0 {
			t.lane.Tell(key)
		}
		return
	}
	if gathers := e.Reason == v1alpha1.ReasonGangIncomplete || e.Reason == v1alpha1.ReasonGangUndefined; gathers && t.pl.clock.Since(youngest(e.Pending)) < incompletePause {
		t.again(key)
		return
	}
	if t.isNews(e) {
		if t.lane.Wait(ctx) != nil {
			return // the process ends
		}
		waits(e).Record(t.pl.handle.EventRecorder())
	}
	t.lane.Tell(key)
}

func youngest(pods []*v1.Pod) time.Time {
	var last time.Time
	for _, pod := range pods {
		if created := pod.CreationTimestamp.Time; created.After(last) {
			last = created
		}
	}
	return last
}

func (t *teller) isNews(e gang.Explanation) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := e.Reason + e.Message
	if t.told[e.Gang] == text {
		return false
	}
	t.told[e.Gang] = text
	return true
}

func (t *teller) forget(key gang.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.told, key)
}
