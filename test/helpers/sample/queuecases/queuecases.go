// Package queuecases has cases of the queue that a pod is in, to which everything is held that says it: the scheduler,
// the status of queues, what kubectl gang and the page show, and the controllers that move pods.
package queuecases

import (
	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

const (
	// Namespace is the namespace of the pods and the PodGroups, Name the name of the PodGroups.
	Namespace, Name = "team", "train"
	// OfNamespace is the queue that the namespace names.
	OfNamespace = "of-namespace"
)

// Case is a pod that waits, and the PodGroups of its namespace, each of which may be nil.
type Case struct {
	Pod       *v1.Pod
	Community *coscheduling.PodGroup
	Native    *schedulingv1beta1.PodGroup
	// InGang: the pod is in a gang.
	InGang bool
	// Want is the queue of the pod. Named is the one that its PodGroup names for it; empty for none, or if the pod does.
	Want, Named string
}

// The queues that PodGroups name in the cases.
const ofCommunity, ofNative = "of-community", "of-native"

// Cases returns the cases, by what they show.
func Cases() map[string]Case {
	own := joining(byLabel)
	own.Labels[v1alpha1.QueueLabel] = "own"
	return map[string]Case{
		"a gang by label is in the queue of its PodGroup": {
			Pod: joining(byLabel), Community: community(ofCommunity), InGang: true, Want: ofCommunity, Named: ofCommunity},
		"its own label is first": {
			Pod: own, Community: community(ofCommunity), InGang: true, Want: "own"},
		"of two PodGroups of a gang the community's is first": {
			Pod: joining(byLabel), Community: community(ofCommunity), Native: gang(ofNative), InGang: true, Want: ofCommunity, Named: ofCommunity},
		"also for a pod that names the native one": {
			Pod: joining(byGroup), Community: community(ofCommunity), Native: gang(ofNative), InGang: true, Want: ofCommunity, Named: ofCommunity},
		"the native one is second": {
			Pod: joining(byLabel), Community: community(""), Native: gang(ofNative), InGang: true, Want: ofNative, Named: ofNative},
		"a native gang alone": {
			Pod: joining(byGroup), Native: gang(ofNative), InGang: true, Want: ofNative, Named: ofNative},
		"a pod of the basic policy is in the queue of its PodGroup": {
			Pod: joining(byGroup), Native: basic(ofNative), Want: ofNative, Named: ofNative},
		"also where the community has one of its name": {
			Pod: joining(byGroup), Community: community(ofCommunity), Native: basic(ofNative), Want: ofNative, Named: ofNative},
		"whose queue it is not in either": {
			Pod: joining(byGroup), Community: community(ofCommunity), Native: basic(""), Want: OfNamespace},
		"a gang by label is not in the queue of the basic policy": {
			Pod: joining(byLabel), Community: community(ofCommunity), Native: basic(ofNative), InGang: true, Want: ofCommunity, Named: ofCommunity},
		"also if its PodGroup names none": {
			Pod: joining(byLabel), Community: community(""), Native: basic(ofNative), InGang: true, Want: OfNamespace},
		"nor is a gang by annotation": {
			Pod: joining(byAnnotation), Native: basic(ofNative), InGang: true, Want: OfNamespace},
		"the basic policy with a topology makes a gang": {
			Pod: joining(byGroup), Native: basicInRack(ofNative), InGang: true, Want: ofNative, Named: ofNative},
		"a gang without a PodGroup is in the queue of its namespace": {
			Pod: joining(byAnnotation), InGang: true, Want: OfNamespace},
		"a pod in no gang, too": {
			Pod: joining(nil), Community: community(ofCommunity), Native: basic(ofNative), Want: OfNamespace},
	}
}

// joining returns a pod that joins a gang in a way; nil for none.
func joining(way func(*v1.Pod)) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "p", UID: "p", Labels: map[string]string{}}}
	pod.Spec.SchedulerName, pod.Status.Phase = "lockstep-scheduler", v1.PodPending
	if way != nil {
		way(pod)
	}
	return pod
}

func byLabel(pod *v1.Pod) { pod.Labels[v1alpha1.PodGroupLabel] = Name }

func byAnnotation(pod *v1.Pod) {
	pod.Annotations = map[string]string{v1alpha1.GangNameAnnotation: Name, v1alpha1.MinAvailableAnnotation: "2"}
}

func byGroup(pod *v1.Pod) { pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: new(Name)} }

// meta returns the metadata of a PodGroup that names a queue; empty for none.
func meta(queue string) metav1.ObjectMeta {
	of := metav1.ObjectMeta{Namespace: Namespace, Name: Name}
	if queue != "" {
		of.Labels = map[string]string{v1alpha1.QueueLabel: queue}
	}
	return of
}

func community(queue string) *coscheduling.PodGroup {
	pg := &coscheduling.PodGroup{ObjectMeta: meta(queue)}
	pg.Spec.MinMember = 2
	return pg
}

func gang(queue string) *schedulingv1beta1.PodGroup {
	pg := &schedulingv1beta1.PodGroup{ObjectMeta: meta(queue)}
	pg.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: 2}
	return pg
}

func basic(queue string) *schedulingv1beta1.PodGroup {
	pg := &schedulingv1beta1.PodGroup{ObjectMeta: meta(queue)}
	pg.Spec.SchedulingPolicy.Basic = &schedulingv1beta1.BasicSchedulingPolicy{}
	return pg
}

func basicInRack(queue string) *schedulingv1beta1.PodGroup {
	pg := basic(queue)
	pg.Spec.SchedulingConstraints = &schedulingv1beta1.PodGroupSchedulingConstraints{
		Topology: []schedulingv1beta1.TopologyConstraint{{Key: "rack"}},
	}
	return pg
}
