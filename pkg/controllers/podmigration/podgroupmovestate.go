package podmigration

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/podgroupreader"
	"github.com/lockstep-sh/lockstep/pkg/rules/defrag/migration"
)

// state is how far the pods of a gang have been moved, as its PodGroup shows it.
type state struct {
	Phase v1alpha1.MigrationPhase `json:"phase"`
	Pods  int                     `json:"pods"`
	Moved int                     `json:"moved"`
}

// stateOf sums up the PodMigrations of a gang.
func stateOf(list []v1alpha1.PodMigration) state {
	s := state{Phase: v1alpha1.MigrationSucceeded, Pods: len(list)}
	running, pending, failed := false, false, false
	for i := range list {
		switch list[i].Status.Phase {
		case v1alpha1.MigrationSucceeded:
			s.Moved++
		case v1alpha1.MigrationFailed:
			failed = true
		case v1alpha1.MigrationRunning:
			running = true
		default:
			pending = true
		}
	}
	switch {
	case running || pending && s.Moved > 0:
		s.Phase = v1alpha1.MigrationRunning
	case pending:
		s.Phase = v1alpha1.MigrationPending
	case failed:
		s.Phase = v1alpha1.MigrationFailed
	}
	return s
}

// mirror writes on the PodGroup of a pod how far the pods of its gang have been moved: those of the same plan; without
// a plan, the pod alone. For a gang without a PodGroup nothing is written.
func (r *reconciler) mirror(ctx context.Context, m *v1alpha1.PodMigration) error {
	if m.Spec.PodGroup == "" || migration.Ended(m.Status.Phase) && len(m.Finalizers) == 0 {
		return nil
	}
	groups, err := podgroupreader.Of(ctx, r.live, r.client.RESTMapper(),
		client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.PodGroup})
	if err != nil || len(groups) == 0 {
		return err
	}
	group := groups[0]
	var list v1alpha1.PodMigrationList
	var from client.Reader = r.client
	if migration.Ended(m.Status.Phase) {
		from = r.live // of moves that end together, the last one says so of all
	}
	if err := from.List(ctx, &list, client.InNamespace(m.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing the PodMigrations of PodGroup %s/%s: %w", m.Namespace, m.Spec.PodGroup, err)
	}
	moves := []v1alpha1.PodMigration{*m} // in the cache it may be older
	for _, other := range list.Items {
		if plan := m.Labels[v1alpha1.PlanLabel]; other.UID != m.UID && other.Spec.PodGroup == m.Spec.PodGroup &&
			plan != "" && other.Labels[v1alpha1.PlanLabel] == plan {
			moves = append(moves, other)
		}
	}
	text, err := json.Marshal(stateOf(moves))
	if err != nil {
		return err
	}
	annotations := group.GetAnnotations()
	if annotations[v1alpha1.MigrationAnnotation] == string(text) {
		return nil
	}
	before := group.DeepCopy()
	group.SetAnnotations(labels.Merge(annotations, labels.Set{v1alpha1.MigrationAnnotation: string(text)}))
	if err := r.client.Patch(ctx, group, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing on PodGroup %s/%s how far it is moved: %w", m.Namespace, m.Spec.PodGroup, err)
	}
	return nil
}
