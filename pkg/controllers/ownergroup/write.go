package ownergroup

import (
	"context"
	"encoding/json"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/objects"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// create makes a PodGroup. If one of its name exists already, the cache soon shows it.
func (r *reconciler) create(ctx context.Context, key types.NamespacedName, want desired) error {
	group, err := podGroup(key, want)
	if err != nil {
		return err
	}
	err = r.client.Create(ctx, group, client.FieldOwner(objects.FieldOwner))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating PodGroup %s: %w", key, err)
	}
	return nil
}

// podGroup returns a new PodGroup.
func podGroup(key types.NamespacedName, want desired) (*unstructured.Unstructured, error) {
	group := &unstructured.Unstructured{Object: map[string]any{}}
	body, err := json.Marshal(changes(&coscheduling.PodGroup{}, want))
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

// PodGroupOf returns the PodGroup that the controller would make for a Job with such pods; nil where they do not ask
// for one.
func PodGroupOf(job *batchv1.Job, pod *v1.Pod) (*unstructured.Unstructured, error) {
	key, asks := keyOf(pod)
	owner, _ := gangspec.OwnerOf(pod)
	if !asks || owner.Kind != gangspec.OwnerJob {
		return nil, nil
	}
	want := desired{wish: ofJob(job, 0), labels: labelsOf(owner), owner: referenceTo(gangspec.OwnerJob, job)}
	return podGroup(key, want)
}

// update makes a PodGroup follow its owner. What this controller does not write stays as it is.
func (r *reconciler) update(ctx context.Context, group *coscheduling.PodGroup, want desired) error {
	fields := changes(group, want)
	if len(fields) == 0 {
		return nil
	}
	written := &unstructured.Unstructured{}
	written.SetGroupVersionKind(coscheduling.Kind)
	written.SetNamespace(group.Namespace)
	written.SetName(group.Name)
	metadata, _ := fields["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["uid"] = group.UID // no other PodGroup of its name
	fields["metadata"] = metadata
	body, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("encoding PodGroup %s/%s: %w", group.Namespace, group.Name, err)
	}
	err = r.client.Patch(ctx, written, client.RawPatch(types.MergePatchType, body), client.FieldOwner(objects.FieldOwner))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // a later event follows for the new one
		return fmt.Errorf("writing PodGroup %s/%s: %w", group.Namespace, group.Name, err)
	}
	return nil
}

// changes returns what a PodGroup lacks of what it should be, as the body of a merge patch.
func changes(group *coscheduling.PodGroup, want desired) map[string]any {
	metadata, spec := map[string]any{}, map[string]any{}
	for key, value := range want.labels {
		if group.Labels[key] != value {
			metadata["labels"] = want.labels
		}
	}
	if owners := []metav1.OwnerReference{want.owner}; !equality.Semantic.DeepEqual(group.OwnerReferences, owners) {
		metadata["ownerReferences"] = owners
	}
	if stages := gangspec.StagesText(want.stages); group.Annotations[v1alpha1.StagesAnnotation] != stages {
		metadata["annotations"] = map[string]any{v1alpha1.StagesAnnotation: orNull(stages)}
	}
	if group.Spec.MinMember != int32(want.min) {
		spec["minMember"] = orNull(want.min)
	}
	if room := amounts(group.Spec.MinResources, want.room); len(room) > 0 {
		spec["minResources"] = room
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
