package ownergroup

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/objects"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec/ownedpodgroup"
)

// create makes a PodGroup. If one of its name exists already, the cache soon shows it.
func (r *reconciler) create(ctx context.Context, key types.NamespacedName, want ownedpodgroup.Desired) error {
	group, err := want.PodGroup(gangspec.Key(key))
	if err != nil {
		return err
	}
	err = r.client.Create(ctx, group, client.FieldOwner(objects.FieldOwner))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating PodGroup %s: %w", key, err)
	}
	return nil
}

// update makes a PodGroup follow its owner. What this controller does not write stays as it is.
func (r *reconciler) update(ctx context.Context, group *coscheduling.PodGroup, want ownedpodgroup.Desired) error {
	fields := want.Changes(group)
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
