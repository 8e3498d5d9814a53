// Package members makes the pods and the PodGroup of one gang for tests, in the states that its status depends on.
package members

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// Key is the gang; Epoch is when the first of its pods was created, a second before the next.
var (
	Epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	Key   = gangspec.Key{Namespace: "team", Name: "train"}
)

// Pods returns pods from a word for each. A word is "waiting", "gated", "claimless", "impossible", "refused",
// "expired", "bound", "running", "succeeded", "failed" or "refused by kubelet".
func Pods(words ...string) []*v1.Pod {
	list := make([]*v1.Pod, len(words))
	for i, word := range words {
		list[i] = Pod(i, word)
	}
	return list
}

// Pod returns the pod of index i, from a word.
func Pod(i int, word string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: Key.Namespace, Name: fmt.Sprintf("train-%d", i), UID: types.UID(fmt.Sprintf("uid-%d", i)),
		CreationTimestamp: metav1.NewTime(Epoch.Add(time.Duration(i) * time.Second)),
		Labels:            map[string]string{v1alpha1.PodGroupLabel: Key.Name},
		Annotations:       map[string]string{},
	}}
	p.Status.Phase = v1.PodPending
	switch word {
	case "waiting":
		return p
	case "gated":
		p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/gate"}}
		return p
	case "claimless":
		template := "gpu"
		p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &template}}
		return p
	case "impossible":
		p.Spec.Containers = []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1e18")}}}}
		return p
	case "refused":
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable}}
		return p
	case "expired":
		p.Annotations[v1alpha1.TimeoutAnnotation] = "true"
		return p
	}
	p.Spec.NodeName = "node"
	p.Status.Phase = map[string]v1.PodPhase{
		"bound": v1.PodPending, "running": v1.PodRunning, "succeeded": v1.PodSucceeded, "failed": v1.PodFailed, "refused by kubelet": v1.PodFailed,
	}[word]
	if word == "refused by kubelet" {
		p.Status.Reason, p.Status.Message = "OutOfcpu", "Pod was rejected: no cpu"
	}
	if p.Status.Phase == "" {
		panic(word)
	}
	return p
}

// With changes pods, and returns them.
func With(list []*v1.Pod, change func(i int, p *v1.Pod)) []*v1.Pod {
	for i, p := range list {
		change(i, p)
	}
	return list
}

// PodGroup returns the PodGroup of the gang, in the phase that it was in.
func PodGroup(minMember int32, was schedulingv1alpha1.PodGroupPhase) *coscheduling.PodGroup {
	pg := &coscheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: Key.Namespace, Name: Key.Name, Generation: 1}}
	pg.Spec.MinMember = minMember
	pg.Status.Phase = was
	return pg
}
