package fairshare

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/ledger"
)

// heard are pods whose holds have changed. The ledger reports them with locks held that are taken
// under the Dispatcher's.
type heard struct {
	mu   sync.Mutex
	pods []types.UID
}

// holdsChanged notes the pods until the Dispatcher is next locked, which is soon.
func (d *Dispatcher) holdsChanged(pods []types.UID) {
	d.heard.mu.Lock()
	d.heard.pods = append(d.heard.pods, pods...)
	d.heard.mu.Unlock()
	d.signal()
}

// syncHolds updates what the ledger holds for pods: it counts as used by their queues,
// from when it is held until it is given back.
func (d *Dispatcher) syncHolds() {
	d.heard.mu.Lock()
	heard := d.heard.pods
	d.heard.pods = nil
	d.heard.mu.Unlock()
	for _, uid := range heard {
		if _, counted := d.usage.Pod(uid); !counted || d.assumed[uid] != "" {
			continue
		}
		before := d.places[uid]
		pod := d.countedPod(uid)
		if _, held := d.holds.Place(uid); !held && before.Planned && pod != nil {
			if _, undecided := d.gangs.Wants(pod); !undecided {
				continue // it is being reserved there
			}
		}
		if d.syncHold(uid); d.places[uid] != before && pod != nil {
			d.recount(pod)
		}
	}
}

// syncHold reads from the ledger what is held for a pod.
func (d *Dispatcher) syncHold(uid types.UID) {
	if at, held := d.holds.Place(uid); held {
		d.places[uid] = at
	} else {
		delete(d.places, uid)
	}
}

// place returns where a waiting pod is to go: by the ledger, or where it holds nothing, by the pod's
// status.
func (d *Dispatcher) place(pod *v1.Pod) ledger.Place {
	if at, held := d.places[pod.UID]; held {
		return at
	}
	return ledger.PlaceInStatus(pod)
}
