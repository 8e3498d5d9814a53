package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate"
)

// Reservation is what is held for pods that are yet to come.
type Reservation struct {
	Name  string `json:"name"`
	Phase string `json:"phase"`
	// Replicas is how many placements it asks for; Held, how many of them are held now, used or not.
	Replicas int `json:"replicas"`
	Held     int `json:"held"`
	// Used is how many pods use it.
	Used int `json:"used"`
	// Nodes are the nodes of the placements that are held, each once.
	Nodes []string `json:"nodes,omitempty"`
	// Owners are the pods that may use it, in words.
	Owners      []string        `json:"owners"`
	Allocatable v1.ResourceList `json:"allocatable,omitempty"`
	Allocated   v1.ResourceList `json:"allocated,omitempty"`
	// Expires is when it ends, used or not; nil for never. Ended is when it did.
	Expires *metav1.Time `json:"expires,omitempty"`
	Ended   *metav1.Time `json:"ended,omitempty"`
	// Reason and Message are why it is held, or not.
	Reason  string      `json:"reason"`
	Message string      `json:"message"`
	Created metav1.Time `json:"created"`
}

// Reservations lists Reservations by name.
func Reservations(reservations []*v1alpha1.Reservation) []Reservation {
	rows := make([]Reservation, 0, len(reservations))
	for _, r := range reservations {
		rows = append(rows, reservationRow(r))
	}
	slices.SortFunc(rows, func(a, b Reservation) int { return gangspec.CompareNatural(a.Name, b.Name) })
	return rows
}

func reservationRow(r *v1alpha1.Reservation) Reservation {
	row := Reservation{
		Name: r.Name, Phase: string(cmp.Or(r.Status.Phase, v1alpha1.ReservationPending)),
		Replicas: reservationstate.Replicas(r), Used: int(r.Status.OwnerCount),
		Allocatable: r.Status.Allocatable, Allocated: r.Status.Allocated, Ended: r.Status.EndTime,
		Created: r.CreationTimestamp,
	}
	for _, p := range reservationstate.Held(r) {
		row.Held++
		row.Nodes = append(row.Nodes, p.NodeName)
	}
	slices.SortFunc(row.Nodes, gangspec.CompareNatural)
	row.Nodes = slices.Compact(row.Nodes)
	for i := range r.Spec.Owners {
		row.Owners = append(row.Owners, ownerText(&r.Spec.Owners[i]))
	}
	if at := reservationstate.Expiry(r); !at.IsZero() {
		row.Expires = &metav1.Time{Time: at}
	}
	// Only the scheduler says why there is no place.
	for _, of := range []string{v1alpha1.ReservationReady, v1alpha1.ReservationScheduled} {
		c := meta.FindStatusCondition(r.Status.Conditions, of)
		if c != nil && (of == v1alpha1.ReservationReady || row.Phase == string(v1alpha1.ReservationPending) &&
			c.Status == metav1.ConditionFalse) {
			row.Reason, row.Message = c.Reason, c.Message
		}
	}
	return row
}

// ownerText puts an entry of owners into words: all of it has to apply.
func ownerText(o *v1alpha1.ReservationOwner) string {
	var parts []string
	if o.PodGroup != "" {
		parts = append(parts, "gang "+o.PodGroup)
	}
	if o.Controller != nil {
		parts = append(parts, fmt.Sprintf("%s %s/%s", o.Controller.Kind, o.Controller.Namespace, o.Controller.Name))
	}
	if o.Object != nil {
		parts = append(parts, fmt.Sprintf("pod %s/%s", o.Object.Namespace, o.Object.Name))
	}
	if o.LabelSelector != nil {
		text := "pods with " + metav1.FormatLabelSelector(o.LabelSelector)
		if o.Namespace != "" {
			text += " in " + o.Namespace
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " and ")
}
