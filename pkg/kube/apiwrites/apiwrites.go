// Package apiwrites has what stand-ins of the API server share: what a write makes of an object, and why it is refused.
// The errors are those of the API server. It stores nothing.
package apiwrites

import (
	"fmt"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/kubernetes/scheme"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

// Object is an object of any kind, typed or not.
type Object interface {
	runtime.Object
	metav1.Object
}

// Check returns a conflict if an object does not have the UID and the resourceVersion that a writer expects. What is
// empty is not checked.
func Check(resource schema.GroupResource, object Object, uid types.UID, version string) error {
	var expected storage.Preconditions
	if uid != "" {
		expected.UID = &uid
	}
	if version != "" {
		expected.ResourceVersion = &version
	}
	if err := expected.Check(object.GetName(), object); err != nil {
		return apierrors.NewConflict(resource, object.GetName(), err)
	}
	return nil
}

// Patch sets after, which is empty, to what a patch makes of before. It can be any patch but one of server-side apply.
func Patch(before Object, kind types.PatchType, patch []byte, after Object) error {
	data, err := json.Marshal(before)
	if err == nil {
		data, err = patched(data, kind, patch, before, after)
	}
	if err == nil {
		err = json.Unmarshal(data, after)
	}
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("patching %s/%s: %s", before.GetNamespace(), before.GetName(), err))
	}
	return nil
}

func patched(data []byte, kind types.PatchType, patch []byte, before, after Object) ([]byte, error) {
	switch kind {
	case types.MergePatchType:
		return jsonpatch.MergePatch(data, patch)
	case types.JSONPatchType:
		operations, err := jsonpatch.DecodePatch(patch)
		if err != nil {
			return nil, err
		}
		return operations.Apply(data)
	case types.StrategicMergePatchType:
		typed := runtime.Object(after) // its fields say how lists are merged
		if _, ok := after.(runtime.Unstructured); ok {
			var err error
			if typed, err = scheme.Scheme.New(before.GetObjectKind().GroupVersionKind()); err != nil {
				return nil, err
			}
		}
		return strategicpatch.StrategicMergePatch(data, patch, typed)
	}
	return nil, fmt.Errorf("a patch of type %q is not supported", kind)
}

// Bind gives a pod its node. It changes the pod, unless it returns an error.
func Bind(pod *v1.Pod, binding *v1.Binding) error {
	if binding.Target.Name == "" {
		return apierrors.NewBadRequest(fmt.Sprintf("binding pod %s/%s: target.name is required", pod.Namespace, pod.Name))
	}
	if err := Check(v1.Resource("pods"), pod, binding.UID, binding.ResourceVersion); err != nil {
		return err
	}
	if pod.Spec.NodeName != "" {
		return apierrors.NewConflict(v1.Resource("pods/binding"), pod.Name,
			fmt.Errorf("pod %s is already assigned to node %q", pod.Name, pod.Spec.NodeName))
	}
	pod.Spec.NodeName, pod.Status.NominatedNodeName = binding.Target.Name, ""
	for key, value := range binding.Annotations {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, value)
	}
	for key, value := range binding.Labels {
		metav1.SetMetaDataLabel(&pod.ObjectMeta, key, value)
	}
	podutil.UpdatePodCondition(&pod.Status, &v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionTrue})
	return nil
}
