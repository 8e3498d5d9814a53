package scheduler

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
)

// Line is the position of a gang, or of a pod in no gang, among those that wait.
type Line struct {
	// Queue is the queue in which they wait; empty where the profile has no queues.
	Queue string `json:"queue,omitempty"`
	// At is the position, from 1, and Of the number of those that wait.
	At int `json:"at"`
	Of int `json:"of"`
	// First is the first of them: "gang a/b", or "pod a/b".
	First string `json:"first,omitempty"`
}

// Line returns the position of a pod or its gang among those of its queue that wait, have their turn or did not fit, as
// the queue orders them. Where its profile has no queues, it is the position among the gangs of the profile that have
// all their members and no place, as the scheduler tries them. Line returns false where the pod does not wait in this
// way.
func (s *Set) Line(pod *v1.Pod) (line Line, waits bool) {
	if line.Queue = s.queues.QueueOf(pod); line.Queue != "" {
		line.At, line.Of, line.First = s.queues.Line(pod)
		return line, line.At > 0
	}
	key, ok := s.gangs.GangOf(pod)
	if !ok {
		return Line{}, false
	}
	waiting := s.gangs.Waiting(pod.Spec.SchedulerName)
	line.At = 1 + slices.IndexFunc(waiting, func(a *gangstate.Attempt) bool {
		return slices.ContainsFunc(a.Gangs, func(need gangstate.Need) bool { return need.Key == key })
	})
	if line.At == 0 {
		return Line{}, false
	}
	line.Of, line.First = len(waiting), "gang "+waiting[0].Gangs[0].Key.String()
	return line, true
}

// Reserves reports whether the profile of a pod has pods use Reservations.
func (s *Set) Reserves(pod *v1.Pod) bool { return s.reserving[pod.Spec.SchedulerName] }
