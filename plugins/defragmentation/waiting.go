package defragmentation

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/reservations/reservepods"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate/waitreason"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// demand is a gang, or a pod, that waits for room, or what a plan is to make room for in place of one.
type demand struct {
	// name is its name for users.
	name     string
	goal     v1alpha1.DefragmentationGoal
	attempt  *gangstate.Attempt
	fw       framework.Framework
	priority int32
	// since is when the scheduler first reported that there is no room.
	since time.Time
	// maxMoves and maxGangs bound what a plan for it may cost; 0 for maxGangs means none.
	maxMoves, maxGangs int
	// asks: it asks for the resource that lies in fragments. For others moves are sought only if a plan asks for them.
	asks bool
	// promised: room is being made for it already.
	promised bool
	// minGain is what a plan for it has to gain, in percent; with 0 any gain will do.
	minGain int64
	// more: more gangs of a shape are to fit than do now, and none of them exists yet.
	more bool
}

// waits reports whether a gang or a pod waits: otherwise what is freed is not held.
func (d *demand) waits() bool { return d.goal.PodGroup != "" || d.goal.Pod != nil }

// isFor reports whether a goal makes room for the demand.
func (d *demand) isFor(goal v1alpha1.DefragmentationGoal) bool {
	switch {
	case goal.PodGroup != "":
		return slices.ContainsFunc(d.attempt.Gangs, func(n gangstate.Need) bool { return goal.PodGroup == n.Key.String() })
	case goal.Pod != nil:
		return d.goal.Pod != nil && d.goal.Pod.UID == goal.Pod.UID
	}
	return false
}

// waiting returns the demands for which the scheduler has reported that there is no room, by rank: 1. priority, high
// first; 2. how long they wait, the longest first; 3. name.
func (pl *Defragmentation) waiting() []*demand {
	var list []*demand
	for _, name := range sortedKeys(pl.scheduler.Profiles) {
		fw := pl.scheduler.Profiles[name]
		for _, attempt := range pl.scheduler.Gangs.Waiting(name) {
			key := attempt.Gangs[0].Key.String()
			d := &demand{name: fmt.Sprintf("gang %q", key), goal: v1alpha1.DefragmentationGoal{PodGroup: key}, attempt: attempt,
				fw: fw, priority: attempt.Priority()}
			for _, need := range attempt.Gangs {
				for _, pod := range need.Pending {
					d.addPod(pod, pl.args.ResourceType)
				}
			}
			list = append(list, d)
		}
		pods, err := fw.SharedInformerFactory().Core().V1().Pods().Lister().List(labels.Everything())
		if err != nil {
			continue // a cache does not fail
		}
		for _, pod := range pods {
			if pod.Spec.SchedulerName != name || !objectstate.AwaitsNode(pod) || reservepods.IsReservePod(pod) {
				continue
			}
			if pl.scheduler.Gangs.InNoGang(pod) {
				d := singleDemand(fw, pod)
				d.addPod(pod, pl.args.ResourceType)
				list = append(list, d)
			}
		}
	}
	list = slices.DeleteFunc(list, func(d *demand) bool { return d.since.IsZero() || d.promised })
	slices.SortFunc(list, func(a, b *demand) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), a.since.Compare(b.since), cmp.Compare(a.name, b.name))
	})
	return list
}

// singleDemand returns the demand of a pod in no gang.
func singleDemand(fw framework.Framework, pod *v1.Pod) *demand {
	return &demand{
		name: fmt.Sprintf("pod %q", pod.Namespace+"/"+pod.Name),
		goal: v1alpha1.DefragmentationGoal{Pod: &v1alpha1.ReservationOwnerObject{Namespace: pod.Namespace,
			Name: pod.Name, UID: pod.UID}},
		attempt:  gangstate.SinglePodAttempt(pod, gangstate.Need{}),
		fw:       fw,
		priority: corev1helpers.PodPriority(pod),
	}
}

// addPod adds whether a pod asks for a resource, and since when it is reported to have no room.
func (d *demand) addPod(pod *v1.Pod, name v1.ResourceName) {
	d.promised = d.promised || pod.Status.NominatedNodeName != ""
	_, asks := resource.Requests(pod)[name]
	d.asks = d.asks || asks
	c := objectstate.WaitCondition(pod)
	if c == nil || !waitreason.RoomHelps(c.Reason) {
		return
	}
	if d.since.IsZero() || c.LastTransitionTime.Time.Before(d.since) {
		d.since = c.LastTransitionTime.Time
	}
}
