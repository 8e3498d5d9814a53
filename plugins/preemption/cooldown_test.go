package preemption

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// TestEvictionCooldown: a gang that lost pods to a preemptor loses no more for a while, except to this one while what
// was decided for it stands. The gang p of 2 has evicted v-2 and v-3 of 4, and needs room for 3 then.
func TestEvictionCooldown(t *testing.T) {
	takenBack := func(t *testing.T, s *stage, d *demand, ago time.Duration) {
		f := s.decide(t, d)
		s.execution(d, f).withdraw()
		s.pauses.record(d.attempt.Group, s.clock.Now().Add(-ago), 0, aborted, msgAborted)
	}
	for sentence, c := range map[string]struct {
		then func(*testing.T, *stage, *demand)
		want string
	}{
		"places are held for it": {func(*testing.T, *stage, *demand) {}, "v-1"},
		"others of its victims have not ended": {func(_ *testing.T, s *stage, d *demand) {
			s.Holds.DropNominations(s.holder(d))
			s.Underway.AddVictims(s.Gangs, s.decision(d), members("w", 1, 0, 10, 1, "n1"))
		}, "v-1"},
		"what it decided next was taken back":             {func(t *testing.T, s *stage, d *demand) { takenBack(t, s, d, 0) }, "v-1"},
		"that was so, and it did not come again for long": {func(t *testing.T, s *stage, d *demand) { takenBack(t, s, d, time.Minute) }, "none"},
		"it gave its places back":                         {func(_ *testing.T, s *stage, d *demand) { s.Holds.DropNominations(s.holder(d)) }, "none"},
		"its members run, and it is run again": {func(_ *testing.T, s *stage, d *demand) {
			s.Holds.PodBound("p-0", "n0")
			s.Holds.PodBound("p-1", "n0")
		}, "none"},
		"its next run has places that are held": {func(t *testing.T, s *stage, d *demand) {
			s.Holds.DropNominations(s.holder(d))
			if got := s.victimsOf(t, d); got != "none" {
				t.Errorf("victims %q before", got)
			}
			s.Holds.Nominate(hold.Hold{For: "p-0", Holder: s.holder(d), Node: "n0", Priority: d.gang.Priority, Claim: s.Holds.NewClaim()})
		}, "none"},
	} {
		t.Run(sentence, func(t *testing.T) {
			victims, preemptor := members("v", 4, 1, 10, 1, "n0"), members("p", 3, 2, 100, 1)
			objects := objectsOf(victims, preemptor)
			s := newStage(t, []*v1.Node{node("n0", 4, "r0")}, victims, objects...)
			server{}.stand(s.fw.ClientSet().(*fake.Clientset))
			s.args.EvictionCooldown.Duration = time.Hour
			first := s.demand(t, gangspec.Spec{}, preemptor[:2]...)
			s.carryOutNow(t, first)
			await.Until(t, "the victims have ended", func() bool { return s.Underway.Victims(s.holder(first)) == 0 })
			other := s.demand(t, gangspec.Spec{}, members("q", 1, 1, 100, 1)...)
			if got := s.victimsOf(t, other); got != "none" || other.protectedUntil.IsZero() {
				t.Errorf("another preemptor: victims %q, spared until %s", got, other.protectedUntil)
			}
			d := s.demand(t, gangspec.Spec{}, preemptor...)
			c.then(t, s, d)
			if got := s.victimsOf(t, d); got != c.want {
				t.Errorf("victims %q, want %q", got, c.want)
			}
		})
	}
}
