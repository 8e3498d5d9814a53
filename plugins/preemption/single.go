package preemption

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
)

// singleAttempt returns the attempt to place one pod that did not fit. A pod without a gang is a gang of one, with its
// own preemption delay.
func (pl *GangPreemption) singleAttempt(pod *v1.Pod) *gangstate.Attempt {
	a := &gangstate.Attempt{Group: hold.SinglePod(pod.UID), Leader: pod.UID, Strict: true, Gangs: []gangstate.Need{{
		Key: gangstate.Key{Namespace: pod.Namespace, Name: pod.Name}, Spec: gangstate.Spec{Min: 1},
		Min: 1, Pending: []*v1.Pod{pod},
	}}}
	if !pl.Gangs.Single(pod) {
		return a // its gang runs and lacks it
	}
	if _, exists := pl.podByUID(pod.UID); !exists {
		return a // a reserve pod never exists, so its end would be missed
	}
	if delay, _ := gangstate.PreemptionDelayOf(pod); delay > 0 {
		first, _ := pl.firstMisses.LoadOrStore(pod.UID, pl.clock.Now())
		a.PreemptionDelay, a.Missed = delay, first.(time.Time)
	}
	return a
}
