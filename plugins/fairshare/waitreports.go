package fairshare

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/pools"
	"github.com/lockstep-sh/lockstep/pkg/status"
)

// tellEvery is how often news is called.
const tellEvery = time.Second

// tell reports to the users of jobs what they wait for, from when this process schedules. The plugin Gang
// reports for gangs, which do not wait behind the pods in none: those are reported one by one.
func (d *Dispatcher) tell(ctx context.Context) {
	go d.conditions.Run(ctx)
	d.leading.Every(ctx, d.clock, tellEvery, func() {
		for profile, keys := range d.news() {
			d.gangs.Explain(ctx, profile, keys.UnsortedList())
		}
	})
}

// news queues the pods in no gang for which there is something to report, and returns the gangs,
// by profile, that the plugin Gang has to report.
func (d *Dispatcher) news() map[string]sets.Set[gangspec.Key] {
	defer d.lock()()
	news, gangs := d.book.News(d.moment()), map[string]sets.Set[gangspec.Key]{}
	d.do(queueing.Effects{BringToGate: news.Again})
	for _, pod := range news.Pods {
		d.conditions.Tell(pod)
	}
	for _, pod := range d.podsOf(news.Members) {
		key, _, ok := gangspec.KeyOf(pod)
		if !ok {
			continue
		}
		profile := pod.Spec.SchedulerName
		if gangs[profile] == nil {
			gangs[profile] = sets.New[gangspec.Key]()
		}
		gangs[profile].Insert(key)
	}
	return gangs
}

// ReportedWait returns why a member of a gang waits for its turn, as its users are told; nothing if it does not wait,
// or not for long.
func (d *Dispatcher) ReportedWait(member *v1.Pod) queueing.Wait {
	defer d.lock()()
	return d.book.Waits(d.jobOf(string(member.UID)))
}

// jobOf returns the job that a pod is counted in; empty for none.
func (d *Dispatcher) jobOf(pod string) string {
	counted, _ := d.book.Counted(pod)
	return counted.Job
}

// Limits returns why pods that are placed together, and do not fit, would not be admitted to more nodes either: their
// queue, or one above it, admits nothing, or its ceiling leaves no room for them beside the jobs that come before them
// and wait for nodes too. Nothing means that they would.
func (d *Dispatcher) Limits(pods []*v1.Pod) queueing.Wait {
	defer d.lock()()
	for _, pod := range pods {
		if job := d.jobOf(string(pod.UID)); job != "" { // otherwise beyond what is asked for, or not seen yet
			return d.book.Limit(job)
		}
	}
	return queueing.Wait{}
}

// CurrentWait returns why a pod, or its gang, waits for its turn now, whether or not its users are told that; nothing
// if it does not wait, or queues have not been read.
func (d *Dispatcher) CurrentWait(pod *v1.Pod) queueing.Wait {
	defer d.lock()()
	if !d.opened {
		return queueing.Wait{}
	}
	return d.book.Why(d.jobOf(string(pod.UID)), true)
}

// Uncounted returns the free capacity that no queue shares, since no pod can come to the nodes that have it.
func (d *Dispatcher) Uncounted() []pools.Uncounted {
	defer d.lock()()
	return d.nodes.Uncounted()
}

// Line returns the position of a pod, or its gang, among those that wait in its queue, in the order in which the queue
// serves them, from 1; how many they are; and the first of them, by its name for users. The position is 0 where the pod
// does not wait. A queue serves those that a limit keeps back after those behind them.
func (d *Dispatcher) Line(pod *v1.Pod) (at, of int, first string) {
	defer d.lock()()
	usage, counted := d.book.Counted(string(pod.UID))
	if !d.opened || !counted {
		return 0, 0, ""
	}
	line := d.book.Line(usage.Queue)
	at = slices.IndexFunc(line, func(j queueing.Job) bool { return j.Name == usage.Job }) + 1
	if at == 0 {
		return 0, 0, ""
	}
	return at, len(line), line[0].Title
}

// say returns the condition for a pod in no gang: why it waits for its turn, as far as its users are told that; or what
// limits it now, if its condition names a limit. It has no pods if nothing is to be written.
func (d *Dispatcher) say(uid string) status.PendingCondition {
	defer d.lock()()
	pod, job := d.countedPod(types.UID(uid)), d.jobOf(uid)
	if pod == nil || pod.Spec.NodeName != "" {
		return status.PendingCondition{}
	}
	wait := d.book.Waits(job)
	word := objectstate.WaitCondition(pod)
	if wait.Reason == "" && word != nil && queueing.IsLimit(word.Reason) {
		wait = d.book.Limit(job)
	}
	if wait.Reason == "" {
		return status.PendingCondition{}
	}
	return status.PendingCondition{Reason: string(wait.Reason), Message: wait.Message, Pods: []*v1.Pod{pod}}
}
