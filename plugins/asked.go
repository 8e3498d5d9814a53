package plugins

import v1 "k8s.io/api/core/v1"

// What people ask of one pod is answered here.

// Reserves reports whether the profile of a pod has pods use Reservations.
func (s *Set) Reserves(pod *v1.Pod) bool { return s.reserving[pod.Spec.SchedulerName] }
