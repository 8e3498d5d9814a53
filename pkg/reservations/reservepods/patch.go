package reservepods

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lockstep-sh/lockstep/pkg/kube/apiwrites"
)

// Patch changes the metadata of a pod, or with the subresource status its status. A resourceVersion in it that is not
// the pod's is a conflict, and a UID that is not the pod's is invalid.
func (s *Store) Patch(namespace, name string, kind types.PatchType, patch []byte,
	subresources ...string) (*v1.Pod, error) {
	keep := keepStatus
	switch {
	case len(subresources) == 1 && subresources[0] == "status":
		keep = keepSpec
	case len(subresources) > 0:
		return nil, apierrors.NewMethodNotSupported(v1.Resource("pods/"+subresources[0]), "patch")
	}
	return s.change(namespace, name, func(before *v1.Pod) (*v1.Pod, error) {
		now := &v1.Pod{}
		if err := apiwrites.Patch(before, kind, patch, now); err != nil {
			return nil, err
		}
		if err := apiwrites.Check(resource, before, "", now.ResourceVersion); err != nil {
			return nil, err
		}
		return now, keep(before, now)
	})
}

// keepStatus leaves out of an update what only an update of the status may change, and refuses
// another spec: only Bind changes it.
func keepStatus(before, now *v1.Pod) error {
	now.Status = before.Status
	if !equality.Semantic.DeepEqual(before.Spec, now.Spec) {
		return invalid(before, field.Forbidden(field.NewPath("spec"), "the spec of a reserve pod cannot be changed"))
	}
	if now.DeletionTimestamp != nil {
		return invalid(before, field.Forbidden(field.NewPath("metadata", "deletionTimestamp"),
			"a reserve pod is deleted at once"))
	}
	now.Spec = before.Spec
	return keepIdentity(before, now)
}

// keepSpec leaves out of an update of the status what it may not change.
func keepSpec(before, now *v1.Pod) error {
	now.Spec = before.Spec
	now.OwnerReferences = before.OwnerReferences
	return keepIdentity(before, now)
}

// keepIdentity refuses another name and UID, and leaves out of an update what the server keeps.
func keepIdentity(before, now *v1.Pod) error {
	now.UID, now.Namespace = cmp.Or(now.UID, before.UID), cmp.Or(now.Namespace, before.Namespace)
	path := field.NewPath("metadata")
	if errs := slices.Concat(
		validation.ValidateImmutableField(now.Name, before.Name, path.Child("name")),
		validation.ValidateImmutableField(now.Namespace, before.Namespace, path.Child("namespace")),
		validation.ValidateImmutableField(now.UID, before.UID, path.Child("uid")),
	); len(errs) > 0 {
		return invalid(before, errs...)
	}
	now.TypeMeta, now.ManagedFields = metav1.TypeMeta{}, nil
	now.Generation, now.CreationTimestamp = before.Generation, before.CreationTimestamp
	now.DeletionTimestamp, now.DeletionGracePeriodSeconds = nil, nil
	return nil
}

func invalid(pod *v1.Pod, errs ...*field.Error) error {
	return apierrors.NewInvalid(v1.SchemeGroupVersion.WithKind("Pod").GroupKind(), pod.Name, errs)
}
