package owners

import (
	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// Owned returns, by name, how many of some pods own each of these Reservations, without Reservations that none owns. It
// ignores whether a pod names another Reservation. It fails if the owners of one cannot be parsed.
func Owned(list []*v1alpha1.Reservation, pods []*v1.Pod) (map[string]int, error) {
	var index Index
	for _, r := range list {
		of, err := OfReservation(r)
		if err != nil {
			return nil, err
		}
		index.Set(r.Name, of...)
	}
	counts := map[string]int{}
	for _, pod := range pods {
		for _, name := range index.Of(pod) {
			counts[name]++
		}
	}
	return counts, nil
}
