package migration

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// ReservationFor returns the Reservation that holds the target of a pod's migration. Until it is opened no pod may use it: its
// only owner is the pod that runs elsewhere. queue is the one that the PodGroup of the pod names; empty for none.
func ReservationFor(m *v1alpha1.PodMigration, pod *v1.Pod, queue string) *v1alpha1.Reservation {
	r := &v1alpha1.Reservation{
		ObjectMeta: metav1.ObjectMeta{
			Name: ReservationName(m), Labels: map[string]string{v1alpha1.MigrationLabel: string(m.UID)},
			Annotations: map[string]string{v1alpha1.InPlaceOfAnnotation: string(pod.UID)},
		},
		Spec: v1alpha1.ReservationSpec{
			Template: TemplateIn(queue, pod), Replicas: 1, NodeNames: []string{m.Spec.TargetNode},
			Owners: []v1alpha1.ReservationOwner{ownerByUID(pod)},
		},
	}
	if plan := m.Labels[v1alpha1.PlanLabel]; plan != "" {
		r.Labels[v1alpha1.PlanLabel] = plan
	}
	return r
}

func ownerByUID(pod *v1.Pod) v1alpha1.ReservationOwner {
	return v1alpha1.ReservationOwner{Object: &v1alpha1.ReservationOwnerObject{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}}
}

// ranks are the labels that distinguish a pod from others of its controller. Its successor has the
// same.
var ranks = []string{
	"apps.kubernetes.io/pod-index", "batch.kubernetes.io/job-completion-index", "statefulset.kubernetes.io/pod-name", "training.kubeflow.org/replica-index",
	"training.kubeflow.org/replica-type",
}

// places are the labels that identify a pod of an operator that recreates the controllers of its pods when it
// restarts a group: a successor is known by these, and not by its controller. The first names the owner.
var places = [][]string{
	{
		"jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/jobset-uid", "jobset.sigs.k8s.io/replicatedjob-name", "jobset.sigs.k8s.io/job-index",
		"batch.kubernetes.io/job-completion-index",
	},
	{"leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/group-index", "leaderworkerset.sigs.k8s.io/worker-index"},
}

// Successors returns the pods that may use the target once the pod is to be evicted: pods of the same controller, of the
// same rank if they have one. nil if there is no controller: then the successor is whichever pod gets the name.
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

// OwnerFor returns the owner that may use the target of a PodMigration once its pod is to be evicted. next is the pod
// that has its name by now; if that is another pod, it is the owner. For a pod without a controller it is any pod of
// the name.
func OwnerFor(m *v1alpha1.PodMigration, next *v1.Pod) v1alpha1.ReservationOwner {
	switch {
	case next != nil && next.UID != m.Spec.PodUID:
		return ownerByUID(next)
	case m.Status.Successors != nil:
		owner := v1alpha1.ReservationOwner{Controller: m.Status.Successors.Controller}
		if own := m.Status.Successors.MatchLabels; len(own) > 0 {
			owner.LabelSelector, owner.Namespace = &metav1.LabelSelector{MatchLabels: own}, m.Namespace
		}
		return owner
	}
	return v1alpha1.ReservationOwner{Object: &v1alpha1.ReservationOwnerObject{Namespace: m.Namespace, Name: m.Spec.PodName}}
}

// IsOpen reports whether pods other than the one to move may use a Reservation.
func IsOpen(r *v1alpha1.Reservation, m *v1alpha1.PodMigration) bool {
	return slices.ContainsFunc(r.Spec.Owners, func(o v1alpha1.ReservationOwner) bool { return o.Object == nil || o.Object.UID != m.Spec.PodUID })
}

// WhyNot returns why a Reservation has no place, or why it has ended.
func WhyNot(r *v1alpha1.Reservation) string {
	for _, kind := range []string{v1alpha1.ReservationScheduled, v1alpha1.ReservationReady} {
		if c := meta.FindStatusCondition(r.Status.Conditions, kind); c != nil && c.Status == metav1.ConditionFalse && c.Message != "" {
			return c.Message
		}
	}
	return ""
}

// Ready reports whether no condition says that a node is not ready.
func Ready(node *v1.Node) bool {
	return !slices.ContainsFunc(node.Status.Conditions, func(c v1.NodeCondition) bool { return c.Type == v1.NodeReady && c.Status != v1.ConditionTrue })
}

// TemplateOf returns a template of a pod like another one, as far as scheduling goes: to be placed, and
// never to evict any pod.
func TemplateOf(pod *v1.Pod) v1.PodTemplateSpec {
	from := &pod.Spec
	t := v1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Labels: maps.Clone(pod.Labels), Annotations: maps.Clone(pod.Annotations)},
		Spec: v1.PodSpec{
			NodeSelector: from.NodeSelector, Affinity: from.Affinity.DeepCopy(), Tolerations: slices.Clone(from.Tolerations),
			TopologySpreadConstraints: slices.Clone(from.TopologySpreadConstraints), PriorityClassName: from.PriorityClassName,
			SchedulerName: from.SchedulerName, Overhead: from.Overhead, RuntimeClassName: from.RuntimeClassName,
			HostNetwork: from.HostNetwork, OS: from.OS, PreemptionPolicy: new(v1.PreemptNever),
			InitContainers: containers(from.InitContainers), Containers: containers(from.Containers), Resources: from.Resources.DeepCopy(),
		},
	}
	// A template is no member of the pod's gang, nor bound to where the other members have to be: it has its node.
	maps.DeleteFunc(t.Annotations, func(key, _ string) bool {
		return strings.HasPrefix(key, v1alpha1.GroupName+"/") || strings.HasPrefix(key, "gang.scheduling.koordinator.sh/") || strings.HasPrefix(key, "kubectl.kubernetes.io/")
	})
	return t
}

// TemplateIn returns [TemplateOf] of a pod, in the queue that the PodGroup of the pod names: a template is in no gang,
// and has to name the queue itself. Empty means that the PodGroup names none.
func TemplateIn(queue string, pod *v1.Pod) v1.PodTemplateSpec {
	t := TemplateOf(pod)
	if queue != "" {
		metav1.SetMetaDataLabel(&t.ObjectMeta, v1alpha1.QueueLabel, queue)
	}
	return t
}

// containers returns containers that ask for the same, and run nothing.
func containers(list []v1.Container) []v1.Container {
	var out []v1.Container
	for _, c := range list {
		out = append(out, v1.Container{Name: c.Name, Image: c.Image, Resources: *c.Resources.DeepCopy(), Ports: slices.Clone(c.Ports), RestartPolicy: c.RestartPolicy})
	}
	return out
}
