package owners

import (
	"cmp"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate"
)

// OfReservation returns which pods may use a Reservation. The schema rejects what it cannot parse.
func OfReservation(r *v1alpha1.Reservation) ([]Owner, error) {
	list := make([]Owner, len(r.Spec.Owners))
	for i := range r.Spec.Owners {
		one, err := ownerOf(&r.Spec.Owners[i], reservationstate.Namespace(r))
		if err != nil {
			return nil, fmt.Errorf("spec.owners[%d].%w", i, err)
		}
		list[i] = one
	}
	return list, nil
}

func ownerOf(o *v1alpha1.ReservationOwner, namespace string) (one Owner, err error) {
	if o.Object != nil {
		if one.Pod = o.Object.UID; one.Pod == "" {
			one.Named = types.NamespacedName{Namespace: o.Object.Namespace, Name: o.Object.Name}
		}
	}
	if c := o.Controller; c != nil {
		gv, err := schema.ParseGroupVersion(c.APIVersion)
		if err != nil {
			return one, fmt.Errorf("controller.apiVersion: %w", err)
		}
		one.Controller = &Controller{Group: gv.Group, Kind: c.Kind, Namespace: c.Namespace, Name: c.Name, UID: c.UID}
	}
	if o.LabelSelector != nil {
		if one.Selector, err = metav1.LabelSelectorAsSelector(o.LabelSelector); err != nil {
			return one, fmt.Errorf("labelSelector: %w", err)
		}
		one.Namespace = cmp.Or(o.Namespace, namespace)
	}
	if o.PodGroup != "" {
		key, err := gangspec.ParseKey(o.PodGroup)
		if err != nil {
			return one, fmt.Errorf("podGroup: %w", err)
		}
		one.Gang = &key
	}
	return one, nil
}
