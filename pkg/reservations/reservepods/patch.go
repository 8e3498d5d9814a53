package reservepods

import (
	"fmt"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Patch changes a pod by a strategic merge patch or a merge patch: its metadata, or with the
// subresource status its status. A resourceVersion in it that is not the pod's is a conflict, and a
// UID that is not the pod's is invalid.
func (s *Store) Patch(namespace, name string, kind types.PatchType, patch []byte, subresources ...string) (*v1.Pod, error) {
	keep := keepStatus
	switch {
	case len(subresources) == 1 && subresources[0] == "status":
		keep = keepSpec
	case len(subresources) > 0:
		return nil, apierrors.NewMethodNotSupported(v1.Resource("pods/"+subresources[0]), "patch")
	}
	return s.change(namespace, name, func(before *v1.Pod) (*v1.Pod, error) {
		now, err := patched(before, kind, patch)
		if err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("patching pod %s/%s: %s", namespace, name, err))
		}
		if err := check(before, nil, &now.ResourceVersion); err != nil {
			return nil, err
		}
		return now, keep(before, now)
	})
}

// patched returns what a patch makes of a pod.
func patched(pod *v1.Pod, kind types.PatchType, patch []byte) (*v1.Pod, error) {
	before, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	var after []byte
	switch kind {
	case types.StrategicMergePatchType:
		after, err = strategicpatch.StrategicMergePatch(before, patch, v1.Pod{})
	case types.MergePatchType:
		after, err = jsonpatch.MergePatch(before, patch)
	default:
		return nil, fmt.Errorf("its type is %q; a reserve pod takes %q and %q", kind, types.StrategicMergePatchType, types.MergePatchType)
	}
	if err != nil {
		return nil, err
	}
	now := &v1.Pod{}
	return now, json.Unmarshal(after, now)
}

// keepStatus leaves out of an update what only an update of the status may change, and refuses
// another spec: only Bind changes it.
func keepStatus(before, now *v1.Pod) error {
	now.Status = before.Status
	if !equality.Semantic.DeepEqual(before.Spec, now.Spec) {
		return invalid(before, field.Forbidden(field.NewPath("spec"), "the spec of a reserve pod cannot be changed"))
	}
	if now.DeletionTimestamp != nil {
		return invalid(before, field.Forbidden(field.NewPath("metadata", "deletionTimestamp"), "a reserve pod is deleted at once"))
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
	if now.UID == "" {
		now.UID = before.UID
	}
	if now.Namespace == "" {
		now.Namespace = before.Namespace
	}
	path := field.NewPath("metadata")
	for _, f := range []struct{ name, before, now string }{
		{"name", before.Name, now.Name},
		{"namespace", before.Namespace, now.Namespace},
		{"uid", string(before.UID), string(now.UID)},
	} {
		if f.now != f.before {
			return invalid(before, field.Invalid(path.Child(f.name), f.now, validation.FieldImmutableErrorMsg))
		}
	}
	now.TypeMeta, now.ManagedFields = metav1.TypeMeta{}, nil
	now.Generation, now.CreationTimestamp = before.Generation, before.CreationTimestamp
	now.DeletionTimestamp, now.DeletionGracePeriodSeconds = nil, nil
	return nil
}

func invalid(pod *v1.Pod, err *field.Error) error {
	return apierrors.NewInvalid(v1.SchemeGroupVersion.WithKind("Pod").GroupKind(), pod.Name, field.ErrorList{err})
}
