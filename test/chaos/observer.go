package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/test/chaos/invariant"
	"github.com/lockstep-sh/lockstep/test/chaos/workload"
	"github.com/lockstep-sh/lockstep/test/harness/observe"
)

// observer feeds the checker, one observation at a time, and knows what users and faults need to know: which
// pods there are now, and when something is bound or evicted. It is safe for concurrent use.
type observer struct {
	check *invariant.Checker
	log   io.Writer

	observe.Board
	// unseen is how many kinds of objects were not listed yet.
	unseen int

	pods map[types.UID]*v1.Pod
	// busyAt is when a pod was last created, bound, marked, nominated, deleted, or ended.
	busyAt time.Time
	// waiting are the channels that are closed at the next such moment.
	waiting map[workload.Moment][]chan struct{}
}

func newObserver(config invariant.Config, log io.Writer) *observer {
	o := &observer{
		check: invariant.New(config), log: log, pods: map[types.UID]*v1.Pod{}, busyAt: time.Now(),
		waiting: map[workload.Moment][]chan struct{}{},
	}
	o.check.Log = func(at time.Time, object, text string) {
		_, _ = fmt.Fprintf(log, "%s %-28s %s\n", at.Format("15:04:05.000"), object, text) // a log that cannot be written is no finding
	}
	return o
}

// observe hands observations to the checker.
func (o *observer) observe(list ...invariant.Observation) {
	o.Lock()
	defer o.Unlock()
	for _, one := range list {
		o.check.Observe(time.Now(), one)
	}
}

// fault notes something that was done to the cluster.
func (o *observer) fault(format string, args ...any) {
	o.observe(invariant.Fault{Text: fmt.Sprintf(format, args...)})
}

// report hands on something that was found elsewhere.
func (o *observer) report(i invariant.Invariant, object, format string, args ...any) {
	o.Lock()
	defer o.Unlock()
	o.check.Report(i, object, format, args...)
}

// with calls f with the checker.
func (o *observer) with(f func(*invariant.Checker)) {
	o.Lock()
	defer o.Unlock()
	f(o.check)
}

// tickEvery is how often the checker gets the passing of time.
const tickEvery = 100 * time.Millisecond

func (o *observer) tick(ctx context.Context) {
	wait.UntilWithContext(ctx, func(context.Context) { o.observe(invariant.Tick{}) }, tickEvery)
}

// seePod takes in a pod that was created, changed or is gone.
func (o *observer) seePod(before, after *v1.Pod) {
	o.Lock()
	defer o.Unlock()
	if after == nil {
		delete(o.pods, before.UID)
		o.busyAt = time.Now()
		o.check.Observe(time.Now(), invariant.PodGone{Pod: before})
		return
	}
	o.change(before, after)
	o.pods[after.UID] = after
	o.check.Observe(time.Now(), invariant.PodSeen{Pod: after})
}

func (o *observer) podsListed(pods []*v1.Pod) {
	o.Lock()
	defer o.Unlock()
	o.pods, o.busyAt = map[types.UID]*v1.Pod{}, time.Now()
	for _, pod := range pods {
		o.pods[pod.UID] = pod
	}
	o.check.Observe(time.Now(), invariant.PodsListed{Pods: pods})
}

// change looks for moments, and for signs that the cluster is not quiet. The lock is held.
func (o *observer) change(before, now *v1.Pod) {
	if before == nil {
		before = &v1.Pod{}
		o.busyAt = time.Now()
	}
	if before.Spec.NodeName != now.Spec.NodeName || before.Status.Phase != now.Status.Phase || before.Status.NominatedNodeName != now.Status.NominatedNodeName ||
		(before.DeletionTimestamp == nil) != (now.DeletionTimestamp == nil) {
		o.busyAt = time.Now()
	}
	if before.Spec.NodeName == "" && now.Spec.NodeName != "" && isMember(now) && !o.any(now, func(p *v1.Pod) bool { return p.Spec.NodeName != "" }) {
		o.reached(workload.AtFirstBind)
	}
	if !beingMoved(before) && beingMoved(now) {
		o.reached(workload.AtMove)
	}
	if !beingEvicted(before) && beingEvicted(now) && !o.any(now, beingEvicted) {
		o.reached(workload.AtFirstEviction)
	}
}

// any reports whether another pod of the same gang is like that. The lock is held.
func (o *observer) any(of *v1.Pod, like func(*v1.Pod) bool) bool {
	for _, p := range o.pods {
		if p.UID != of.UID && p.Namespace == of.Namespace && p.Labels[workload.GangLabel] == of.Labels[workload.GangLabel] && p.DeletionTimestamp == nil && like(p) {
			return true
		}
	}
	return false
}

// isMember reports whether a pod is in a gang.
func isMember(p *v1.Pod) bool {
	return p.Labels[v1alpha1.PodGroupXLabel] != "" || p.Annotations[v1alpha1.GangNameAnnotation] != ""
}

func beingEvicted(p *v1.Pod) bool { return disrupted(p, v1.PodReasonPreemptionByScheduler) }

// beingMoved reports whether a pod was evicted by the Eviction API.
func beingMoved(p *v1.Pod) bool { return disrupted(p, "EvictionByEvictionAPI") }

func disrupted(p *v1.Pod, reason string) bool {
	_, c := podutil.GetPodCondition(&p.Status, v1.DisruptionTarget)
	return c != nil && c.Status == v1.ConditionTrue && c.Reason == reason
}

// reached closes the channels of a moment. The lock is held.
func (o *observer) reached(moment workload.Moment) {
	for _, channel := range o.waiting[moment] {
		close(channel)
	}
	delete(o.waiting, moment)
}

// next returns a channel that is closed at the next such moment.
func (o *observer) next(moment workload.Moment) <-chan struct{} {
	o.Lock()
	defer o.Unlock()
	channel := make(chan struct{})
	o.waiting[moment] = append(o.waiting[moment], channel)
	return channel
}

// members lists the pods of a gang that are not being deleted and are like that, by name.
func (o *observer) members(g *workload.Gang, like func(*v1.Pod) bool) []*v1.Pod {
	o.Lock()
	defer o.Unlock()
	var list []*v1.Pod
	for _, p := range o.pods {
		if p.Namespace == g.Namespace && p.Labels[workload.GangLabel] == g.Name && p.DeletionTimestamp == nil && like(p) {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b *v1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// quietSince returns when something last happened to a pod.
func (o *observer) quietSince() time.Time {
	o.Lock()
	defer o.Unlock()
	return o.busyAt
}

// count returns how many pods there are.
func (o *observer) count() int {
	o.Lock()
	defer o.Unlock()
	return len(o.pods)
}
