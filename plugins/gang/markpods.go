package gang

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/status"
)

// mark is a member to mark with the timeout annotation.
type mark struct {
	types.NamespacedName
	uid types.UID
}

// mark marks a member, and records the event.
func (t *statusReporter) mark(ctx context.Context, m mark) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":         m.uid, // the API server refuses the patch for a pod of the same name
		"annotations": map[string]string{v1alpha1.TimeoutAnnotation: "true"},
	}})
	if err != nil {
		return fmt.Errorf("marking pod %s: %w", m.NamespacedName, err)
	}
	ctx, cancel := context.WithTimeout(ctx, status.WriteTimeout)
	defer cancel()
	pod, err := t.pl.fw.ClientSet().CoreV1().Pods(m.Namespace).Patch(ctx, m.Name, types.MergePatchType, patch,
		metav1.PatchOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		return nil // the pod is gone
	}
	if err != nil {
		return fmt.Errorf("marking pod %s: %w", m.NamespacedName, err)
	}
	timedOut(pod).Record(t.pl.fw.EventRecorder())
	return nil
}
