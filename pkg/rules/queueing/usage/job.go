package usage

import (
	v1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
)

// NameOf returns the name of the job that asks for what a pod is placed with.
func NameOf(pod *v1.Pod, want gangstate.PlacementRequest) string {
	switch name := pod.Spec.SchedulerName + "/" + want.Job; {
	case want.Job == "":
		return hold.SinglePod(pod.UID)
	case want.Alone:
		return name + "/" + string(pod.UID)
	default:
		return name
	}
}

// TitleOf returns the name of that job for users.
func TitleOf(pod *v1.Pod, want gangstate.PlacementRequest) string {
	if key, _, ok := gangspec.KeyOf(pod); ok && want.Job != "" {
		return "gang " + key.String()
	}
	return "pod " + pod.Namespace + "/" + pod.Name
}

// HoldersOf returns those for which pods may be evicted so that a pod is placed. A member that is all there is to place
// is placed by itself.
func HoldersOf(pod *v1.Pod, want gangstate.PlacementRequest) []hold.Holder {
	profile := pod.Spec.SchedulerName
	return []hold.Holder{{Profile: profile, Group: want.Job}, {Profile: profile, Group: hold.SinglePod(pod.UID)}}
}

// Job returns a job that a pod represents. It asks for what is counted of some of the pods that are placed with it:
// those that exist.
func (c *Counter) Job(name string, pod *v1.Pod, want gangstate.PlacementRequest, exist []*v1.Pod) queueing.Job {
	j := queueing.Job{
		Name: name, Title: TitleOf(pod, want), Holders: HoldersOf(pod, want), Queue: c.caller.QueueOf(pod),
		Pod: string(pod.UID), Together: want.Together(), Gang: c.GangOf(pod),
		Priority: corev1helpers.PodPriority(pod), Created: want.Created, Ready: want.Ready, Begun: want.Begun,
		NeverPreempts: want.Never,
	}
	if j.Created.IsZero() {
		j.Created = pod.CreationTimestamp.Time
	}
	for _, one := range want.Pods {
		j.Pods = append(j.Pods, string(one.UID))
		j.NeverPreempts = j.NeverPreempts || one.Spec.PreemptionPolicy != nil && *one.Spec.PreemptionPolicy == v1.PreemptNever
	}
	var asked []queueing.Usage
	for _, one := range exist {
		asked = append(asked, c.usageOf(one.UID))
	}
	j.Options = queueing.Options(asked)
	if want.Parts && len(asked) > 1 {
		j.Parts = queueing.Options(asked[:1])
	}
	return j
}
