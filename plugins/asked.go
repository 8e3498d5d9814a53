package plugins

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
)

// Line is where a gang, or a pod in none, stands among those that wait.
type Line struct {
	// Queue is the one in which they wait; empty where the profile has no queues.
	Queue string `json:"queue,omitempty"`
	// At counts from 1, and Of is how many they are.
	At int `json:"at"`
	Of int `json:"of"`
	// First is the one that comes first: "gang a/b", or "pod a/b".
	First string `json:"first,omitempty"`
}

// Line returns where a pod or its gang stands among those of its queue that wait, have their turn or did not fit, as the queue orders them;
// and where its profile has no queues, among the gangs of the profile that have all their members and no place, as the scheduler tries
// them. It returns false where it does not wait so.
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
	line.At = 1 + slices.IndexFunc(waiting, func(a *gang.Attempt) bool {
		return slices.ContainsFunc(a.Gangs, func(need gang.Need) bool { return need.Key == key })
	})
	if line.At == 0 {
		return Line{}, false
	}
	line.Of, line.First = len(waiting), "gang "+waiting[0].Gangs[0].Key.String()
	return line, true
}

// Reserves reports whether the profile of a pod has pods use Reservations.
func (s *Set) Reserves(pod *v1.Pod) bool { return s.reserving[pod.Spec.SchedulerName] }
