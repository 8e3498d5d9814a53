package fairshare

import (
	"context"
	"fmt"
	"slices"
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
	// retryFirst and retryMost are the pauses after a write that failed.
	retryFirst, retryMost = time.Second, time.Minute
)

// tell has the users of jobs told what they wait for, from when this process schedules. Gangs
// are told by Gang, and do not wait behind the pods in none, which are told one by one.
func (d *Dispatcher) tell(ctx context.Context) {
	go d.teller.run(ctx)
	d.leading.Every(ctx, d.clock, tellEvery, func() {
		for profile, keys := range d.news() {
			d.roster.Explain(profile, keys)
		}
	})
}

// news hands to the teller the jobs of which there is something to tell, and returns the gangs,
// by profile, that Gang is to tell.
func (d *Dispatcher) news() map[string][]gang.Key {
	defer d.lock()()
	gangs := map[string][]gang.Key{}
	at := d.moment()
	for _, notice := range d.book.News(at) {
		if !notice.Gang {
			d.teller.queue.Add(notice.Job)
			continue
		}
		d.book.Told(notice, at)
		for _, pod := range d.podsOf(notice.Pods) {
			profile := pod.Spec.SchedulerName
			if key, _, ok := gang.KeyOf(pod); ok && !slices.Contains(gangs[profile], key) {
				gangs[profile] = append(gangs[profile], key)
			}
		}
	}
	return gangs
}

// Keeps tells why a member of a gang waits for its turn, as its users were told last; an empty
// reason is that it does not wait, or not for long.
func (d *Dispatcher) Keeps(member *v1.Pod) (reason, message string) {
	defer d.lock()()
	said, message := d.book.Said(string(member.UID))
	return string(said), message
}

// Waiting reports whether a pod waits for the turn of its job.
func (d *Dispatcher) Waiting(pod *v1.Pod) bool {
	defer d.lock()()
	usage, _ := d.book.Counted(string(pod.UID))
	return d.book.Phase(usage.Job) == dispatch.Waiting
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
	if _, _, due := t.due(name); !due {
		return nil // it waits no more, which costs no part of the limit
	}
	if err := t.limit.Wait(ctx); err != nil {
		return fmt.Errorf("waiting for the rate limit: %w", err)
	}
	notice, pods, due := t.due(name)
	if !due {
		return nil
	}
	for _, pod := range pods {
		if err := t.write(ctx, pod, string(notice.Reason), notice.Message); err != nil {
			return err
		}
	}
	defer t.d.lock()()
	t.d.book.Told(notice, t.d.moment())
	return nil
}

// due is what there is to tell of a job, as it waits now, and the pods to tell; false if there is
// nothing.
func (t *teller) due(name string) (notice dispatch.Notice, pods []*v1.Pod, due bool) {
	defer t.d.lock()()
	notice, due = t.d.book.Untold(name, t.d.moment())
	return notice, t.d.podsOf(notice.Pods), due
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
