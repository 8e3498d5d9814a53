package fairshare

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
)

// tell writes into the condition PodScheduled of pods what their job waits for, from when this process schedules.
func (d *Dispatcher) tell(ctx context.Context) {
	select {
	case <-d.leading:
	case <-ctx.Done():
		return
	}
	limit := rate.NewLimiter(rate.Limit(d.args.ExplanationQPS), int(d.args.ExplanationQPS))
	ticker := d.clock.NewTicker(tellEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		list, gangs := d.news()
		for profile, keys := range gangs {
			d.roster.Explain(profile, keys)
		}
		for _, n := range list {
			if limit.Wait(ctx) != nil {
				return // going down
			}
			if err := d.tellPod(ctx, n); err != nil {
				klog.FromContext(ctx).Error(err, "Failed to tell a pod what it waits for", "pod", klog.KObj(n.pod))
			}
		}
	}
}

// news is what a pod is to be told.
type news struct {
	pod             *v1.Pod
	reason, message string
}

// news takes what there is to tell pods, and the gangs, by profile, that Gang is to tell.
func (d *Dispatcher) news() ([]news, map[string][]gang.Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []news
	gangs := map[string][]gang.Key{}
	now := d.clock.Now()
	for name, w := range d.waiting {
		if _, tried := d.patient[name]; tried {
			continue // its pods were told what was tried
		}
		reason, message := d.book.Why(name)
		if reason == "" || reason == dispatch.Turn || message == w.told || now.Sub(w.since) < tellAfter || now.Sub(w.at) < tellAgain {
			continue
		}
		w.reason, w.told, w.at = forUsers(reason), message, now
		if len(w.gangs) > 0 {
			gangs[w.pod.Spec.SchedulerName] = append(gangs[w.pod.Spec.SchedulerName], w.gangs...)
			continue
		}
		for _, pod := range w.pods {
			list = append(list, news{pod, w.reason, message})
		}
	}
	return list, gangs
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
	d.mu.Lock()
	defer d.mu.Unlock()
	usage, _ := d.book.Counted(string(member.UID))
	if w := d.waiting[usage.Job]; w != nil {
		return w.reason, w.told
	}
	return "", ""
}

// Waiting tells whether a pod waits for the turn of its job.
func (d *Dispatcher) Waiting(pod *v1.Pod) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	usage, _ := d.book.Counted(string(pod.UID))
	return d.waiting[usage.Job] != nil
}

// tellPod writes it.
func (d *Dispatcher) tellPod(ctx context.Context, n news) error {
	handle := d.handle(n.pod.Spec.SchedulerName)
	pod, err := handle.SharedInformerFactory().Core().V1().Pods().Lister().Pods(n.pod.Namespace).Get(n.pod.Name)
	if err != nil || pod.UID != n.pod.UID || pod.Spec.NodeName != "" {
		return nil //nolint:nilerr // it is gone
	}
	status := pod.Status.DeepCopy()
	if !podutil.UpdatePodCondition(status, &v1.PodCondition{
		Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: n.reason, Message: n.message,
		ObservedGeneration: podutil.CalculatePodConditionObservedGeneration(status, pod.Generation, v1.PodScheduled),
	}) {
		return nil
	}
	if err := util.PatchPodStatus(ctx, handle.ClientSet(), pod.Name, pod.Namespace, &pod.Status, status); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing the condition of pod %s: %w", klog.KObj(pod), err)
	}
	return nil
}
