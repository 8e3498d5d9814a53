package fairshare

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/scheduler/util"

	"golang.org/x/time/rate"

	"github.com/lockstep-sh/lockstep/plugins/internal/dispatch"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
)

const (
	// tellEvery is how often is looked for what there is to tell.
	tellEvery = time.Second
	// tellAfter is how long a job waits before its users are told why: most wait for a
	// moment only.
	tellAfter = 2 * time.Second
	// tellAgain is how long a job is left alone after that: the numbers may change all the
	// time.
	tellAgain = 30 * time.Second
	// tellUnread is how long they wait until they are told that the queues are not known yet.
	tellUnread = 10 * time.Second
	// retryFirst and retryMost are the pauses after a write that failed.
	retryFirst, retryMost = time.Second, time.Minute
)

// reasonUnread and unread are what users are told while nobody can say whose turn it is.
const (
	reasonUnread = "QueuesNotRead"
	unread       = "waiting for queues and pods to be read; see the scheduler's log"
)

// tell has the users of jobs told what they wait for, from when this process schedules. Gangs
// are told by Gang, and do not wait behind the pods in none, which are told one by one.
func (d *Dispatcher) tell(ctx context.Context) {
	select {
	case <-d.leading:
	case <-ctx.Done():
		return
	}
	go d.teller.run(ctx)
	ticker := d.clock.NewTicker(tellEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		for profile, keys := range d.news() {
			d.roster.Explain(profile, keys)
		}
	}
}

// news hands to the teller the jobs of which there is something to tell, and returns the gangs,
// by profile, that Gang is to tell.
func (d *Dispatcher) news() map[string][]gang.Key {
	d.lock()
	defer d.mu.Unlock()
	gangs := map[string][]gang.Key{}
	for name, w := range d.waiting {
		switch reason, message := d.untold(name, w); {
		case reason == "":
		case len(w.gangs) > 0:
			w.note(reason, message, d.clock.Now())
			gangs[w.pod.Spec.SchedulerName] = append(gangs[w.pod.Spec.SchedulerName], w.gangs...)
		default:
			d.teller.queue.Add(name)
		}
	}
	return gangs
}

// untold is what the users of a job that waits are to be told; an empty reason is nothing.
func (d *Dispatcher) untold(name string, w *waiter) (reason, message string) {
	if _, tried := d.patient[name]; tried {
		return "", "" // its pods were told what was tried
	}
	now := d.clock.Now()
	if !d.opened { // a queue that seems not to be there may not have been read
		if now.Sub(w.since) < tellUnread || w.told == unread {
			return "", ""
		}
		return reasonUnread, unread
	}
	if now.Sub(w.since) < tellAfter || w.told != unread && now.Sub(w.at) < tellAgain {
		return "", ""
	}
	why, message := d.book.Why(name)
	if why == "" || why == dispatch.Turn && w.told != unread || message == w.told {
		return "", "" // that others come first may be over in a moment
	}
	return forUsers(why), message
}

// note notes what the users of a job were told.
func (w *waiter) note(reason, message string, at time.Time) {
	w.reason, w.told, w.at = reason, message, at
}

// forUsers is the reason that users are told. Where more capacity would help it is the one
// that autoscalers look for.
func forUsers(reason dispatch.Reason) string {
	if reason == dispatch.Overused {
		return v1.PodReasonUnschedulable
	}
	return string(reason)
}

// Keeps tells why a member of a gang waits for its turn, as its users were told last; an empty
// reason is that it does not wait, or not for long.
func (d *Dispatcher) Keeps(member *v1.Pod) (reason, message string) {
	d.lock()
	defer d.mu.Unlock()
	usage, _ := d.book.Counted(string(member.UID))
	if w := d.waiting[usage.Job]; w != nil {
		return w.reason, w.told
	}
	return "", ""
}

// Waiting reports whether a pod waits for the turn of its job.
func (d *Dispatcher) Waiting(pod *v1.Pod) bool {
	d.lock()
	defer d.mu.Unlock()
	usage, _ := d.book.Counted(string(pod.UID))
	return d.waiting[usage.Job] != nil
}

// teller tells the pods of jobs in no gang why they wait, each time with what is true then. What
// could not be written is tried again.
type teller struct {
	d     *Dispatcher
	queue workqueue.TypedRateLimitingInterface[string] // names of jobs
	limit *rate.Limiter
	write func(ctx context.Context, pod *v1.Pod, reason, message string) error
}

func newTeller(d *Dispatcher, qps int32, write func(context.Context, *v1.Pod, string, string) error) *teller {
	return &teller{
		d: d, write: write, limit: rate.NewLimiter(rate.Limit(qps), int(qps)),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryFirst, retryMost)),
	}
}

func (t *teller) run(ctx context.Context) {
	go func() {
		<-ctx.Done()
		t.queue.ShutDown()
	}()
	for {
		name, down := t.queue.Get()
		if down {
			return
		}
		if err := t.job(ctx, name); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to tell what a job waits for; trying again", "job", name)
			t.queue.AddRateLimited(name)
		} else {
			t.queue.Forget(name)
		}
		t.queue.Done(name)
	}
}

// job tells the pods of a job.
func (t *teller) job(ctx context.Context, name string) error {
	if w, _, _ := t.due(name); w == nil {
		return nil // it waits no more, which costs no part of the limit
	}
	if err := t.limit.Wait(ctx); err != nil {
		return fmt.Errorf("waiting for the rate limit: %w", err)
	}
	w, reason, message := t.due(name)
	if w == nil {
		return nil
	}
	for _, pod := range w.pods {
		if err := t.write(ctx, pod, reason, message); err != nil {
			return err
		}
	}
	t.d.lock()
	defer t.d.mu.Unlock()
	if now := t.d.waiting[name]; now != nil {
		now.note(reason, message, t.d.clock.Now())
	}
	return nil
}

// due is a job of which there is something to tell, as it waits now; nil if there is nothing.
func (t *teller) due(name string) (w *waiter, reason, message string) {
	t.d.lock()
	defer t.d.mu.Unlock()
	now := t.d.waiting[name]
	if now == nil {
		return nil, "", ""
	}
	if reason, message = t.d.untold(name, now); reason == "" {
		return nil, "", ""
	}
	copied := *now
	return &copied, reason, message
}

// writeCondition tells a pod that waits, in its condition PodScheduled.
func (d *Dispatcher) writeCondition(ctx context.Context, told *v1.Pod, reason, message string) error {
	handle := d.handle(told.Spec.SchedulerName)
	pod, err := d.find(told.Namespace, told.Name, told.UID)
	if err != nil {
		return err
	}
	if pod == nil || pod.Spec.NodeName != "" {
		return nil
	}
	status := pod.Status.DeepCopy()
	if !podutil.UpdatePodCondition(status, &v1.PodCondition{
		Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: reason, Message: message,
		ObservedGeneration: podutil.CalculatePodConditionObservedGeneration(status, pod.Generation, v1.PodScheduled),
	}) {
		return nil
	}
	if err := util.PatchPodStatus(ctx, handle.ClientSet(), pod.Name, pod.Namespace, &pod.Status, status); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing the condition of pod %s: %w", klog.KObj(pod), err)
	}
	return nil
}
