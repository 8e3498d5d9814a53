package invariant

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

func moving(c *Config) { c.Reservations, c.Moves = true, true }

// movedOff returns the observations of a pod that the Eviction API deletes.
func (s *story) movedOff(name string) []Observation {
	return []Observation{s.changed(name, func(p *v1.Pod) {
		p.Status.Conditions = []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: byEvictionAPI}}
	}), s.deleting(name)}
}

// migration returns the observation of a PodMigration for a pod.
func (s *story) migration(name, pod, phase string, reserved bool) Observation {
	return MigrationSeen{Migration{Key: "a/" + name, UID: types.UID(name), Pod: s.pods[pod].UID, Phase: phase, Reserved: reserved, Evicted: phase == "Succeeded"}}
}

func plan(name, phase string, moves int) Observation {
	return PlanSeen{Plan{Name: name, UID: types.UID(name), Phase: phase, Moves: moves}}
}

// TestMoves: pods are only evicted for one migration, whose target is reserved, and all that has begun ends.
func TestMoves(t *testing.T) {
	for name, c := range map[string]tale{
		"reserved, then evicted": {tell: func(s *story) {
			s.at(1, s.pod("x"), s.bound("x", 0), plan("p", "Running", 1), s.migration("m", "x", "Pending", false))
			s.at(2, s.migration("m", "x", "Running", true))
			s.at(3, s.movedOff("x")...)
			s.at(4, s.migration("m", "x", "Succeeded", true), plan("p", "Succeeded", 1))
			s.at(20)
			s.check.CheckMoves(0)
		}},
		"the hold is heard of late": {tell: func(s *story) {
			s.at(1, s.pod("x"), s.bound("x", 0))
			migration := s.migration("m", "x", "Running", true)
			s.at(2, s.movedOff("x")...)
			s.at(4, migration)
			s.at(20)
		}},
		"another move was given up before": {tell: func(s *story) {
			s.at(1, s.pod("x"), s.bound("x", 0), s.migration("n", "x", "Pending", true))
			s.at(2, s.migration("n", "x", "Failed", false), s.migration("m", "x", "Running", true))
			s.at(3, s.movedOff("x")...)
			s.at(20)
		}},
		"evicted before anything is reserved": {tell: func(s *story) {
			s.at(1, s.pod("x"), s.bound("x", 0), s.migration("m", "x", "Pending", false))
			s.at(2, s.movedOff("x")...)
			s.at(20)
		}, want: "no pod moved before its target is reserved: pod a/x: "},
		"evicted for nothing": {tell: func(s *story) {
			s.at(1, s.pod("x"), s.bound("x", 0))
			s.at(2, s.movedOff("x")...)
			s.at(20)
		}, want: "no pod moved for nothing, or twice: pod a/x: "},
		"evicted for another": {tell: func(s *story) {
			s.at(1, s.pod("x"), s.bound("x", 0), s.pod("y"), s.bound("y", 0), s.migration("m", "y", "Running", true))
			s.at(2, s.movedOff("x")...)
			s.at(20)
		}, want: "no pod moved for nothing, or twice: pod a/x: "},
		"two targets for one pod": {tell: func(s *story) {
			s.at(1, s.pod("x"), s.bound("x", 0), s.migration("m", "x", "Running", true), s.migration("n", "x", "Running", true))
			s.at(2, s.movedOff("x")...)
			s.at(20)
		}, want: "no pod moved for nothing, or twice: pod a/x: "},
		"a failed try before": {tell: func(s *story) {
			s.at(1, s.pod("x"), s.bound("x", 0), s.migration("m", "x", "Failed", false), s.migration("n", "x", "Running", true))
			s.at(2, s.movedOff("x")...)
			s.at(20)
		}},
		"its user deletes it": {tell: func(s *story) {
			s.at(1, s.pod("x"), s.bound("x", 0))
			s.at(2, s.deleting("x"))
			s.at(20)
		}},
		"the scheduler evicts it": {tell: func(s *story) {
			s.at(1, s.pod("x"), s.bound("x", 0), s.pod("y", asking(8)))
			s.at(2, s.evicted("x", "y")...)
			s.at(3, s.gone("x"), s.bound("y", 0))
			s.at(20)
		}},
		"what has ended begins again": {tell: func(s *story) {
			s.at(1, s.pod("x"), s.migration("m", "x", "Failed", false))
			s.at(2, s.migration("m", "x", "Running", false))
		}, want: "what is said of Reservations is so: migration a/m: it was Failed, and is Running"},
		"a plan goes on for ever": {tell: func(s *story) {
			s.at(1, plan("p", "Running", 1), plan("q", "Pending", 0), plan("r", "Running", 1), PlanGone{"r"})
			s.check.CheckMoves(0)
		}, want: "nothing left over: plan p: "},
		"a migration goes on for ever": {tell: func(s *story) {
			s.at(1, s.pod("x"), s.migration("m", "x", "Running", false))
			s.at(2, s.migration("m", "x", "Running", false))
			s.check.CheckMoves(0)
		}, want: "nothing left over: migration a/m: "},
		"a target is still held": {tell: func(s *story) {
			s.at(1, ReservationSeen{reserved("r", 10, func(r *Reserved) { r.ForMove = true }, 0)}, ReservationSeen{reserved("s", 11, nil, 1)})
			s.check.CheckMoves(0)
		}, want: "nothing left over: Reservation r: "},
	} {
		t.Run(name, func(t *testing.T) {
			s := tell(t, moving)
			c.tell(s)
			s.want(c.want)
		})
	}
}

// TestOwners: a target is used by the pod that it is for.
func TestOwners(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Reserved)
		want   string
	}{
		"the pod":            {func(r *Reserved) { r.Labels, r.Pod = nil, "x#1" }, ""},
		"another pod":        {func(r *Reserved) { r.Labels, r.Pod = nil, "y#1" }, "none of its owners"},
		"another controller": {func(r *Reserved) { r.Labels, r.Controller = nil, "y" }, "none of its owners"},
	} {
		t.Run(name, func(t *testing.T) {
			s := tell(t, moving)
			s.at(1, ReservationSeen{reserved("r", 10, c.change, 0)}, s.pod("x"), s.stored("x", 11, using("r", 0, 0)))
			s.at(20)
			if found := s.found(); !strings.Contains(found, c.want) || c.want == "" && found != "" {
				t.Errorf("found %q, want %q", found, c.want)
			}
		})
	}
}
