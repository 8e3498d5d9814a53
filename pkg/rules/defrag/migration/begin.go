package migration

import (
	"fmt"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// moving computes the step of a plan whose moves may begin.
func (s *planStep) moving(c progress) {
	s.resume()
	idle := s.waitingToEvict()
	evicts := len(s.out.Resume)+len(idle) > 0
	switch {
	case evicts && s.seen.Doubt != "":
		s.out.Resume, s.out.Suspend, s.out.Hold = nil, idle, true
		s.set(v1alpha1.DefragmentationReasonMoving,
			fmt.Sprintf("%d of %d moves are done, and no more begin as long as this is so: %s", c.cleared, len(s.p.Status.Moves),
				s.seen.Doubt))
		return
	case evicts && !s.seen.Checked:
		s.out.Resume, s.out.Check = nil, true
		return
	case evicts && s.seen.Futile != "":
		s.out.Resume = nil
		s.stop(c, []string{s.seen.Futile})
		return
	}
	s.out.Hold, s.out.Make = true, s.movesToCreate()
	s.set(v1alpha1.DefragmentationReasonMoving, fmt.Sprintf("%d of %d moves are done", c.cleared, len(s.p.Status.Moves)))
}

// resume lets the next moves begin, up to the budget of evictions at a time.
func (s *planStep) resume() {
	most, busy := int(s.p.Spec.Budget.MaxEvictions), 0
	if most == 0 {
		most = defaultEvictions
	}
	for _, m := range s.seen.Moves {
		if !m.Spec.Suspend && !Ended(m.Status.Phase) {
			busy++
		}
	}
	for i, move := range s.p.Status.Moves {
		m := s.seen.Moves[i]
		if busy >= most || m == nil || !m.Spec.Suspend || Ended(m.Status.Phase) {
			continue
		}
		ready := true
		for _, before := range move.After {
			ready = ready && s.isCleared(int(before))
		}
		if ready {
			s.out.Resume = append(s.out.Resume, i)
			busy++
		}
	}
}

// waitingToEvict returns the moves that may begin and whose pods still wait for something else: a free target, a
// budget, or another move whose successor could not be told from theirs. That may take minutes, in which the goal may
// turn out not to start.
func (s *planStep) waitingToEvict() (list []int) {
	for i := range s.p.Status.Moves {
		if m := s.seen.Moves[i]; m != nil && m.mayBegin() && !m.mayBeEvicted() &&
			m.condition(v1alpha1.MigrationEvicted).Reason != v1alpha1.MigrationReasonEvicting {
			list = append(list, i)
		}
	}
	return list
}
