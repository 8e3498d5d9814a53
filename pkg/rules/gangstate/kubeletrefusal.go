package gangstate

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// KubeletRefusal returns, for users, why the kubelet of its node did not take a pod; empty for any other pod. Kubelets
// refuse pods for which they have no room, whichever scheduler was faster. Such a pod has failed, with a reason, and no
// container of it is reported. It is no failure of its gang, which lacks a member until another is made.
func KubeletRefusal(pod *v1.Pod) string {
	status := &pod.Status
	if status.Phase != v1.PodFailed || pod.Spec.NodeName == "" || status.Reason == "" ||
		len(status.ContainerStatuses)+len(status.InitContainerStatuses) > 0 {
		return ""
	}
	text := fmt.Sprintf("Refused by the kubelet of %s: %s", pod.Spec.NodeName, status.Reason)
	if why := strings.TrimPrefix(status.Message, "Pod was rejected: "); why != "" {
		text += " (" + why + ")"
	}
	return text
}

// TextRefusedByKubelet is for pods that kubelets refused, the youngest of them with its refusal, for the aside of
// [TextIncomplete]; empty for none.
func TextRefusedByKubelet(pods []*v1.Pod) string {
	if len(pods) == 0 {
		return ""
	}
	last := slices.MaxFunc(pods, func(a, b *v1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return fmt.Sprintf("%d refused: pod %s: %s", len(pods), last.Name, KubeletRefusal(last))
}
