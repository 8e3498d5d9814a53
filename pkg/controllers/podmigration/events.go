package podmigration

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/migration"
)

const (
	// action is the action that the controller's events name.
	action = "Migrate"
	// eventMigrating is on a pod that is evicted to be moved.
	eventMigrating = "Migrating"
)

// tell reports the end of a PodMigration: in an event, and in metrics.
func (r *reconciler) tell(m *v1alpha1.PodMigration, was *v1alpha1.PodMigrationStatus) {
	if !migration.Ended(m.Status.Phase) || migration.Ended(was.Phase) {
		return
	}
	c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.MigrationComplete)
	if c == nil {
		return
	}
	kind := v1.EventTypeNormal
	if m.Status.Phase == v1alpha1.MigrationFailed {
		kind = v1.EventTypeWarning
	}
	r.recorder.Eventf(m, nil, kind, c.Reason, action, "%s", c.Message)
	ended.WithLabelValues(string(m.Status.Phase), c.Reason).Inc()
}
