package fairshare

import (
	"cmp"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/usage"
)

// current returns the last known version of a pod; nil if it is gone, has ended, or cannot be scheduled as it is. The
// scheduler and the gangs may still use an older version for a while, or a pod that is gone.
func (d *Dispatcher) current(pod *v1.Pod) *v1.Pod {
	now, err := d.find(pod.Namespace, pod.Name, pod.UID)
	if err != nil {
		klog.Background().Error(err, "Failed to look up a pod; going on with what is known of it", "pod", klog.KObj(pod))
		return pod
	}
	return now
}

// find looks up a pod; nil if it is gone, has ended, or cannot be scheduled as it is: it counts nowhere.
func (d *Dispatcher) find(namespace, name string, uid types.UID) (*v1.Pod, error) {
	pod, err := d.there(namespace, name, uid)
	if pod == nil || gangstate.CheckPod(pod) != nil {
		return nil, err
	}
	return pod, nil
}

// there looks up a pod; nil if it is gone or has ended.
func (d *Dispatcher) there(namespace, name string, uid types.UID) (*v1.Pod, error) {
	pod, err := d.pods.Pods(namespace).Get(name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("looking up pod %s/%s: %w", namespace, name, err)
	case pod.UID != uid || podutil.IsPodTerminal(pod):
		return nil, nil
	}
	return pod, nil
}

// waits reports whether a pod exists and has no node.
func (d *Dispatcher) waits(pod *v1.Pod) bool {
	now := d.current(pod)
	return now != nil && now.Spec.NodeName == ""
}

// count adds a pod, in its current version, to the book, as part of a job.
func (d *Dispatcher) count(pod *v1.Pod, job string) {
	if _, counted := d.usage.Pod(pod.UID); !counted {
		d.syncHold(pod.UID)
	}
	before, known := d.book.Counted(string(pod.UID))
	at, assumed := d.place(pod), d.assumed[pod.UID]
	now := queueing.Usage{
		Queue: d.queueOf(pod), Job: job, Group: groupOf(pod), Priority: corev1helpers.PodPriority(pod), Demand: before.Demand,
		Runs: pod.Spec.NodeName != "" || assumed != "", Promised: at.Nominated(), Held: at.Planned,
	}
	if !known && job == "" && now.Group != "" && at.Node == "" {
		now.Demand = queueing.Hopeless // its gang asks for nothing before it is complete
	}
	d.members.Move(pod.UID, before.Group, now.Group)
	d.usage.Count(pod, cmp.Or(pod.Spec.NodeName, assumed, at.Node), now)
}

// counting is what the counter of usages asks the Dispatcher. The lock is held.
type counting struct{ d *Dispatcher }

var _ usage.Caller = counting{}

// Ours implements usage.Caller.
func (c counting) Ours(schedulerName string) bool {
	_, ours := c.d.handles[schedulerName]
	return ours
}

// QueueOf implements usage.Caller.
func (c counting) QueueOf(pod *v1.Pod) string { return c.d.queueOf(pod) }

// Moment implements usage.Caller.
func (c counting) Moment() queueing.Moment { return c.d.moment() }

// Do implements usage.Caller.
func (c counting) Do(effects queueing.Effects) { c.d.do(effects) }

// HeldChanged implements usage.Caller: everything that a waiting job asks for may be held for it now.
func (c counting) HeldChanged() {
	c.d.rechecks = true
	c.d.signal()
}

// Recounted implements usage.Caller.
func (c counting) Recounted(job string) {
	if job != "" {
		c.d.recounted[job] = true
		c.d.signal()
	}
}

// reenterRecounted makes the jobs wait with what they ask for now that ask for something else than before.
func (d *Dispatcher) reenterRecounted() {
	defer d.lock()()
	for job := range d.recounted {
		d.reenter(job)
	}
	clear(d.recounted)
}

// moveAll counts pods where they are now, and makes the jobs that they are part of wait there.
func (d *Dispatcher) moveAll(uids map[types.UID]bool) {
	jobs := map[string]bool{}
	for uid := range uids {
		if pod := d.known(uid); pod != nil {
			d.recount(pod)
			now, _ := d.book.Counted(string(uid))
			jobs[now.Job] = true
		}
	}
	for job := range jobs {
		d.reenter(job)
	}
}

// known returns a pod that is counted, as it is now; nil if it is gone.
func (d *Dispatcher) known(uid types.UID) *v1.Pod {
	counted, ok := d.usage.Pod(uid)
	if !ok {
		return nil
	}
	pod, err := d.find(counted.Object.Namespace, counted.Object.Name, uid)
	if err != nil {
		klog.Background().Error(err, "Failed to look up a pod; it counts as before", "pod", klog.KObj(counted.Object))
	}
	return pod
}

// podsOf returns those of some pods that exist, as they are now.
func (d *Dispatcher) podsOf(uids []string) (pods []*v1.Pod) {
	for _, uid := range uids {
		if pod := d.known(types.UID(uid)); pod != nil {
			pods = append(pods, pod)
		}
	}
	return pods
}

// recount counts a pod as part of the job that it is in.
func (d *Dispatcher) recount(pod *v1.Pod) {
	before, _ := d.book.Counted(string(pod.UID))
	d.count(pod, before.Job)
}

// reenter makes a waiting job wait with what it asks for now.
func (d *Dispatcher) reenter(job string) {
	if pod := d.known(types.UID(d.book.WaitingPod(job))); pod != nil {
		if want, undecided := d.gangs.Wants(pod); undecided {
			d.book.Offer(d.job(job, pod, want), d.moment())
		}
	}
}

// QueueOf returns the queue of a pod; empty where its profile has no queues.
func (d *Dispatcher) QueueOf(pod *v1.Pod) string {
	defer d.lock()()
	if _, ours := d.handles[pod.Spec.SchedulerName]; !ours {
		return ""
	}
	return d.queueOf(pod)
}

func (d *Dispatcher) queueOf(pod *v1.Pod) string {
	return gangstate.QueueOf(pod,
		func(key gangstate.Key) string { return d.gangs.QueueOf(pod.Spec.SchedulerName, key) },
		func(name string) string {
			namespace, err := d.namespaces.Get(name)
			switch {
			case apierrors.IsNotFound(err):
				return "" // the namespace is gone, and its pods are being deleted
			case err != nil:
				klog.Background().Error(err, "Failed to look up a namespace; its pods stay in their queue", "namespace", name)
				before, _ := d.book.Counted(string(pod.UID))
				return before.Queue
			}
			return namespace.Annotations[v1alpha1.QueueLabel]
		})
}

// reserve notes that a pod has a node.
func (d *Dispatcher) reserve(pod *v1.Pod, node string) {
	defer d.lock()()
	delete(d.places, pod.UID) // the pod is there now
	if now, err := d.there(pod.Namespace, pod.Name, pod.UID); now != nil || err != nil {
		d.assumed[pod.UID] = node
	}
	if now := d.current(pod); now != nil {
		d.recount(now)
	}
	d.changed()
}

// unreserve notes that a pod has given its node back.
func (d *Dispatcher) unreserve(logger klog.Logger, pod *v1.Pod) {
	defer d.lock()()
	delete(d.assumed, pod.UID)
	if now := d.current(pod); now != nil {
		d.syncHold(pod.UID)
		d.recount(now)
	}
	d.changed()
	logger.V(4).Info("Pod waits again", "pod", klog.KObj(pod))
}
