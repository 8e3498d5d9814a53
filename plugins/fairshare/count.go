package fairshare

import (
	"cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate/evictionrecord"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/usage"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// existingPod returns the last known version of a pod; nil if it is gone, has ended, or is being deleted without a
// node. The scheduler and the gangs may still use an older version for a while, or a pod that is gone.
func (d *Dispatcher) existingPod(pod *v1.Pod) *v1.Pod {
	now, err := d.pods.Pods(pod.Namespace).Get(pod.Name)
	if err != nil || now.UID != pod.UID || objectstate.HasEnded(now) || d.isWithdrawn(now) {
		return nil // a lister knows no other error than that something is not there
	}
	return now
}

// isWithdrawn reports whether a pod has no node and will not get one: it is being deleted.
func (d *Dispatcher) isWithdrawn(pod *v1.Pod) bool {
	return d.nodeOf(pod) == "" && !objectstate.AwaitsNode(pod)
}

// nodeOf returns the node that a pod has, or that the scheduler has given to it; empty for none.
func (d *Dispatcher) nodeOf(pod *v1.Pod) string { return cmp.Or(pod.Spec.NodeName, d.assumed[pod.UID]) }

// schedulablePod is existingPod, but nil also if the pod cannot be scheduled as it is: it counts nowhere then.
func (d *Dispatcher) schedulablePod(pod *v1.Pod) *v1.Pod {
	if now := d.existingPod(pod); now != nil && gangspec.CheckPod(now) == nil {
		return now
	}
	return nil
}

// pendingPod is schedulablePod, but nil also if the pod does not wait for a node.
func (d *Dispatcher) pendingPod(pod *v1.Pod) *v1.Pod {
	if now := d.schedulablePod(pod); now != nil && objectstate.AwaitsNode(now) {
		return now
	}
	return nil
}

// count adds a pod, in its current version, to the book, as part of a job.
func (d *Dispatcher) count(pod *v1.Pod, job string) {
	before, counted := d.usage.Pod(pod.UID)
	if !counted {
		d.syncHold(pod.UID)
	}
	d.naming.Move(pod.UID, nameOf(before.Object), nameOf(pod))
	at, has := d.place(pod), d.nodeOf(pod)
	d.usage.Count(pod, usage.Place{Node: cmp.Or(has, at.Node), Runs: has != "",
		Promised: at.Nominated(), Held: at.Planned}, job)
}

// nameOf returns the name of the gang that a pod names; empty for none, or no pod.
func nameOf(pod *v1.Pod) string {
	if pod == nil {
		return ""
	}
	if key, _, ok := gangspec.KeyOf(pod); ok {
		return key.In(pod.Spec.SchedulerName)
	}
	return ""
}

// counting is what the counter of usages asks the Dispatcher. The lock is held.
type counting struct{ d *Dispatcher }

var _ usage.Caller = counting{}

// Ours implements usage.Caller.
func (c counting) Ours(schedulerName string) bool {
	return c.d.served[schedulerName]
}

// QueueOf implements usage.Caller.
func (c counting) QueueOf(pod *v1.Pod) string { return c.d.queueOf(pod) }

// GangOf implements usage.Caller.
func (c counting) GangOf(pod *v1.Pod) (gangspec.Key, bool) { return c.d.gangs.GangOf(pod) }

// HeldChanged implements usage.Caller: everything that a waiting job asks for may be held for it now.
func (c counting) HeldChanged() { c.d.recheck() }

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
		if pod := d.countedPod(uid); pod != nil {
			d.recount(pod)
			now, _ := d.book.Counted(string(uid))
			jobs[now.Job] = true
		}
	}
	for job := range jobs {
		d.reenter(job)
	}
}

// countedPod returns a pod that is counted, as it is now; nil if it is gone.
func (d *Dispatcher) countedPod(uid types.UID) *v1.Pod {
	if counted, ok := d.usage.Pod(uid); ok {
		return d.schedulablePod(counted.Object)
	}
	return nil
}

// podsOf returns those of some pods that exist, as they are now.
func (d *Dispatcher) podsOf(uids []string) (pods []*v1.Pod) {
	for _, uid := range uids {
		if pod := d.countedPod(types.UID(uid)); pod != nil {
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
	if pod := d.countedPod(types.UID(d.book.Representative(job))); pod != nil {
		if want, undecided := d.gangs.Wants(pod); undecided {
			d.book.Offer(d.job(job, pod, want), d.moment())
		}
	}
}

// EvictedDemand returns what some pods of a gang have that are about to be evicted, which their queue asks for until
// they are made again; nothing where it does not.
func (d *Dispatcher) EvictedDemand(pods []*v1.Pod) evictionrecord.Demand {
	defer d.lock()()
	first, had := pods[0], resource.Vector{}
	if !d.served[first.Spec.SchedulerName] || d.args.EvictedHold.Duration == 0 {
		return evictionrecord.Demand{}
	}
	for _, pod := range pods {
		if u, counted := d.book.Counted(string(pod.UID)); counted && u.Runs {
			had.Add(u.Amount, 1)
		}
	}
	return evictionrecord.Demand{Scheduler: first.Spec.SchedulerName, Queue: d.queueOf(first), Requests: had.ByPool()}
}

// QueueOf returns the queue of a pod; empty where its profile has no queues.
func (d *Dispatcher) QueueOf(pod *v1.Pod) string {
	defer d.lock()()
	if !d.served[pod.Spec.SchedulerName] {
		return ""
	}
	return d.queueOf(pod)
}

func (d *Dispatcher) queueOf(pod *v1.Pod) string {
	return gangspec.QueueOf(pod,
		func(key gangspec.Key) gangspec.PodGroups { return d.gangs.PodGroups(pod.Spec.SchedulerName, key) },
		func(name string) string {
			namespace, err := d.namespaces.Get(name)
			if err != nil {
				return "" // the namespace is gone, and its pods are being deleted
			}
			return namespace.Annotations[v1alpha1.QueueLabel]
		})
}

// reserve notes that a pod has a node.
func (d *Dispatcher) reserve(pod *v1.Pod, node string) {
	defer d.lock()()
	delete(d.places, pod.UID) // the pod is there now
	if d.existingPod(pod) != nil {
		d.assumed[pod.UID] = node
	}
	if now := d.schedulablePod(pod); now != nil {
		d.recount(now)
	}
	d.changed()
}

// unreserve notes that a pod has given its node back.
func (d *Dispatcher) unreserve(logger klog.Logger, pod *v1.Pod) {
	defer d.lock()()
	delete(d.assumed, pod.UID)
	if now := d.schedulablePod(pod); now != nil {
		d.syncHold(pod.UID)
		d.recount(now)
	} else {
		d.drop(pod.UID)
	}
	d.changed()
	logger.V(4).Info("Pod waits again", "pod", klog.KObj(pod))
}
