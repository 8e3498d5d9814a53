package migration

import (
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/keys"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// ReservationFor returns the Reservation of the target of a PodMigration. No pod can use it before it is opened: its
// only owner is the pod to move, which runs elsewhere. queue is what the pod's PodGroup names; empty for none.
func ReservationFor(m *v1alpha1.PodMigration, pod *v1.Pod, queue string) *v1alpha1.Reservation {
	r := &v1alpha1.Reservation{
		ObjectMeta: metav1.ObjectMeta{
			Name: ReservationName(m), Labels: map[string]string{v1alpha1.MigrationLabel: string(m.UID)},
			Annotations: map[string]string{v1alpha1.InPlaceOfAnnotation: string(pod.UID)},
		},
		Spec: v1alpha1.ReservationSpec{
			Template: TemplateIn(queue, pod), Replicas: 1, NodeNames: []string{m.Spec.TargetNode},
			Owners: []v1alpha1.ReservationOwner{OwnerByUID(pod)},
		},
	}
	if plan := m.Labels[v1alpha1.PlanLabel]; plan != "" {
		r.Labels[v1alpha1.PlanLabel] = plan
	}
	return r
}

// OwnerByUID returns an owner that matches only this pod, not another one of its name.
func OwnerByUID(pod *v1.Pod) v1alpha1.ReservationOwner {
	return v1alpha1.ReservationOwner{Object: &v1alpha1.ReservationOwnerObject{Namespace: pod.Namespace, Name: pod.Name,
		UID: pod.UID}}
}

// ranks are the labels that tell a pod from others of its controller. Its successor has the same.
var ranks = []string{
	appsv1.PodIndexLabel, batchv1.JobCompletionIndexAnnotation, appsv1.StatefulSetPodNameLabel,
	v1alpha1.TrainingReplicaIndexLabel,
	v1alpha1.TrainingReplicaTypeLabel,
}

// places are the labels that identify a pod of an operator that recreates the controllers of its pods when it
// restarts a group: a successor is known by these, and not by its controller. The first names the owner.
var places = [][]string{
	{
		v1alpha1.JobSetNameLabel, v1alpha1.JobSetUIDLabel, v1alpha1.ReplicatedJobNameLabel, "jobset.sigs.k8s.io/job-index",
		batchv1.JobCompletionIndexAnnotation,
	},
	{v1alpha1.LeaderWorkerSetNameLabel, v1alpha1.LeaderWorkerGroupLabel, v1alpha1.LeaderWorkerIndexLabel},
}

// Successors returns the pods that may use the target at the eviction: those of the same controller, and of the same
// rank if they have one. It returns nil without a controller: then any pod of the name is the successor.
func Successors(pod *v1.Pod) *v1alpha1.MigrationSuccessors {
	ref := metav1.GetControllerOf(pod)
	if ref == nil {
		return nil
	}
	for _, keys := range places {
		if own := labelsOf(pod, keys); own[keys[0]] != "" {
			return &v1alpha1.MigrationSuccessors{MatchLabels: own}
		}
	}
	s := &v1alpha1.MigrationSuccessors{Controller: &v1alpha1.ReservationOwnerController{
		APIVersion: ref.APIVersion, Kind: ref.Kind, Namespace: pod.Namespace, Name: ref.Name, UID: ref.UID,
	}}
	if own := labelsOf(pod, ranks); len(own) > 0 {
		s.MatchLabels = own
	}
	return s
}

func labelsOf(pod *v1.Pod, keys []string) map[string]string {
	own := map[string]string{}
	for _, key := range keys {
		if value, ok := pod.Labels[key]; ok {
			own[key] = value
		}
	}
	return own
}

// OwnerFor returns the owner that may use the target of a PodMigration at the eviction. next is the pod that now has
// the name; if it is another pod, it is the owner. Without a controller the owner is any pod of the name.
func OwnerFor(m *v1alpha1.PodMigration, next *v1.Pod) v1alpha1.ReservationOwner {
	switch {
	case next != nil && next.UID != m.Spec.PodUID:
		return OwnerByUID(next)
	case m.Status.Successors != nil:
		owner := v1alpha1.ReservationOwner{Controller: m.Status.Successors.Controller}
		if own := m.Status.Successors.MatchLabels; len(own) > 0 {
			owner.LabelSelector, owner.Namespace = &metav1.LabelSelector{MatchLabels: own}, m.Namespace
		}
		return owner
	}
	return v1alpha1.ReservationOwner{Object: &v1alpha1.ReservationOwnerObject{Namespace: m.Namespace,
		Name: m.Spec.PodName}}
}

// SuccessorOf returns the pod that has come in place of one that has gone, and has got a node: the one on the target,
// if there are several. It returns nil for none, and while a pod that may use the target has no node. Where pods of a
// controller are alike, a new one may have come in place of any of them: which is the successor is known only once none
// is left that was there before.
func SuccessorOf(m *v1alpha1.PodMigration, pods []v1.Pod) (found *Successor) {
	gone := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.MigrationEvicted)
	if gone == nil || gone.Status == metav1.ConditionUnknown {
		return nil
	}
	alike := m.Status.Successors != nil && len(m.Status.Successors.MatchLabels) == 0
	for i := range pods {
		pod := &pods[i]
		ended := pod.DeletionTimestamp != nil || objectstate.HasEnded(pod)
		before := alike && pod.CreationTimestamp.Time.Before(gone.LastTransitionTime.Time)
		switch {
		case ended || pod.UID == m.Spec.PodUID || !mayUse(pod, m):
		case pod.Spec.NodeName == "" || before:
			return nil
		case found == nil || found.Node != m.Spec.TargetNode:
			found = &Successor{Name: pod.Name, UID: pod.UID, Node: pod.Spec.NodeName}
		}
	}
	return found
}

