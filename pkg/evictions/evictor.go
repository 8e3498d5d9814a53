package evictions

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/parallelize"
	"k8s.io/utils/clock"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/status"
)

// Evictor evicts pods. It is safe for concurrent use.
type Evictor struct {
	// Profile is the name in which pods are marked; no two processes that run at the same time share it.
	Profile  string
	Client   corev1client.PodsGetter
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Pod finds a pod by its UID, see [PodsByUID]. Pods lists the pods of a namespace.
	Pod  func(types.UID) (*v1.Pod, bool)
	Pods corev1listers.PodLister
	// InFlight finds the pods that have a node and are not bound to it yet.
	InFlight InFlight
	Gangs    Gangs
	// Underway is told about evictions that do not take place.
	Underway *ActivePreemptions
	Jobs     Jobs

	// unfinished are pods that were marked and still run: since when, a time.Time, by UID.
	unfinished sync.Map
}

// InFlight finds pods at Permit and at PreBind, as fwk.Handle does.
type InFlight interface {
	GetWaitingPod(types.UID) fwk.WaitingPod
	GetPodInPreBind(types.UID) fwk.PodInPreBind
}

// Plugin is the name of the plugin that evicts, GangPreemption.
const Plugin = "GangPreemption"

const (
	// EventPreempted is on an evicted pod: why this one.
	EventPreempted = "Preempted"
	// ActionPreempting is the action of events about evictions.
	ActionPreempting = "Preempting"
	// ReasonWithdrawn is the reason of the condition, now false, of pods that were marked and run on.
	ReasonWithdrawn = "PreemptionWithdrawn"
	// finishing is the note on pods whose eviction another process began.
	finishing = "completing an interrupted preemption of the gang"
)

// Outcome is the result of the eviction of a pod.
type Outcome int

// Outcomes.
const (
	// Ends: the API server is ending it.
	Ends Outcome = iota
	// WasGone: the pod no longer existed.
	WasGone
	// CalledOff: the pod was not on its node yet. Its binding was cancelled, and it is queued again; there will be no
	// deletion event.
	CalledOff
	// RunsOn: the pod no longer needs to be evicted.
	RunsOn
)

// Eviction is the eviction of one pod.
type Eviction struct {
	Pod *v1.Pod
	// From is the node on which it was chosen; empty if it is evicted on any node.
	From string
	// Marked: its status says already that it is being evicted. Otherwise Of is the argument for Mark.
	Marked bool
	Of     int
	// LeftToOwner: its Job was suspended, so the Job controller deletes it.
	LeftToOwner bool
	// Needed reports whether it must still be evicted; nil if it must in any case.
	Needed func() bool
	// For is the pod that it makes room for; nil for none. Note is the reason for the pod's users.
	For  *v1.Pod
	Note string
}

// Evict ends a victim of a preemption, and no other pod of its name. A pod that has lost its place meanwhile runs on,
// or waits. Evict marks the pod first unless it is marked, and then evicts it only if that is still needed.
func (e *Evictor) Evict(ctx context.Context, p *Preemption, one Eviction) (Outcome, error) {
	outcome, err := e.evict(ctx, one)
	switch {
	case err == nil && (outcome == Ends || outcome == WasGone):
	case refuses(err):
		e.Underway.recordRefusal(one.Pod.UID, e.Clock.Now(), false)
	default:
		e.Underway.ReleaseVictims(p, one.Pod.UID)
	}
	if err != nil {
		return outcome, fmt.Errorf("evicting pod %s: %w", klog.KObj(one.Pod), err)
	}
	return outcome, nil
}

