package gang

import (
	v1 "k8s.io/api/core/v1"
)

// Want is what is to be placed if a pod that the gate lets through is scheduled.
type Want struct {
	// Job names what is placed together: the group of the pod's gang; empty for a pod that
	// is in none.
	Job string
	// Pods are those that have to be placed.
	Pods []*v1.Pod
	// Ready tells that the gang runs already.
	Ready bool
}

// Wants answers it. It answers false for pods whose place is decided: they follow a plan.
func (s *Gangs) Wants(pod *v1.Pod) (Want, bool) {
	m := s.members[pod.UID]
	switch {
	case m == nil:
		return Want{Pods: []*v1.Pod{pod}}, true
	case m.state != Pending:
		return Want{}, false
	case m.gang.satisfied():
		return Want{Job: m.gang.group.key().String(), Pods: []*v1.Pod{m.pod}, Ready: true}, true
	}
	want := Want{Job: m.gang.group.key().String()}
	for _, g := range m.gang.group.gangs {
		pods := podsOf(g.sorted((*member).eligible))
		want.Pods = append(want.Pods, pods[:min(g.need(), len(pods))]...)
	}
	return want, true
}

// QueueOf is the queue that the PodGroup of a gang names; empty for none.
func (s *Gangs) QueueOf(key Key) string {
	g := s.gangs[key]
	if g == nil {
		return ""
	}
	for _, object := range g.objects {
		if object != nil && object.Queue != "" {
			return object.Queue
		}
	}
	return ""
}