// mayUse reports whether a pod may use the target of a PodMigration at the eviction, as far as its controller, or its
// name, says.
func mayUse(pod *v1.Pod, m *v1alpha1.PodMigration) bool {
	if m.Status.Successors == nil {
		return pod.Name == m.Spec.PodName
	}
	return equality.Semantic.DeepEqual(Successors(pod), m.Status.Successors)
}

// IsOpen reports whether pods other than the one to move may use a Reservation.
func IsOpen(r *v1alpha1.Reservation, m *v1alpha1.PodMigration) bool {
	return slices.ContainsFunc(r.Spec.Owners, func(o v1alpha1.ReservationOwner) bool {
		return o.Object == nil || o.Object.UID != m.Spec.PodUID
	})
}

// IsObserved reports whether the scheduler knows a Reservation as it is now, with its owners.
func IsObserved(r *v1alpha1.Reservation) bool {
	c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ReservationScheduled)
	return c != nil && c.ObservedGeneration >= r.Generation
}

// WhyNot returns why a Reservation is not placed, or why it has ended.
func WhyNot(r *v1alpha1.Reservation) string {
	for _, kind := range []string{v1alpha1.ReservationScheduled, v1alpha1.ReservationReady} {
		if c := meta.FindStatusCondition(r.Status.Conditions, kind); c != nil && c.Status == metav1.ConditionFalse &&
			c.Message != "" {
			return c.Message
		}
	}
	return ""
}

// TemplateOf returns a template that asks of the scheduler what a pod asks, and never preempts.
func TemplateOf(pod *v1.Pod) v1.PodTemplateSpec {
	from := &pod.Spec
	t := v1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Labels: maps.Clone(pod.Labels),
			Annotations: maps.Clone(pod.Annotations)},
		Spec: v1.PodSpec{
			NodeSelector: from.NodeSelector, Affinity: from.Affinity.DeepCopy(), Tolerations: slices.Clone(from.Tolerations),
			TopologySpreadConstraints: slices.Clone(from.TopologySpreadConstraints), PriorityClassName: from.PriorityClassName,
			SchedulerName: from.SchedulerName, Overhead: from.Overhead, RuntimeClassName: from.RuntimeClassName,
			HostNetwork: from.HostNetwork, OS: from.OS, PreemptionPolicy: new(v1.PreemptNever),
			InitContainers: resource.AskingContainers(from.InitContainers),
			Containers:     resource.AskingContainers(from.Containers), Resources: from.Resources.DeepCopy(),
		},
	}
	for _, ignored := range keys.FindIgnored(keys.Pod, nil, t.Labels) {
		delete(t.Labels, ignored.Key) // a policy would refuse it
	}
	// The template is no member of the pod's gang, and has a node of its own.
	maps.DeleteFunc(t.Annotations, func(key, _ string) bool {
		return strings.HasPrefix(key, keys.Prefix) || strings.HasPrefix(key, keys.KoordinatorPrefix) ||
			strings.HasPrefix(key, "kubectl.kubernetes.io/")
	})
	return t
}

// TemplateIn is [TemplateOf] in the queue that the pod's PodGroup names; empty for none. A template is in no gang, so
// it names the queue itself.
func TemplateIn(queue string, pod *v1.Pod) v1.PodTemplateSpec {
	t := TemplateOf(pod)
	if queue != "" {
		metav1.SetMetaDataLabel(&t.ObjectMeta, v1alpha1.QueueLabel, queue)
	}
	return t
}
