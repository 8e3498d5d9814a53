package workloads

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/objects"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
)

// again is how long after a write that conflicted the next one comes.
const again = 500 * time.Millisecond

// reconciler writes the annotations of PodGroups.
type reconciler struct {
	client client.Client
	// watched are the kinds of workloads that the API server serves, and that are in the client's cache.
	watched sync.Map
}

// Reconcile implements reconcile.Reconciler. A PodGroup and its workload have the same name.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	pg := &coscheduling.PodGroup{}
	if found, err := objects.Read(ctx, r.client, request.NamespacedName, pg); err != nil || !found {
		return reconcile.Result{}, err
	}
	w, err := r.workloadOf(ctx, pg)
	if w == nil || err != nil {
		return reconcile.Result{}, err
	}
	changes := map[string]any{}
	for annotation, want := range w.annotations(pg) {
		switch is := pg.Annotations[annotation]; {
		case is != "" && !ours(pg, annotation):
			return reconcile.Result{}, nil // the others depend on it
		case is == want:
		case want == "":
			changes[annotation] = nil
		default:
			changes[annotation] = want
		}
	}
	if len(changes) == 0 {
		return reconcile.Result{}, nil
	}
	return r.write(ctx, pg, changes)
}

// ours reports whether this package wrote an annotation of a PodGroup.
func ours(pg *coscheduling.PodGroup, annotation string) bool {
	return slices.Contains(objectstate.Writers(pg.ManagedFields,
		fieldpath.MakePathOrDie("metadata", "annotations", annotation)), objects.FieldOwner)
}

// workloadOf returns the workload that makes the members of a gang; nil where it does not exist, or is of no known
// kind.
func (r *reconciler) workloadOf(ctx context.Context, pg *coscheduling.PodGroup) (workload, error) {
	owner, known := ownerOf(pg)
	if owner == nil {
		return nil, nil
	}
	if _, watched := r.watched.Load(known.kind); !watched {
		return nil, nil
	}
	w, key := known.empty(), client.ObjectKeyFromObject(pg)
	found, err := objects.Read(ctx, r.client, key, w)
	switch {
	case err != nil, !found:
		return nil, err
	case !isOf(w, owner):
		return nil, nil
	}
	return w, nil
}

// ownerOf returns the owner of a PodGroup that makes its pods, and what is known of such owners; nil where no owner is
// of a known kind. Not every operator makes it the controller.
func ownerOf(pg metav1.Object) (*metav1.OwnerReference, *known) {
	owners := pg.GetOwnerReferences()
	for i := range owners {
		kind := schema.FromAPIVersionAndKind(owners[i].APIVersion, owners[i].Kind).GroupKind()
		for j := range workloads {
			if workloads[j].owner == kind {
				return &owners[i], &workloads[j]
			}
		}
	}
	return nil, nil
}

// write changes annotations, and removes those that are nil, provided that the PodGroup has not changed since it was
// read.
func (r *reconciler) write(ctx context.Context, pg *coscheduling.PodGroup,
	changes map[string]any) (reconcile.Result, error) {
	key := client.ObjectKeyFromObject(pg)
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": pg.ResourceVersion,
		"annotations":     changes,
	}})
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("encoding the annotations of PodGroup %s: %w", key, err)
	}
	written := &coscheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: pg.Namespace, Name: pg.Name}}
	err = r.client.Patch(ctx, written, client.RawPatch(types.MergePatchType, body), client.FieldOwner(objects.FieldOwner))
	if err != nil {
		return objects.WriteResult(err, again, fmt.Sprintf("annotations of PodGroup %s", key))
	}
	klog.FromContext(ctx).V(2).Info("Wrote what a workload says of its gang", "podGroup", key, "annotations", changes)
	return reconcile.Result{}, nil
}