func (e *Evictor) evict(ctx context.Context, one Eviction) (Outcome, error) {
	outcome, pod, note := Ends, one.Pod, one.Note
	switch {
	case e.callOff(pod):
		outcome, note = CalledOff, note+" (before it was on its node)"
	case !e.hasPlace(pod, one.From):
		return RunsOn, nil
	case one.LeftToOwner:
	default:
		if !one.Marked {
			if outcome, err := e.Mark(ctx, pod, one.Of); outcome != Ends || err != nil {
				return outcome, err
			}
			if one.Needed != nil && !one.Needed() {
				e.Unmark(ctx, pod)
				return RunsOn, nil
			}
		}
		if gone, err := e.delete(ctx, pod, metav1.DeleteOptions{}); gone || err != nil {
			return WasGone, err
		}
	}
	klog.FromContext(ctx).V(2).Info("Evicted pod", "pod", klog.KObj(pod), "node", pod.Spec.NodeName,
		"preemptor", klog.KObj(one.For))
	event := status.Event{On: pod, Type: v1.EventTypeNormal, Reason: EventPreempted, Action: ActionPreempting, Note: note}
	if one.For != nil { // a nil *v1.Pod would be a non-nil object
		event.Related = one.For
	}
	event.Record(e.Recorder)
	return outcome, nil
}

// callOff reports whether it cancelled the binding of a pod that is not on its node yet.
func (e *Evictor) callOff(pod *v1.Pod) bool {
	if waiting := e.InFlight.GetWaitingPod(pod.UID); waiting != nil {
		return waiting.Preempt(Plugin, "preempted")
	}
	if binding := e.InFlight.GetPodInPreBind(pod.UID); binding != nil {
		return binding.CancelPod("preempted by " + Plugin)
	}
	return false
}

// hasPlace reports whether a pod is on a node, or known to be on its way to one; on the given node, if any. It is true
// for a pod that the cache does not have: the API server decides.
func (e *Evictor) hasPlace(pod *v1.Pod, node string) bool {
	now, ok := e.Pod(pod.UID)
	if !ok {
		return true
	}
	if now.Spec.NodeName != "" {
		return node == "" || now.Spec.NodeName == node
	}
	of := OwnerOf(e.Gangs, now)
	if of.IsPod() {
		return false // if it is being bound after all, a preemptor that needs its place finds it there
	}
	return slices.ContainsFunc(e.Gangs.Running(of.Profile, of.Gang), func(f gangstate.RunningGang) bool {
		return slices.ContainsFunc(f.Running, func(p gangstate.Placed) bool {
			return p.Pod.UID == pod.UID && (node == "" || p.Node == node)
		})
	})
}

// delete deletes a pod. It reports whether the pod was gone already.
func (e *Evictor) delete(ctx context.Context, pod *v1.Pod, options metav1.DeleteOptions) (gone bool, err error) {
	options.Preconditions = metav1.NewUIDPreconditions(string(pod.UID))
	err = e.Client.Pods(pod.Namespace).Delete(ctx, pod.Name, options)
	if gone, err = isGone(ctx, e.Client, pod, err); err != nil {
		return false, fmt.Errorf("deleting pod %s: %w", klog.KObj(pod), err)
	}
	return gone, nil
}

// isGone reports whether the error of a call about a pod means that none of its UID exists. It returns any other error.
func isGone(ctx context.Context, client corev1client.PodsGetter, pod *v1.Pod, err error) (bool, error) {
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case apierrors.IsConflict(err), apierrors.IsInvalid(err):
		// Another pod of its name, or another conflict.
		now, readErr := client.Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(readErr) || readErr == nil && now.UID != pod.UID {
			return true, nil
		}
	}
	return false, err
}

// InParallel calls do n times, some at a time, and returns the errors.
func InParallel(ctx context.Context, n int, do func(int) error) []error {
	errs := make([]error, n)
	parallelize.NewParallelizer(parallelize.DefaultParallelism).Until(ctx, n, func(i int) { errs[i] = do(i) }, Plugin)
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

// stuckAfter is how long after its grace period a pod counts as stuck.
const stuckAfter = 30 * time.Second

// Stuck reports whether a pod should have ended long ago; a node that is down ends none.
func Stuck(pod *v1.Pod, now time.Time) bool {
	return pod.DeletionTimestamp != nil && now.Sub(pod.DeletionTimestamp.Time) > stuckAfter
}
