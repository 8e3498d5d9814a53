package eviction

import (
	"context"
	"fmt"
	"slices"
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
	"k8s.io/utils/clock"

	"github.com/lockstep-sh/lockstep/plugins/event"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
)

// Evictor evicts pods. It is safe for concurrent use.
type Evictor struct {
	// Profile is in whose name pods are marked; no two processes that run at the same time share it.
	Profile  string
	Client   corev1client.PodsGetter
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Pod finds a pod by its UID, see [PodsByUID]; Pods lists those of a namespace.
	Pod  func(types.UID) (*v1.Pod, bool)
	Pods corev1listers.PodLister
	// OnTheirWay finds the pods that have a node and are not bound to it yet; nil for none.
	OnTheirWay OnTheirWay
	Gangs      Gangs
	// Underway gets the evictions that do not take place.
	Underway *Underway
	Words    Words

	// unfinished are the pods that were marked and still run.
	unfinished since
}

// OnTheirWay finds pods at Permit and at PreBind, as fwk.Handle does.
type OnTheirWay interface {
	GetWaitingPod(types.UID) fwk.WaitingPod
	GetPodInPreBind(types.UID) fwk.PodInPreBind
}

// Words are the texts that users get from the plugin that evicts.
type Words struct {
	// Plugin is the plugin that calls off bindings.
	Plugin string
	// Begun is the condition DisruptionTarget of a pod that is being evicted, Withdrawn that of a pod that runs on after all.
	Begun, Withdrawn Condition
	// Evicted returns the event on a pod that is evicted, for a preemptor or nil. Finishing is its note where another
	// process has begun to evict the pod.
	Evicted   func(pod, preemptor *v1.Pod, note string) event.Event
	Finishing string
}

// Condition is the reason and message of a pod condition.
type Condition struct{ Reason, Message string }

// Outcome is the result of the eviction of a pod.
type Outcome int

// Outcomes.
const (
	// Ends: the API server is ending it.
	Ends Outcome = iota
	// WasGone: the pod no longer existed.
	WasGone
	// CalledOff: the pod was not on its node yet. Its binding was called off, and it waits in
	// the queue again; there will be no deletion event.
	CalledOff
	// RunsOn: the pod does not have to be evicted any more.
	RunsOn
)

// Turn is the eviction of a pod.
type Turn struct {
	Pod *v1.Pod
	// From is the node on which it was chosen; empty where it is evicted wherever it is.
	From string
	// Marked: its status already says that it is being evicted. Of is the argument for Mark where it
	// does not.
	Marked bool
	Of     int
	// Needed reports whether it still has to be evicted; nil if it has to in any case.
	Needed func() bool
	// For is the pod that it makes room for; nil for none. Note is the reason that the pod's users get.
	For  *v1.Pod
	Note string
}

// Evict ends a pod, and no other of its name. A pod that has lost its place by itself meanwhile
// runs on, or waits. A pod whose status does not say yet that it is being evicted is
// marked first; that is a call, and after it the pod is evicted only if that is still needed.
func (e *Evictor) Evict(ctx context.Context, one Turn) (Outcome, error) {
	outcome, err := e.end(ctx, one)
	switch {
	case err == nil && (outcome == Ends || outcome == WasGone):
	case refuses(err):
		e.Underway.refuse(one.Pod.UID, e.Clock.Now())
	default:
		e.Underway.Spared(one.Pod.UID)
	}
	if err != nil {
		return outcome, fmt.Errorf("evicting pod %s: %w", klog.KObj(one.Pod), err)
	}
	return outcome, nil
}

func (e *Evictor) end(ctx context.Context, one Turn) (Outcome, error) {
	outcome, pod, note := Ends, one.Pod, one.Note
	switch {
	case e.callOff(pod):
		outcome, note = CalledOff, note+" (before it was on its node)"
	case !e.hasPlace(pod, one.From):
		return RunsOn, nil
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
	klog.FromContext(ctx).V(2).Info("Evicted pod", "pod", klog.KObj(pod), "node", pod.Spec.NodeName, "preemptor", klog.KObj(one.For))
	e.Words.Evicted(pod, one.For, note).Record(e.Recorder)
	return outcome, nil
}

// Rehearse returns the error that the eviction of a pod would get, by a dry run.
func (e *Evictor) Rehearse(ctx context.Context, pod *v1.Pod) error {
	if pod.Spec.NodeName == "" {
		return nil // it is not on its node yet, and will be called off
	}
	_, err := e.delete(ctx, pod, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	if refuses(err) {
		e.Underway.refuse(pod.UID, e.Clock.Now())
	}
	return err
}

// callOff reports whether the binding of a pod that is not on its node yet was called off.
func (e *Evictor) callOff(pod *v1.Pod) bool {
	if e.OnTheirWay == nil {
		return false
	}
	if waiting := e.OnTheirWay.GetWaitingPod(pod.UID); waiting != nil {
		return waiting.Preempt(e.Words.Plugin, "preempted")
	}
	if binding := e.OnTheirWay.GetPodInPreBind(pod.UID); binding != nil {
		return binding.CancelPod("preempted by " + e.Words.Plugin)
	}
	return false
}

// hasPlace reports whether a pod is on a node, or is known to be on its way there; on this one,
// if any is given. It is true for a pod that is not in the cache any more: the API server decides.
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
		return false // if it is being bound nevertheless, a preemptor that needs its place finds it there
	}
	return slices.ContainsFunc(e.Gangs.Running(of.Profile, of.Gang), func(f gang.Footprint) bool {
		return slices.ContainsFunc(f.Running, func(p gang.Placed) bool {
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

// isGone reports whether the error of a call about a pod means that there is none of its
// UID any more. It returns any other error.
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

// refuses reports whether the API server would return the same the next time; other errors
// are temporary.
func refuses(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsUnauthorized(err)
}

// stuckAfter is how long after its grace period a pod counts as one that does not end.
const stuckAfter = 30 * time.Second

// Stuck reports whether a pod should have ended long ago: a node that is down ends none.
func Stuck(pod *v1.Pod, now time.Time) bool {
	return pod.DeletionTimestamp != nil && now.Sub(pod.DeletionTimestamp.Time) > stuckAfter
}
