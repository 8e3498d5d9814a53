package reservations

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/lockstep-sh/lockstep/pkg/reservations/reservepods"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate"
)

// A Reservation that names its nodes is promised what becomes free there, before it has a place: the ledger holds it
// for the reserve pods alone, even beyond the node's free capacity. The promise ends once the place is found, and while
// no place is sought. A Reservation that is new here counts as sought: the scheduler may have been restarted.

// promiseOf returns the ledger's holder of what is promised to a Reservation.
func promiseOf(reservation types.UID) hold.Holder {
	return hold.Holder{Profile: "reservation", Group: string(reservation) + "/promised"}
}

// promiseID returns the ledger's ID of the promise of a placement.
func promiseID(reservation types.UID, index int32) hold.ID {
	return idOf(reservation, index) + "/promised"
}

// promises returns the holders of what is promised to the Reservation of a reserve pod; none if nothing is.
func (r *Registry) promises(pod *v1.Pod) []hold.Holder {
	name, _, _ := reservepods.PlacementOf(pod)
	r.mu.RLock()
	defer r.mu.RUnlock()
	if e := r.entries[name]; e != nil && len(e.promised) > 0 {
		return []hold.Holder{promiseOf(e.object.UID)}
	}
	return nil
}

// holdPromises makes the ledger hold exactly what is promised to a Reservation; existing placements are held already.
// acting must be held.
func (r *Registry) holdPromises(e *entry) {
	nodes := e.object.Spec.NodeNames
	if len(nodes) == 0 || r.clock.Now().Before(reservationstate.Start(e.object)) {
		return
	}
	wanted := map[int32]string{}
	for _, index := range reservationstate.Missing(e.object) {
		if int(index) < len(nodes) && !e.unsought {
			wanted[index] = nodes[index]
		}
	}
	r.setPromises(e, wanted)
}

// setPromises makes the ledger hold exactly these nodes for missing placements, by index. acting must be held.
func (r *Registry) setPromises(e *entry, wanted map[int32]string) {
	r.mu.Lock()
	was := e.promised
	e.promised = wanted
	r.mu.Unlock()
	for _, index := range sortedKeys(was) {
		if _, still := wanted[index]; !still {
			r.holds.DropReserved(promiseID(e.object.UID, index))
		}
	}
	for _, index := range sortedKeys(wanted) {
		id := promiseID(e.object.UID, index)
		if now, kept := r.holds.Hold(id); kept && maps.Equal(now.Request, e.demand.Request) {
			continue
		}
		r.holds.Reserve(hold.Hold{
			ID: id, Holder: promiseOf(e.object.UID), Node: wanted[index], Reason: hold.Reservation,
			Priority: corev1helpers.PodPriority(e.template), Pods: 1, Request: e.demand.Request, Ports: e.demand.Ports,
		})
	}
}

// pinToNode restricts a pod to a node, in addition to its own constraints.
func pinToNode(pod *v1.Pod, node string) {
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
