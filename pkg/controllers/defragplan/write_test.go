package defragplan

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics/testutil"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/defrag/migration"
	"github.com/lockstep-sh/lockstep/test/helpers/fakeapi"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// TestEndIsTold: a plan that ends is told by an event and counted, also where it has said before why it stops.
func TestEndIsTold(t *testing.T) {
	ended.Reset()
	now := time.Unix(1000, 0)
	p := &v1alpha1.DefragmentationPlan{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p"}}
	p.Status.Phase = v1alpha1.DefragmentationRunning
	p.Status.Moves = make([]v1alpha1.PlannedMove, 2)
	meta.SetStatusCondition(&p.Status.Conditions, metav1.Condition{Type: v1alpha1.DefragmentationComplete, Status: metav1.ConditionFalse, Reason: v1alpha1.DefragmentationReasonMoving})
	c := fakeapi.New(p).Build()
	must.Succeed(t, c.Get(t.Context(), client.ObjectKey{Name: "p"}, p))
	told := events.NewFakeRecorder(9)
	r := &reconciler{client: c, live: c, recorder: told, clock: testingclock.NewFakeClock(now)}
	moveIn := func(phase v1alpha1.MigrationPhase) *migration.Move {
		return &migration.Move{PodMigration: &v1alpha1.PodMigration{Status: v1alpha1.PodMigrationStatus{Phase: phase}}}
	}
	failed, running, done := moveIn(v1alpha1.MigrationFailed), moveIn(v1alpha1.MigrationRunning), moveIn(v1alpha1.MigrationSucceeded)
	for _, last := range []*migration.Move{running, done} {
		step := migration.NextPlan(p, migration.PlanSeen{Moves: map[int]*migration.Move{0: failed, 1: last}}, now)
		must.Succeed(t, r.write(t.Context(), p, step.Status))
	}
	if p.Status.Phase != v1alpha1.DefragmentationFailed {
		t.Fatalf("it is %s", p.Status.Phase)
	}
	close(told.Events)
	var list []string
	for one := range told.Events {
		list = append(list, one)
	}
	if all := strings.Join(list, "\n"); !strings.Contains(all, "Warning MoveFailed") {
		t.Errorf("no warning tells that it has failed: %q", all)
	}
	if n, err := testutil.GetCounterMetricValue(ended.WithLabelValues("Failed", v1alpha1.DefragmentationReasonMoveFailed)); err != nil || n != 1 {
		t.Errorf("%v plans are counted that failed (%v), want 1", n, err)
	}
}
