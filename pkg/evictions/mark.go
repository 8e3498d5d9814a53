package evictions

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
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
)

// mark is the message of the condition PodEvicting.
type mark struct {
	// Of is how many pods its gang, and the gangs that start together with it, had on nodes when all of them were chosen;
	// 0 if the pod is evicted alone.
	Of int `json:"of,omitempty"`
}

// Mark records in a pod's status that it is being evicted, before it is. of is how many pods its gang, and the gangs
// that start together with it, have on nodes if all of them are evicted; 0 if the pod is evicted alone. A pod that has
// ended is left alone: its owner counts it, and it takes no capacity. Mark returns Ends if the pod must be deleted now.
func (e *Evictor) Mark(ctx context.Context, pod *v1.Pod, of int) (Outcome, error) {
	now, gone, err := e.setTarget(ctx, pod, v1.ConditionTrue, v1.PodReasonPreemptionByScheduler,
		"preempting to make room for a pod or gang that comes before it", e.Profile, mark{Of: of})
	switch {
	case gone || err != nil:
		if refuses(err) {
			e.Underway.recordRefusal(pod.UID, e.Clock.Now(), false)
		}
		return WasGone, err
	case objectstate.HasEnded(now):
		e.Unmark(ctx, pod)
		return RunsOn, nil
	default:
		return Ends, nil
	}
}

// Unmark takes a mark back. If that fails, Finish retries.
func (e *Evictor) Unmark(ctx context.Context, pod *v1.Pod) {
	if _, _, err := e.setTarget(ctx, pod, v1.ConditionFalse, ReasonWithdrawn, "the preemption was not carried out",
		ReasonWithdrawn, mark{}); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to take back that a pod is being evicted; trying again", "pod",
			klog.KObj(pod))
	}
}

// setTarget writes two conditions: the standard DisruptionTarget, with reason and why, and PodEvicting, with the reason
// own and a mark. It returns the updated pod.
func (e *Evictor) setTarget(ctx context.Context, pod *v1.Pod, is v1.ConditionStatus, reason, why, own string,
	m mark) (now *v1.Pod, gone bool, err error) {
	says, err := json.Marshal(m)
	if err != nil {
		return nil, false, fmt.Errorf("encoding the mark of pod %s: %w", klog.KObj(pod), err)
	}
	condition := func(kind v1.PodConditionType, reason, message string) v1.PodCondition {
		return v1.PodCondition{
			Type: kind, Status: is, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(e.Clock.Now()),
			ObservedGeneration: podutil.CalculatePodConditionObservedGeneration(&pod.Status, pod.Generation, kind),
		}
	}
	now, gone, err = PatchStatus(ctx, e.Client, pod, map[string]any{"conditions": []v1.PodCondition{
		condition(v1.DisruptionTarget, reason, e.Profile+": "+why), condition(v1alpha1.PodEvicting, own, string(says)),
	}})
	if err != nil {
		return nil, false, fmt.Errorf("marking pod %s: %w", klog.KObj(pod), err)
	}
	return now, gone, nil
}

// PatchStatus merges fields into the status of the pod with this UID, and returns the pod. gone reports that no such
// pod exists.
func PatchStatus(ctx context.Context, client corev1client.PodsGetter, pod *v1.Pod,
	status map[string]any) (now *v1.Pod, gone bool, err error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return nil, false, fmt.Errorf("encoding a patch: %w", err)
	}
	now, err = client.Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	gone, err = isGone(ctx, client, pod, err)
	return now, gone, err
}

// Marked reports whether this profile has begun to evict a pod that still runs.
func (e *Evictor) Marked(pod *v1.Pod) bool {
	return pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil && objectstate.EvictedBy(pod) == e.Profile
}

// markedOf returns how many pods its gang had on nodes when a pod was marked for the eviction of all of them; 0 if it
// was to be evicted alone, or the message cannot be parsed.
func markedOf(pod *v1.Pod) int {
	condition := objectstate.PodCondition(pod, v1alpha1.PodEvicting)
	var m mark
	if condition == nil || json.Unmarshal([]byte(condition.Message), &m) != nil {
		return 0
	}
	return m.Of
}
