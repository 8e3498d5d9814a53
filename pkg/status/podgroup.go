package status

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	pgclientset "sigs.k8s.io/scheduler-plugins/pkg/generated/clientset/versioned"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate/evictionrecord"
)

// fieldManager owns what the scheduler writes on PodGroups.
const fieldManager = "lockstep-scheduler"

// WriteScheduled writes the condition Scheduled of the community PodGroup of a gang: why it is False. A PodGroup CRD
// without conditions drops it, which does no harm.
func WriteScheduled(ctx context.Context, groups pgclientset.Interface, gang gangspec.Key, reason, message string,
	now time.Time) error {
	patch, err := json.Marshal(map[string]any{
		"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup",
		"metadata": map[string]any{"name": gang.Name, "namespace": gang.Namespace},
		"status": map[string]any{"conditions": []metav1.Condition{{
			Type: v1alpha1.ConditionScheduled, Status: metav1.ConditionFalse, Reason: reason, Message: message,
			LastTransitionTime: metav1.NewTime(now),
		}}},
	})
	if err != nil {
		return fmt.Errorf("writing condition of PodGroup %s: %w", gang, err)
	}
	force := true
	return patchGroup(ctx, groups, gang, types.ApplyPatchType, patch,
		metav1.PatchOptions{FieldManager: fieldManager, Force: &force}, "status")
}

// WriteEvicted writes the record of an eviction on the PodGroup of a gang, see [v1alpha1.EvictedAnnotation]. Without a
// record it removes the annotation.
func WriteEvicted(ctx context.Context, groups pgclientset.Interface, gang gangspec.Key, group types.UID,
	record *evictionrecord.Record) error {
	var value any
	if record != nil {
		value = record.Annotation()
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": group,
		"annotations": map[string]any{v1alpha1.EvictedAnnotation: value}}})
	if err != nil {
		return fmt.Errorf("writing annotation of PodGroup %s: %w", gang, err)
	}
	return patchGroup(ctx, groups, gang, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
}

// patchGroup patches a PodGroup, if it is there.
func patchGroup(ctx context.Context, groups pgclientset.Interface, gang gangspec.Key, kind types.PatchType,
	patch []byte, options metav1.PatchOptions,
	subresources ...string) error {
	ctx, cancel := context.WithTimeout(ctx, WriteTimeout)
	defer cancel()
	_, err := groups.SchedulingV1alpha1().PodGroups(gang.Namespace).Patch(ctx, gang.Name, kind, patch, options,
		subresources...)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing PodGroup %s: %w", gang, err)
	}
	return nil
}
