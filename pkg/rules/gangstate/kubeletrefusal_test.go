package gangstate

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestKubeletRefusal: a pod that its kubelet did not take, and what else ends pods.
func TestKubeletRefusal(t *testing.T) {
	on := func(node string, status v1.PodStatus) *v1.Pod {
		return &v1.Pod{Spec: v1.PodSpec{NodeName: node}, Status: status}
	}
	ran := []v1.ContainerStatus{{Name: "main"}}
	for name, tc := range map[string]struct {
		pod  *v1.Pod
		want string
	}{
		"no room": {on("n1", v1.PodStatus{Phase: v1.PodFailed, Reason: "OutOfcpu",
			Message: "Pod was rejected: Node didn't have enough resource: cpu, requested: 2000, used: 7000, capacity: 8000"}),
			"Refused by the kubelet of n1: OutOfcpu (Node didn't have enough resource: cpu, requested: 2000, used: 7000, capacity: 8000)"},
		"in other words": {on("n1", v1.PodStatus{Phase: v1.PodFailed, Reason: "UnexpectedAdmissionError", Message: "no device"}),
			"Refused by the kubelet of n1: UnexpectedAdmissionError (no device)"},
		"without words":       {on("n1", v1.PodStatus{Phase: v1.PodFailed, Reason: "OutOfpods"}), "Refused by the kubelet of n1: OutOfpods"},
		"evicted when it ran": {on("n1", v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted", ContainerStatuses: ran}), ""},
		"its init container did not end in time": {on("n1", v1.PodStatus{Phase: v1.PodFailed, Reason: "DeadlineExceeded",
			InitContainerStatuses: ran}), ""},
		"lost with its node":  {on("n1", v1.PodStatus{Phase: v1.PodFailed}), ""},
		"not taken yet":       {on("n1", v1.PodStatus{Phase: v1.PodPending, Reason: "NodeLost"}), ""},
		"failed without node": {on("", v1.PodStatus{Phase: v1.PodFailed, Reason: "OutOfcpu"}), ""},
	} {
		if got := KubeletRefusal(tc.pod); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
