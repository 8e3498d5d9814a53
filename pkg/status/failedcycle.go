package status

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/util"
)

// OverrideFailedCondition returns a profile for kube-scheduler's failure handler, which writes into the status of a
// pod that has failed its cycle why it did. To the handler each pod that a plugin refused is Unschedulable, which
// autoscalers take for a demand for nodes. correct gets a pod and the condition that the handler is about to write,
// and returns what it is to write instead; nil for nothing. Nominations are written in any case.
func OverrideFailedCondition(ctx context.Context, profile framework.Framework,
	correct func(*v1.Pod, *v1.PodCondition) *v1.PodCondition) framework.Framework {
	return &corrected{Framework: profile, calls: calls{APICacher: profile.APICacher(), ctx: ctx, profile: profile,
		correct: correct}}
}

// between is what goes between a message and kube-scheduler's own words, whose sentences end like this.
const between = ". "

// PrefixMessage returns a message with kube-scheduler's own words after it.
func PrefixMessage(message, words string) string { return message + between + words }

// corrected is a profile of which the calls for pods that failed are corrected.
type corrected struct {
	framework.Framework
	calls calls
}

// APICacher returns what the failure handler makes its calls through.
func (c *corrected) APICacher() fwk.APICacher { return &c.calls }

// calls makes the calls for one pod that failed, by kube-scheduler's own queue of calls where it has one.
type calls struct {
	fwk.APICacher                 // nil where calls are made at once
	ctx           context.Context // of the failure, since the interface passes none
	profile       framework.Framework
	correct       func(*v1.Pod, *v1.PodCondition) *v1.PodCondition
}

// PatchPodStatus writes what is true of the conditions, and the nomination.
func (c *calls) PatchPodStatus(pod *v1.Pod, conditions []*v1.PodCondition,
	nominating *fwk.NominatingInfo) (<-chan error, error) {
	var said []*v1.PodCondition
	for _, condition := range conditions {
		if corrected := c.correct(pod, condition); corrected != nil {
			said = append(said, corrected)
		}
	}
	if c.APICacher != nil {
		return c.APICacher.PatchPodStatus(pod, said, nominating)
	}
	status, changed := pod.Status.DeepCopy(), false
	for _, condition := range said {
		changed = podutil.UpdatePodCondition(status, condition) || changed
	}
	if nominating.Mode() == fwk.ModeOverride && status.NominatedNodeName != nominating.NominatedNodeName {
		status.NominatedNodeName, changed = nominating.NominatedNodeName, true
	}
	if !changed {
		return nil, nil
	}
	if err := util.PatchPodStatus(c.ctx, c.profile.ClientSet(), pod.Name, pod.Namespace, &pod.Status, status); err != nil {
		return nil, fmt.Errorf("writing why pod %s waits: %w", klog.KObj(pod), err)
	}
	return nil, nil
}
