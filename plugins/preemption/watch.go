package preemption

import (
	v1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/framework/watches"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
)

// watch restores, from the pods' statuses, the nominations that this process did not make: after a restart that is all
// of them.
func (pl *GangPreemption) watch() error {
	_, err := pl.Watches.ListenToPods(pl.fw.SharedInformerFactory(), watches.Nominations,
		watches.PodListener{Seen: pl.podChanged, Gone: pl.podDeleted})
	return err
}

func (pl *GangPreemption) podChanged(old, pod *v1.Pod) {
	pl.evictor.PodUpdated(pod)
	pl.ending.podChanged(pod)
	if pod.Spec.SchedulerName != pl.fw.ProfileName() {
		return
	}
	before := ""
	if old != nil {
		before = nomination(old)
	}
	node := nomination(pod)
	switch {
	case pod.Spec.NodeName != "":
		pl.firstMisses.Delete(pod.UID)
		pl.Holds.PodBound(pod.UID, pod.Spec.NodeName)
	case pod.DeletionTimestamp != nil:
		pl.Holds.DropNomination(pod.UID)
	case pod.Annotations[v1alpha1.TimeoutAnnotation] == "true":
		pl.Holds.DropNomination(pod.UID)
		if node != "" {
			pl.queueNomination(pod.UID)
		}
	case node != "" && node != before:
		now, exists := pl.evictor.Pod(pod.UID) // this listener may be late
		if !exists || now.DeletionTimestamp != nil || now.Spec.NodeName != "" {
			return
		}
		info, err := framework.NewPodInfo(pod)
		if err != nil {
			return // such a pod is never placed
		}
		demand := ledger.DemandOf(info)
		pl.Holds.Nominate(hold.Hold{
			For: pod.UID, Holder: hold.Holder{Profile: pl.fw.ProfileName(), Group: hold.SinglePod(pod.UID)}, Node: node,
			Priority: corev1helpers.PodPriority(pod), Request: demand.Request, Ports: demand.Ports, Recalled: true,
		})
	case node == "" && before != "":
		pl.Holds.DropRecalled(pod.UID)
	}
}

// nomination returns the node that a pod's status nominates it to; empty for a gated pod.
func nomination(pod *v1.Pod) string {
	if len(pod.Spec.SchedulingGates) > 0 {
		return ""
	}
	return pod.Status.NominatedNodeName
}

func (pl *GangPreemption) podDeleted(pod *v1.Pod) {
	pl.evictor.PodDeleted(pod)
	pl.ending.podDeleted(pod)
	pl.firstMisses.Delete(pod.UID)
	pl.Holds.DropNomination(pod.UID)
}
