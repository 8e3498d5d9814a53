package preemption

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// exactly is a client that deletes and patches a pod only if it has this UID: one that was
// made again under the name is another pod, and for it the answer is that there is none.
type exactly struct {
	kubernetes.Interface
	uid types.UID
}

// CoreV1 answers the client of pods, among others.
func (c exactly) CoreV1() corev1.CoreV1Interface {
	return exactlyCore{c.Interface.CoreV1(), c.uid}
}

type exactlyCore struct {
	corev1.CoreV1Interface
	uid types.UID
}

// Pods answers the client of the pods in a namespace.
func (c exactlyCore) Pods(namespace string) corev1.PodInterface {
	return exactlyPods{c.CoreV1Interface.Pods(namespace), c.uid}
}

type exactlyPods struct {
	corev1.PodInterface
	uid types.UID
}

// Delete deletes the pod.
func (c exactlyPods) Delete(ctx context.Context, name string, options metav1.DeleteOptions) error {
	options.Preconditions = metav1.NewUIDPreconditions(string(c.uid))
	err := c.PodInterface.Delete(ctx, name, options)
	if apierrors.IsConflict(err) {
		return apierrors.NewNotFound(v1.Resource("pods"), name)
	}
	return err
}

// Patch patches the pod.
func (c exactlyPods) Patch(ctx context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string) (*v1.Pod, error) {
	patch := map[string]any{}
	if err := json.Unmarshal(data, &patch); err != nil {
		return nil, fmt.Errorf("reading the patch of pod %s: %w", name, err)
	}
	meta, _ := patch["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
	}
	meta["uid"] = c.uid
	patch["metadata"] = meta
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("patching pod %s: %w", name, err)
	}
	pod, err := c.PodInterface.Patch(ctx, name, kind, data, options, subresources...)
	if isOther(err) {
		return nil, apierrors.NewNotFound(v1.Resource("pods"), name)
	}
	return pod, err
}

// isOther tells the API server's answer that an object has another UID: a conflict, or
// that the UID must not change.
func isOther(err error) bool {
	return apierrors.IsConflict(err) && strings.Contains(err.Error(), "UID in precondition") ||
		apierrors.IsInvalid(err) && strings.Contains(err.Error(), "metadata.uid")
}

// refuses tells answers of the API server that would be the same the next time, from those
// that it gives when it is in trouble.
func refuses(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsUnauthorized(err)
}
