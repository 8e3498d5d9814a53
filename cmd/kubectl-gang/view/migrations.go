package view

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// Migration is a PodMigration, and how far it has come.
type Migration struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Pod       string `json:"pod"`
	// Gang is the name of the gang of the pod; empty for none.
	Gang      string `json:"gang,omitempty"`
	From      string `json:"from"`
	To        string `json:"to"`
	Phase     string `json:"phase"`
	Suspended bool   `json:"suspended"`
	// Successor is the pod that came to the target; empty until then.
	Successor string `json:"successor,omitempty"`
	// Reason and Message are those of the step that it has come to.
	Reason  string      `json:"reason"`
	Message string      `json:"message"`
	Created metav1.Time `json:"created"`
}

// Migrations lists PodMigrations, the latest first.
func Migrations(migrations []*v1alpha1.PodMigration) []Migration {
	rows := make([]Migration, 0, len(migrations))
	for _, m := range migrations {
		rows = append(rows, migrationRow(m))
	}
	slices.SortFunc(rows, func(a, b Migration) int {
		return cmp.Or(b.Created.Compare(a.Created.Time),
			gangspec.CompareNatural(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name))
	})
	return rows
}

func migrationRow(m *v1alpha1.PodMigration) Migration {
	row := Migration{
		Namespace: m.Namespace, Name: m.Name, Pod: m.Spec.PodName, Gang: m.Spec.PodGroup,
		From: m.Spec.SourceNode, To: m.Spec.TargetNode,
		Phase: string(cmp.Or(m.Status.Phase, v1alpha1.MigrationPending)), Suspended: m.Spec.Suspend,
		Created: m.CreationTimestamp,
	}
	if m.Status.Successor != nil {
		row.Successor = m.Status.Successor.Name
	}
	for _, step := range []string{v1alpha1.MigrationReserved, v1alpha1.MigrationEvicted, v1alpha1.MigrationComplete} {
		if c := meta.FindStatusCondition(m.Status.Conditions, step); c != nil {
			row.Reason, row.Message = c.Reason, c.Message
		}
	}
	return row
}
