package gangs

import (
	"testing"

	"k8s.io/component-base/metrics/testutil"

	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
)

// TestReasonsOfHolds: all of them are measured.
func TestReasonsOfHolds(t *testing.T) {
	s := newStage(t, testProfile)
	s.holds.Follow(hold.Holder{Group: "default/train"}, nil, []hold.Hold{{For: "planned", Node: "node-0000"}})
	s.holds.Nominate(hold.Hold{For: "nominated", Holder: hold.Holder{Group: "default/other"}, Node: "node-0000", Priority: 1})
	s.measure()
	for _, reason := range []string{"plan", "nomination"} {
		if n, err := testutil.GetGaugeMetricValue(holdsGauge.WithLabelValues(reason)); err != nil || n != 1 {
			t.Errorf("%g holds of reason %s, %v, want 1", n, reason, err)
		}
	}
}
