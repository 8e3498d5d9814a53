package reservations

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
	"github.com/lockstep-sh/lockstep/plugins/internal/reservation"
	"github.com/lockstep-sh/lockstep/plugins/reservepods"
)

// A Reservation that names its nodes is promised what becomes free there, before it has a place: the ledger
// holds it for the reserve pods alone, also where there is no room yet. With the place the promise ends.

// promiseOf returns the holder, in the ledger, of what is promised to a Reservation.
func promiseOf(reservation types.UID) hold.Holder {
	return hold.Holder{Profile: "reservation", Group: string(reservation) + "/promised"}
}

// promiseID returns what the ledger calls the promise of a placement.
func promiseID(reservation types.UID, index int32) hold.ID {
	return idOf(reservation, index) + "/promised"
}

// promises returns the holders of what is promised to the Reservation of a reserve pod; none where nothing is.
func (r *Registry) promises(pod *v1.Pod) []hold.Holder {
	name, _, _ := reservepods.PlacementOf(pod)
	r.mu.RLock()
	defer r.mu.RUnlock()
	if e := r.entries[name]; e != nil && len(e.promised) > 0 {
		return []hold.Holder{promiseOf(e.object.UID)}
	}
	return nil
}

// promise makes the ledger hold what is promised to a Reservation, and no more. What has a place is held
// already. acting is held.
func (r *Registry) promise(e *entry) {
	if len(e.object.Spec.NodeNames) == 0 || r.clock.Now().Before(reservation.Start(e.object)) {
		return
	}
	wanted := reservation.Promised(e.object)
	r.mu.Lock()
	was := e.promised
	e.promised = wanted
	r.mu.Unlock()
	for _, index := range sortedKeys(was) {
		if _, still := wanted[index]; !still {
			r.holds.Drop(promiseID(e.object.UID, index))
		}
	}
	for _, index := range sortedKeys(wanted) {
		if _, known := was[index]; known {
			continue
		}
		r.holds.Keep(hold.Hold{
			ID: promiseID(e.object.UID, index), Holder: promiseOf(e.object.UID), Node: wanted[index], Reason: hold.Reservation,
			Priority: corev1helpers.PodPriority(e.template), Pods: 1, Request: e.demand.Request, Ports: e.demand.Ports,
		})
	}
}

// unpromise ends what is promised to a Reservation. acting is held.
func (r *Registry) unpromise(e *entry) {
	r.mu.Lock()
	was := e.promised
	e.promised = nil
	r.mu.Unlock()
	for _, index := range sortedKeys(was) {
		r.holds.Drop(promiseID(e.object.UID, index))
	}
}

// pin makes a pod be placed on a node, if its own constraints allow it there.
func pin(pod *v1.Pod, node string) {
	only := v1.NodeSelectorRequirement{Key: metav1.ObjectNameField, Operator: v1.NodeSelectorOpIn, Values: []string{node}}
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &v1.Affinity{}
	}
	if pod.Spec.Affinity.NodeAffinity == nil {
		pod.Spec.Affinity.NodeAffinity = &v1.NodeAffinity{}
	}
	affinity := pod.Spec.Affinity.NodeAffinity
	if affinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		affinity.RequiredDuringSchedulingIgnoredDuringExecution = &v1.NodeSelector{}
	}
	required := affinity.RequiredDuringSchedulingIgnoredDuringExecution
	if len(required.NodeSelectorTerms) == 0 {
		required.NodeSelectorTerms = []v1.NodeSelectorTerm{{}}
	}
	for i := range required.NodeSelectorTerms {
		term := &required.NodeSelectorTerms[i]
		term.MatchFields = append(term.MatchFields, only)
	}
}
