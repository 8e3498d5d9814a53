package schedulersetup

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/pools"
)

// Line returns the position of a pod or its gang, from 1, among those of its queue that wait, have their turn or did
// not fit, as the queue orders them; how many these are; and the first of them: "gang a/b", or "pod a/b". Where its
// profile has no queues, it is the position among the gangs of the profile that have all their members and no place, as
// the scheduler tries them. The position is 0 where the pod does not wait in this way.
func (s *Set) Line(pod *v1.Pod) (at, of int, first string) {
	if s.queues.QueueOf(pod) != "" {
		return s.queues.Line(pod)
	}
	key, _ := s.gangs.GangOf(pod)
	if s.gangs.InNoGang(pod) {
		return 0, 0, ""
	}
	waiting := s.gangs.Waiting(pod.Spec.SchedulerName)
	at = 1 + slices.IndexFunc(waiting, func(a *gangstate.Attempt) bool {
		return slices.ContainsFunc(a.Gangs, func(need gangstate.Need) bool { return need.Key == key })
	})
	if at == 0 {
		return 0, 0, ""
	}
	return at, len(waiting), "gang " + waiting[0].Gangs[0].Key.String()
}

// Uncounted returns the free capacity that no queue shares, since no pod can come to the nodes that have it.
func (s *Set) Uncounted() []pools.Uncounted { return s.queues.Uncounted() }

// Reserves reports whether the profile of a pod has pods use Reservations.
func (s *Set) Reserves(pod *v1.Pod) bool { return s.reserved.Serves(pod.Spec.SchedulerName) }
