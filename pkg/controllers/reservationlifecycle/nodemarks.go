package reservationlifecycle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/objects"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/setup"
	"github.com/lockstep-sh/lockstep/pkg/framework/cachetransform"
)

// marksName is the name of the controller of marks in logs and metrics.
const marksName = "reservation-marks"

const (
	// markSet is the value of a mark.
	markSet = "true"
	// endAgain is how long until it is tried again to remove marks.
	endAgain = time.Minute
	// pageSize is how many nodes are read at once where all are.
	pageSize = 500
)

// marked returns the annotations that a node should have, of those that this package reads: with marks if
// something is held on it, and without those that were set here if not. Marks that others have set, or
// have changed since, are left alone.
func marked(annotations map[string]string, held bool) map[string]string {
	want := maps.Clone(annotations)
	if want == nil {
		want = map[string]string{}
	}
	recorded := strings.Split(want[v1alpha1.ReservationMarksAnnotation], ",")
	var ours []string
	for _, key := range cachetransform.ScaleDownAnnotations {
		value, there := want[key]
		set := slices.Contains(recorded, key)
		switch {
		case there && (!set || value != markSet):
			continue // set by others
		case held:
			want[key], ours = markSet, append(ours, key)
		case set:
			delete(want, key)
		}
	}
	want[v1alpha1.ReservationMarksAnnotation] = strings.Join(ours, ",")
	if len(ours) == 0 {
		delete(want, v1alpha1.ReservationMarksAnnotation)
	}
	return want
}

// marker brings the marks of nodes up to date.
type marker struct {
	client client.Client
}

func startMarks(mgr manager.Manager) error {
	err := builder.ControllerManagedBy(mgr).Named(marksName).
		Watches(&v1.Node{}, setup.Enqueue(settle, setup.Itself), builder.WithPredicates(setup.Changed(marksDiffer))).
		Watches(&v1alpha1.Reservation{}, setup.Enqueue(settle, nodesHeld)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		Complete(&marker{client: mgr.GetClient()})
	if err != nil {
		return fmt.Errorf("starting the %s controller: %w", marksName, err)
	}
	return nil
}

// Reconcile implements reconcile.Reconciler: a request names a node.
func (m *marker) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var node v1.Node
	if found, err := objects.Read(ctx, m.client, request.NamespacedName, &node); err != nil || !found {
		return reconcile.Result{}, err
	}
	var list v1alpha1.ReservationList
	if err := m.client.List(ctx, &list, client.MatchingFields{nodeIndex: node.Name},
		client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing Reservations on node %s: %w", node.Name, err)
	}
	err := mark(ctx, m.client, &metav1.PartialObjectMetadata{ObjectMeta: node.ObjectMeta}, len(list.Items) > 0)
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: settle}, nil // the cache is behind
	}
	return reconcile.Result{}, err
}

// mark patches the annotations of a node, if they are not as they should be, and provided that the node
// has not changed since it was read.
func mark(ctx context.Context, writer client.Writer, node *metav1.PartialObjectMetadata, held bool) error {
	want := marked(node.Annotations, held)
	if maps.Equal(want, node.Annotations) {
		return nil
	}
	before := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name, ResourceVersion: node.ResourceVersion,
		Annotations: node.Annotations}}
	after := before.DeepCopy()
	after.Annotations = want
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := client.IgnoreNotFound(writer.Patch(ctx, after, patch, client.FieldOwner(objects.FieldOwner))); err != nil {
		return fmt.Errorf("marking node %s against scale-down, or no more: %w", node.Name, err)
	}
	return nil
}

// endMarks removes what was set when nodes were marked, and tries again until it has.
func endMarks(ctx context.Context, reader client.Reader, writer client.Writer) {
	for {
		err := removeMarks(ctx, reader, writer)
		if err == nil {
			return
		}
		klog.FromContext(ctx).Error(err, "Failed to remove the marks against scale-down; trying again", "after", endAgain)
		select {
		case <-ctx.Done():
			return
		case <-time.After(endAgain):
		}
	}
}

// removeMarks removes all marks that were set here.
func removeMarks(ctx context.Context, reader client.Reader, writer client.Writer) error {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1.SchemeGroupVersion.WithKind("NodeList"))
	for {
		if err := reader.List(ctx, list, client.Limit(pageSize), client.Continue(list.Continue)); err != nil {
			return fmt.Errorf("looking for marks on nodes: %w", err)
		}
		var failures []error
		for i := range list.Items {
			if _, ours := list.Items[i].Annotations[v1alpha1.ReservationMarksAnnotation]; ours {
				failures = append(failures, mark(ctx, writer, &list.Items[i], false))
			}
		}
		if err := errors.Join(failures...); err != nil || list.Continue == "" {
			return err
		}
	}
}

// marksDiffer reports whether the marks of a node may have changed.
func marksDiffer(was, is *v1.Node) bool { return !maps.Equal(was.Annotations, is.Annotations) }

// nodesHeld returns requests for the nodes on which a Reservation holds something.
func nodesHeld(_ context.Context, object client.Object) (requests []reconcile.Request) {
	for _, node := range nodesOf(object) {
		requests = append(requests, named(node))
	}
	return requests
}
