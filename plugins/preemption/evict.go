package preemption

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
)

// ending is what came of the eviction of a pod.
type ending int

const (
	// ends: the API server ends it.
	ends ending = iota
	// wasGone: there was nothing to end any more.
	wasGone
	// calledOff: it was not on its node yet. Its binding was called off, and it waits in
	// the queue again; no deletion will tell.
	calledOff
	// runsOn: it need not go any more.
	runsOn
)

// turn is the eviction of a pod.
type turn struct {
	pod *v1.Pod
	// from is the node on which it was chosen; empty where it goes wherever it is.
	from string
	// marked: its status says already that it is being evicted.
	marked bool
	needed func() bool
}

// evict ends a pod, and no other of its name. note tells the pod's users why. A pod that has
// lost its place by itself meanwhile runs on, or waits. One of which the status does not say
// yet that it is being evicted is marked first; that is a call, and after it the pod goes only
// if that is still needed.
func (pl *GangPreemption) evict(ctx context.Context, one turn, preemptor *v1.Pod, note string) (ending, error) {
	result, pod := ends, one.pod
	switch {
	case pl.callOff(pod):
		result, note = calledOff, note+" (before it was on its node)"
	case !pl.hasPlace(pod, one.from):
		return runsOn, nil
	default:
		if !one.marked {
			if result, err := pl.mark(ctx, pod); result != ends || err != nil {
				return result, err
			}
			if !one.needed() {
				pl.unmark(ctx, pod)
				return runsOn, nil
			}
		}
		if gone, err := pl.delete(ctx, pod, metav1.DeleteOptions{}); gone || err != nil {
			return wasGone, err
		}
	}
	klog.FromContext(ctx).V(2).Info("Evicted pod", "pod", klog.KObj(pod), "node", pod.Spec.NodeName, "preemptor", klog.KObj(preemptor))
	pl.handle.EventRecorder().Eventf(pod, preemptor, v1.EventTypeNormal, EventPreempted, actionPreempting, "%s", note)
	return result, nil
}

// callOff reports whether the binding of a pod that is not on its node yet was called off.
func (pl *GangPreemption) callOff(pod *v1.Pod) bool {
	if waiting := pl.handle.GetWaitingPod(pod.UID); waiting != nil {
		return waiting.Preempt(Name, "preempted")
	}
	if binding := pl.handle.GetPodInPreBind(pod.UID); binding != nil {
		return binding.CancelPod("preempted by " + Name)
	}
	return false
}

// hasPlace reports whether a pod is on a node, or is known to be on its way there; on this one,
// if any is given. Of a pod that is not there any more the API server has the last word.
func (pl *GangPreemption) hasPlace(pod *v1.Pod, node string) bool {
	now, ok := pl.podByUID(pod.UID)
	if !ok {
		return true
	}
	if now.Spec.NodeName != "" {
		return node == "" || now.Spec.NodeName == node
	}
	of := ownerOf(now)
	if of.pod != "" {
		return false // if it is being bound all the same, whoever needs its place finds it there
	}
	return slices.ContainsFunc(pl.Roster.Running(of.profile, of.gang), func(f gang.Footprint) bool {
		return slices.ContainsFunc(f.Running, func(p gang.Placed) bool {
			return p.Pod.UID == pod.UID && (node == "" || p.Node == node)
		})
	})
}

// delete deletes a pod. It reports whether the pod was gone already.
func (pl *GangPreemption) delete(ctx context.Context, pod *v1.Pod, options metav1.DeleteOptions) (gone bool, err error) {
	options.Preconditions = metav1.NewUIDPreconditions(string(pod.UID))
	err = pl.handle.ClientSet().CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, options)
	if gone, err = pl.isGone(ctx, pod, err); err != nil {
		return false, fmt.Errorf("deleting pod %s: %w", klog.KObj(pod), err)
	}
	return gone, nil
}

// isGone reports whether the error of a call about a pod says that there is none of its
// UID any more. Any other error it returns.
func (pl *GangPreemption) isGone(ctx context.Context, pod *v1.Pod, err error) (bool, error) {
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case apierrors.IsConflict(err), apierrors.IsInvalid(err):
		// Another pod of its name, or something else that does not go together.
		now, readErr := pl.handle.ClientSet().CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(readErr) || readErr == nil && now.UID != pod.UID {
			return true, nil
		}
	}
	return false, err
}

// mark says in a pod's status that it is being evicted, before it is. One that has ended by
// itself is left alone: its owner counts it, and there is no room to make.
func (pl *GangPreemption) mark(ctx context.Context, pod *v1.Pod) (ending, error) {
	now, gone, err := pl.setTarget(ctx, pod, v1.ConditionTrue, v1.PodReasonPreemptionByScheduler, pl.fw.ProfileName()+": preempting to make room for a pod or gang that comes before it")
	switch {
	case gone || err != nil:
		return wasGone, err
	case podutil.IsPodTerminal(now):
		pl.unmark(ctx, pod)
		return runsOn, nil
	default:
		return ends, nil
	}
}

// ReasonWithdrawn is the reason of the conditions, false by then, of pods that were marked
// and run on.
const ReasonWithdrawn = "PreemptionWithdrawn"

// unmark takes a mark back. One that fails is taken back later, by finish.
func (pl *GangPreemption) unmark(ctx context.Context, pod *v1.Pod) {
	if _, _, err := pl.setTarget(ctx, pod, v1.ConditionFalse, ReasonWithdrawn, pl.fw.ProfileName()+": the preemption was not carried out"); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to take back that a pod is being evicted; trying again", "pod", klog.KObj(pod))
	}
}

// setTarget writes two conditions: DisruptionTarget, which everybody knows, and our own,
// whose message is the name of the profile that evicts and nothing else. It returns the pod as
// it is then.
func (pl *GangPreemption) setTarget(ctx context.Context, pod *v1.Pod, is v1.ConditionStatus, reason, message string) (now *v1.Pod, gone bool, err error) {
	condition := func(kind v1.PodConditionType, message string) v1.PodCondition {
		return v1.PodCondition{
			Type: kind, Status: is, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(pl.clock.Now()),
			ObservedGeneration: podutil.CalculatePodConditionObservedGeneration(&pod.Status, pod.Generation, kind),
		}
	}
	now, err = pl.patchStatus(ctx, pod, map[string]any{"conditions": []v1.PodCondition{
		condition(v1.DisruptionTarget, message), condition(v1alpha1.PodEvicting, pl.fw.ProfileName()),
	}})
	if gone, err = pl.isGone(ctx, pod, err); err != nil {
		return nil, false, fmt.Errorf("marking pod %s: %w", klog.KObj(pod), err)
	}
	return now, gone, nil
}

// patchStatus merges fields into the status of a pod of this UID, and returns the pod.
func (pl *GangPreemption) patchStatus(ctx context.Context, pod *v1.Pod, status map[string]any) (*v1.Pod, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return nil, fmt.Errorf("encoding a patch: %w", err)
	}
	return pl.handle.ClientSet().CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
}

// marked reports whether this profile has begun to evict a pod that runs on.
func (pl *GangPreemption) marked(pod *v1.Pod) bool {
	if pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil {
		return false
	}
	_, c := podutil.GetPodCondition(&pod.Status, v1alpha1.PodEvicting)
	return c != nil && c.Status == v1.ConditionTrue && c.Message == pl.fw.ProfileName()
}

// refuses reports whether the API server would answer the same the next time; other errors
// it returns when it is in trouble.
func refuses(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsUnauthorized(err)
}
