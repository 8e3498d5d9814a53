package preemption

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

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
		a.PreemptionDelay, a.Missed = delay, pl.firstMisses.record(pod.UID, pl.clock.Now())
	}
	return a
}

// firstMisses is when pods first did not fit. It is safe for concurrent use.
type firstMisses struct {
	mu sync.Mutex
	at map[types.UID]time.Time
}

// record records that a pod does not fit, and returns when it first did not.
func (m *firstMisses) record(pod types.UID, now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	first, known := m.at[pod]
	if !known {
		if m.at == nil {
			m.at = map[types.UID]time.Time{}
		}
		first = now
		m.at[pod] = now
	}
	return first
}

// drop drops a pod that is bound or gone.
func (m *firstMisses) drop(pod types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.at, pod)
}
