package eviction

import (
	"context"
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// Mark says in a pod's status that it is being evicted, before it is. One that has ended by
// itself is left alone: its owner counts it, and there is no room to make. It returns Ends
// where the pod is to be deleted now.
func (e *Evictor) Mark(ctx context.Context, pod *v1.Pod) (Outcome, error) {
	now, gone, err := e.setTarget(ctx, pod, v1.ConditionTrue, e.Words.Reason, e.Words.Message, e.Profile)
	switch {
	case gone || err != nil:
		return WasGone, err
	case podutil.IsPodTerminal(now):
		e.Unmark(ctx, pod)
		return RunsOn, nil
	default:
		return Ends, nil
	}
}

// Unmark takes a mark back. One that fails is taken back later, by Finish.
func (e *Evictor) Unmark(ctx context.Context, pod *v1.Pod) {
	if _, _, err := e.setTarget(ctx, pod, v1.ConditionFalse, e.Words.WithdrawnReason, e.Words.WithdrawnMessage, e.Words.WithdrawnReason); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to take back that a pod is being evicted; trying again", "pod", klog.KObj(pod))
	}
}

// setTarget writes two conditions: DisruptionTarget, which everybody knows, and our own. It
// returns the pod as it is then.
func (e *Evictor) setTarget(ctx context.Context, pod *v1.Pod, is v1.ConditionStatus, reason, message, own string) (now *v1.Pod, gone bool, err error) {
	condition := func(kind v1.PodConditionType, reason, message string) v1.PodCondition {
		return v1.PodCondition{
			Type: kind, Status: is, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(e.Clock.Now()),
			ObservedGeneration: podutil.CalculatePodConditionObservedGeneration(&pod.Status, pod.Generation, kind),
		}
	}
	// The message is for schedulers of an earlier version, see MarkedBy.
	now, gone, err = PatchStatus(ctx, e.Client, pod, map[string]any{"conditions": []v1.PodCondition{
		condition(v1.DisruptionTarget, reason, message), condition(v1alpha1.PodEvicting, own, e.Profile),
	}})
	if err != nil {
		return nil, false, fmt.Errorf("marking pod %s: %w", klog.KObj(pod), err)
	}
	return now, gone, nil
}

// PatchStatus merges fields into the status of a pod of this UID, and returns the pod. It
// reports whether there is none of its UID any more.
func PatchStatus(ctx context.Context, client corev1client.PodsGetter, pod *v1.Pod, status map[string]any) (now *v1.Pod, gone bool, err error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return nil, false, fmt.Errorf("encoding a patch: %w", err)
	}
	now, err = client.Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	gone, err = isGone(ctx, client, pod, err)
	return now, gone, err
}

// Marked reports whether this profile has begun to evict a pod that runs on.
func (e *Evictor) Marked(pod *v1.Pod) bool {
	return pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil && MarkedBy(pod) == e.Profile
}

// MarkedBy is the profile that has begun to evict a pod: the reason of our condition. It is
// empty where none has. Earlier versions gave the same reason for all, and the profile as the
// message.
func MarkedBy(pod *v1.Pod) string {
	_, mark := podutil.GetPodCondition(&pod.Status, v1alpha1.PodEvicting)
	switch {
	case mark == nil || mark.Status != v1.ConditionTrue:
		return ""
	case mark.Reason == v1.PodReasonPreemptionByScheduler:
		return mark.Message
	default:
		return mark.Reason
	}
}
