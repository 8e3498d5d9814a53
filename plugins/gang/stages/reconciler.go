package stages

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

const (
	// FieldOwner is the field manager of what this package writes.
	FieldOwner = "lockstep-controller"
	// again is how long after a write that conflicted the next one comes.
	again = 500 * time.Millisecond
)

// podGroupKind is the community's PodGroup, of which only the metadata is read and written.
var podGroupKind = schedulingv1alpha1.SchemeGroupVersion.WithKind("PodGroup")

func newPodGroup() *metav1.PartialObjectMetadata {
	pg := &metav1.PartialObjectMetadata{}
	pg.SetGroupVersionKind(podGroupKind)
	return pg
}

// reconciler writes the stages of PodGroups.
type reconciler struct {
	client client.Client
	// watched are the kinds of workloads that the API server serves, and that are in the client's cache.
	watched watched
}

// watched is a set of kinds.
type watched struct {
	mu    sync.Mutex
	kinds map[schema.GroupVersionKind]bool
}

func (w *watched) add(kind schema.GroupVersionKind) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.kinds == nil {
		w.kinds = map[schema.GroupVersionKind]bool{}
	}
	w.kinds[kind] = true
}

func (w *watched) has(kind schema.GroupVersionKind) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.kinds[kind]
}

// Reconcile implements reconcile.Reconciler. A PodGroup and its workload have the same name.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	pg := newPodGroup()
	err := r.client.Get(ctx, request.NamespacedName, pg)
	if apierrors.IsNotFound(err) {
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading PodGroup %s: %w", request.NamespacedName, err)
	}
	w, err := r.workloadOf(ctx, pg)
	if w == nil || err != nil {
		return reconcile.Result{}, err
	}
	is, want := pg.Annotations[v1alpha1.StagesAnnotation], format(w.parts())
	if is == want || is != "" && !ours(pg) {
		return reconcile.Result{}, nil
	}
	return r.write(ctx, pg, want)
}

// workloadOf returns the workload that makes the members of a gang; nil where it does not exist, or is of no known kind.
func (r *reconciler) workloadOf(ctx context.Context, pg *metav1.PartialObjectMetadata) (workload, error) {
	controller := metav1.GetControllerOfNoCopy(pg)
	if controller == nil {
		return nil, nil
	}
	kind := schema.FromAPIVersionAndKind(controller.APIVersion, controller.Kind).GroupKind()
	for _, known := range workloads {
		if known.controller != kind || !r.watched.has(known.kind) {
			continue
		}
		w, key := known.empty(), client.ObjectKeyFromObject(pg)
		err := r.client.Get(ctx, key, w)
		switch {
		case apierrors.IsNotFound(err):
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("reading %s %s: %w", known.kind.Kind, key, err)
		case w.of(controller):
			return w, nil
		}
	}
	return nil, nil
}

// write changes the annotation, or removes it, provided that the PodGroup has not changed since it was read.
func (r *reconciler) write(ctx context.Context, pg *metav1.PartialObjectMetadata, stages string) (reconcile.Result, error) {
	var value any
	if stages != "" {
		value = stages
	}
	key := client.ObjectKeyFromObject(pg)
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": pg.ResourceVersion,
		"annotations":     map[string]any{v1alpha1.StagesAnnotation: value},
	}})
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("encoding the stages of PodGroup %s: %w", key, err)
	}
	err = r.client.Patch(ctx, pg, client.RawPatch(types.MergePatchType, body), client.FieldOwner(FieldOwner))
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: again}, nil
	case apierrors.IsNotFound(err):
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("writing the stages of PodGroup %s: %w", key, err)
	}
	klog.FromContext(ctx).V(2).Info("Wrote the stages of a gang", "podGroup", key, "stages", stages)
	return reconcile.Result{}, nil
}

// format returns the value of the annotation.
func format(parts []int) string {
	sizes := make([]string, len(parts))
	for i, n := range parts {
		sizes[i] = strconv.Itoa(n)
	}
	return strings.Join(sizes, ",")
}

// ours reports whether this controller wrote the annotation as it stands.
func ours(pg *metav1.PartialObjectMetadata) bool {
	path := fieldpath.MakePathOrDie("metadata", "annotations", v1alpha1.StagesAnnotation)
	for i := range pg.ManagedFields {
		entry := &pg.ManagedFields[i]
		if entry.Manager != FieldOwner || entry.FieldsV1 == nil {
			continue
		}
		fields := fieldpath.NewSet()
		if err := fields.FromJSON(entry.FieldsV1.GetRawReader()); err == nil && fields.Has(path) {
			return true
		}
	}
	return false
}
