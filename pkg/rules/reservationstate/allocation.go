package reservationstate

import (
	"encoding/json"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// Allocation is the placement of a Reservation that a pod uses: the value of the annotation
// [v1alpha1.ReservationAllocatedAnnotation].
type Allocation struct {
	// Name and UID are those of the Reservation; one recreated under the same name is another one.
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
	// Index is the placement, from 0.
	Index int32 `json:"index"`
}

// String returns the annotation's value.
func (a Allocation) String() string {
	text, err := json.Marshal(a)
	if err != nil {
		panic(err) // two strings and a number
	}
	return string(text)
}

// AllocationOf returns what a pod uses; false if it uses nothing, or its annotation cannot be parsed.
func AllocationOf(pod *v1.Pod) (Allocation, bool) {
	var a Allocation
	err := json.Unmarshal([]byte(pod.Annotations[v1alpha1.ReservationAllocatedAnnotation]), &a)
	if err != nil || a.Name == "" || a.UID == "" || a.Index < 0 {
		return Allocation{}, false
	}
	return a, true
}
