package registry

import (
	"testing"
	"time"

	"k8s.io/component-base/metrics/testutil"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
)

// TestReasonsOfHolds: holds of all reasons are measured.
func TestReasonsOfHolds(t *testing.T) {
	s := newStage(t, testProfile)
	s.holds.FollowPlan(hold.Holder{Group: "default/train"}, nil, []hold.Hold{{For: "planned", Node: "node-0000"}})
	s.holds.Nominate(hold.Hold{For: "nominated", Holder: hold.Holder{Group: "default/other"}, Node: "node-0000", Priority: 1})
	s.measure()
	for _, reason := range []string{"plan", "nomination"} {
		if n, err := testutil.GetGaugeMetricValue(holdsGauge.WithLabelValues(reason)); err != nil || n != 1 {
			t.Errorf("%g holds of reason %s, %v, want 1", n, reason, err)
		}
	}
}

// TestLongestWait: it is the time since a gang was complete, and 0 once it is not.
func TestLongestWait(t *testing.T) {
	s := newStage(t, testProfile)
	clock := testingclock.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	s.clock = clock
	members := makeMembers("train", 2)
	check := func(want float64) {
		t.Helper()
		s.measure()
		if got, err := testutil.GetGaugeMetricValue(longestWait.WithLabelValues(testProfile)); err != nil || got != want {
			t.Errorf("the longest wait is %g s, %v; want %g", got, err, want)
		}
	}
	for _, pod := range members {
		s.of(testProfile).UpdateGangs(s.ctx, func(g *gangstate.Gangs, now time.Time) gangstate.Effects { return g.ObservePod(pod, now) })
	}
	clock.Step(90 * time.Second)
	check(90)
	s.of(testProfile).UpdateGangs(s.ctx, func(g *gangstate.Gangs, now time.Time) gangstate.Effects { return g.PodEnded(members[0].UID, now) })
	check(0)
}
