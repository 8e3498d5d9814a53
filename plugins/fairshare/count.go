package fairshare

import (
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/internal/dispatch"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/internal/pool"
	"github.com/lockstep-sh/lockstep/plugins/internal/resource"
)

// current returns the last known version of a pod; nil if it is gone or has ended. The
// scheduler and the gangs may still use an older version for a while, or a pod that is gone.
func (d *Dispatcher) current(pod *v1.Pod) *v1.Pod {
	now, err := d.find(pod.Namespace, pod.Name, pod.UID)
	if err != nil {
		klog.Background().Error(err, "Failed to look up a pod; going on with what is known of it", "pod", klog.KObj(pod))
		return pod
	}
	return now
}

// find looks up a pod; nil if it is gone or has ended.
func (d *Dispatcher) find(namespace, name string, uid types.UID) (*v1.Pod, error) {
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

// count adds a pod, in its current version, to the book, as part of a job, and returns what
// is counted: what it has in the pool of its node or of the node that is held for it, or what it
// asks for in each pool that it may use.
func (d *Dispatcher) count(pod *v1.Pod, job string) dispatch.Usage {
	before, known := d.book.Counted(string(pod.UID))
	s := d.see(pod)
	at := d.place(pod)
	now := dispatch.Usage{
		Queue: d.queueOf(pod), Job: job, Group: groupOf(pod), Priority: corev1helpers.PodPriority(pod), Demand: before.Demand,
		Runs: pod.Spec.NodeName != "" || d.assumed[pod.UID] != "", Promised: at.Nominated(), Held: at.Planned,
	}
	if !known && job == "" && now.Group != "" && at.Node == "" {
		now.Demand = dispatch.Hopeless // its gang asks for nothing before it is complete
	}
	now.Amount, now.Or = d.nodes.Charge(s.amount, s.kind, s.node)
	if !known || !before.Equal(now) {
		d.book.Count(string(pod.UID), now)
		d.members.move(pod.UID, before.Group, now.Group)
		d.moved(pod.UID)
	}
	return now
}

// see remembers a pod as it is now.
func (d *Dispatcher) see(pod *v1.Pod) sighting {
	s, known := d.seen[pod.UID]
	last := s
	if !known {
		s.namespace, s.name = pod.Namespace, pod.Name
		d.learn(pod.UID)
	}
	if !known || s.version != pod.ResourceVersion {
		s.version, s.amount = pod.ResourceVersion, amountOf(pod) // it may have been resized, or its resize is done
		if s.kind == nil || !d.nodes.Is(pod, s.kind) {
			before := s.kind
			s.kind = d.nodes.Enter(pod)
			d.kinds.move(pod.UID, before, s.kind)
			d.leaveKind(before)
			d.book.SetTotal(d.nodes.Total()) // more nodes may be of use
		}
	}
	switch s.node = pod.Spec.NodeName; {
	case s.node != "":
	case d.assumed[pod.UID] != "":
		s.node = d.assumed[pod.UID]
	default:
		s.node = d.place(pod).Node
	}
	d.on.move(pod.UID, last.node, s.node)
	d.use(last, s)
	d.seen[pod.UID] = s
	return s
}

// use updates what a pod has of nodes: of a node that takes no more pods, only what is in use is there to be shared.
func (d *Dispatcher) use(before, now sighting) {
	if before.node == now.node && maps.Equal(before.amount, now.amount) {
		return
	}
	gives := before.node != "" && d.nodes.Use(before.node, before.amount, -1)
	takes := now.node != "" && d.nodes.Use(now.node, now.amount, 1)
	if gives || takes {
		d.book.SetTotal(d.nodes.Total())
	}
}

// forget removes what is remembered of a pod that is gone.
func (d *Dispatcher) forget(uid types.UID) {
	if s, known := d.seen[uid]; known {
		delete(d.seen, uid)
		d.on.move(uid, s.node, "")
		d.use(s, sighting{})
		d.kinds.move(uid, s.kind, nil)
		d.leaveKind(s.kind)
	}
	delete(d.assumed, uid)
	delete(d.places, uid)
}

func (d *Dispatcher) leaveKind(kind *pool.Class) {
	if kind != nil {
		d.nodes.Leave(kind)
		d.book.SetTotal(d.nodes.Total())
	}
}

// rekind recounts pods that may use other pools of nodes than before.
func (d *Dispatcher) rekind(changed []*pool.Class) {
	uids := map[types.UID]bool{}
	for _, kind := range changed {
		for uid := range d.kinds[kind] {
			uids[uid] = true
		}
	}
	d.moveAll(uids)
}

// moveAll counts pods where they are now, and makes the jobs that they are part of wait there.
func (d *Dispatcher) moveAll(uids map[types.UID]bool) {
	jobs := map[string]bool{}
	for uid := range uids {
		if pod := d.known(uid); pod != nil {
			d.recount(pod)
			usage, _ := d.book.Counted(string(uid))
			jobs[usage.Job] = true
		}
	}
	for job := range jobs {
		d.reenter(job)
	}
}

// known returns a pod that is counted, as it is now; nil if it is gone.
func (d *Dispatcher) known(uid types.UID) *v1.Pod {
	s, ok := d.seen[uid]
	if !ok {
		return nil
	}
	pod, err := d.find(s.namespace, s.name, uid)
	if err != nil {
		klog.Background().Error(err, "Failed to look up a pod; it counts as before", "pod", klog.KRef(s.namespace, s.name))
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
	if pod := d.known(types.UID(d.book.Speaker(job))); pod != nil {
		if want, undecided := d.gangs.Wants(pod); undecided {
			d.book.Offer(d.job(job, pod, want), d.moment())
		}
	}
}

// amountOf returns what kube-scheduler counts for a pod.
func amountOf(pod *v1.Pod) dispatch.Vector {
	return resource.FromList(resource.Requests(pod))
}

// index has pods by what they are part of.
type index[K comparable] map[K]map[types.UID]bool

// move notes that a pod is part of something else; the zero value means nothing.
func (x index[K]) move(uid types.UID, from, to K) {
	var none K
	if delete(x[from], uid); len(x[from]) == 0 {
		delete(x, from)
	}
	if to == none {
		return
	}
	if x[to] == nil {
		x[to] = map[types.UID]bool{}
	}
	x[to][uid] = true
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
	return gang.QueueOf(pod,
		func(key gang.Key) string { return d.gangs.QueueOf(pod.Spec.SchedulerName, key) },
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
	if now := d.current(pod); now != nil {
		d.assumed[pod.UID] = node
		d.recount(now)
	}
	d.turn()
}

// unreserve notes that a pod has given its node back.
func (d *Dispatcher) unreserve(logger klog.Logger, pod *v1.Pod) {
	defer d.lock()()
	delete(d.assumed, pod.UID)
	if now := d.current(pod); now != nil {
		d.learn(pod.UID)
		d.recount(now)
	}
	d.turn()
	logger.V(4).Info("Pod waits again", "pod", klog.KObj(pod))
}
