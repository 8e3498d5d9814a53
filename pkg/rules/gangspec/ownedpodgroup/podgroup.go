package ownedpodgroup

import (
	"encoding/json"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// Desired is what a PodGroup should be.
type Desired struct {
	Members
	Owner metav1.OwnerReference
	// Labels are the labels by which the members are selected; the PodGroup gets them too.
	Labels map[string]string
}

// Of returns what the PodGroup of an owner should be. object is the owner: a Job, or another kind unstructured; pods
// are the members that exist.
func Of(owner gangspec.Owner, object metav1.Object, pods []*v1.Pod) (Desired, error) {
	d := Desired{Owner: ReferenceTo(owner.Kind, object), Labels: labelsOf(owner)}
	switch object := object.(type) {
	case *batchv1.Job:
		d.Members = ofJob(object, succeeded(pods, object))
	case *unstructured.Unstructured:
		if owner.Kind == gangspec.OwnerJobSet {
			js := &jobSet{}
			if err := convert(object, js); err != nil {
				return Desired{}, err
			}
			asked := askedByPods(js, pods)
			d.Members = ofJobSet(js, func(rj *replicatedJob) bool { return asks(js, rj, asked) == owner.GangName() })
			return d, nil
		}
		lws := &leaderWorkerSet{}
		if err := convert(object, lws); err != nil {
			return Desired{}, err
		}
		d.Members = ofGroup(lws, groupOf(lws, pods))
	}
	return d, nil
}

// OfNewJob returns the PodGroup that is made for a Job whose first pod this is; nil where the pod does not ask for one.
func OfNewJob(job *batchv1.Job, pod *v1.Pod) (*unstructured.Unstructured, error) {
	key, source, member := gangspec.KeyOf(pod)
	owner, _ := gangspec.OwnerOf(pod)
	if !member || source != gangspec.FromOwner || owner.Kind != gangspec.OwnerJob {
		return nil, nil
	}
	want, err := Of(owner, job, nil)
	if err != nil {
		return nil, err
	}
	return want.PodGroup(key)
}

// ReferenceTo returns a reference to the owner of a PodGroup.
func ReferenceTo(kind gangspec.OwnerKind, object metav1.Object) metav1.OwnerReference {
	gvk, controls := Kinds[kind], true
	return metav1.OwnerReference{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Name: object.GetName(),
		UID: object.GetUID(), Controller: &controls}
}

func convert(object *unstructured.Unstructured, into any) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into); err != nil {
		return fmt.Errorf("reading %s %s/%s: %w", object.GetKind(), object.GetNamespace(), object.GetName(), err)
	}
	return nil
}

// succeeded returns how many of the pods are of the Job and ran to success.
func succeeded(pods []*v1.Pod, job *batchv1.Job) int {
	n := 0
	for _, pod := range pods {
		if gangspec.RanToSuccess(pod) && metav1.IsControlledBy(pod, job) {
			n++
		}
	}
	return n
}

// labelsOf returns the labels that the PodGroup of an owner has in common with the pods.
func labelsOf(owner gangspec.Owner) map[string]string {
	labels := map[string]string{gangspec.ManagedByLabel: gangspec.LockstepController}
	switch owner.Kind {
	case gangspec.OwnerJob:
		labels[batchv1.JobNameLabel] = owner.Name
	case gangspec.OwnerJobSet:
		labels[v1alpha1.JobSetNameLabel] = owner.Name
		if owner.Part != "" {
			labels[v1alpha1.ReplicatedJobNameLabel] = owner.Part
		}
	case gangspec.OwnerLeaderWorkerSet:
		labels[v1alpha1.LeaderWorkerSetNameLabel], labels[v1alpha1.LeaderWorkerGroupLabel] = owner.Name, owner.Part
	}
	return labels
}

// PodGroup returns a new PodGroup.
func (want Desired) PodGroup(key gangspec.Key) (*unstructured.Unstructured, error) {
	group := &unstructured.Unstructured{Object: map[string]any{}}
	body, err := json.Marshal(want.Changes(&coscheduling.PodGroup{}))
	if err == nil {
		err = json.Unmarshal(body, &group.Object)
	}
	if err != nil {
		return nil, fmt.Errorf("encoding PodGroup %s: %w", key, err)
	}
	group.SetGroupVersionKind(coscheduling.Kind)
	group.SetNamespace(key.Namespace)
	group.SetName(key.Name)
	return group, nil
}

// Changes returns what a PodGroup lacks of what it should be, as the body of a merge patch.
func (want Desired) Changes(group *coscheduling.PodGroup) map[string]any {
	metadata, spec := map[string]any{}, map[string]any{}
	for key, value := range want.Labels {
		if group.Labels[key] != value {
			metadata["labels"] = want.Labels
		}
	}
	if owners := []metav1.OwnerReference{want.Owner}; !equality.Semantic.DeepEqual(group.OwnerReferences, owners) {
		metadata["ownerReferences"] = owners
	}
	if stages := gangspec.StagesText(want.Stages); group.Annotations[v1alpha1.StagesAnnotation] != stages {
		metadata["annotations"] = map[string]any{v1alpha1.StagesAnnotation: orNull(stages)}
	}
	if group.Spec.MinMember != int32(want.Min) {
		spec["minMember"] = orNull(want.Min)
	}
	if resources := amounts(group.Spec.MinResources, want.Resources); len(resources) > 0 {
		spec["minResources"] = resources
	}
	fields := map[string]any{}
	if len(metadata) > 0 {
		fields["metadata"] = metadata
	}
	if len(spec) > 0 {
		fields["spec"] = spec
	}
	return fields
}

// amounts returns the amounts that differ; null for those to be removed.
func amounts(was, want v1.ResourceList) map[v1.ResourceName]any {
	changed := map[v1.ResourceName]any{}
	for name := range was {
		if _, ok := want[name]; !ok {
			changed[name] = nil
		}
	}
	for name, amount := range want {
		if had, ok := was[name]; !ok || had.Cmp(amount) != 0 {
			changed[name] = amount
		}
	}
	return changed
}

// orNull returns a value, or null, which removes the field, for the zero value.
func orNull[T comparable](value T) any {
	var none T
	if value == none {
		return nil
	}
	return value
}
