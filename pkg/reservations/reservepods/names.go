package reservepods

import (
	"fmt"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// prefix begins the name of each reserve pod. The API server refuses a pod of such a name.
const prefix = "reservation_"

// GroupName returns the name of the gang of a Reservation's pods.
func GroupName(reservation string) string { return prefix + reservation }

// PodName returns the name of the reserve pod for one placement of a Reservation.
func PodName(reservation string, index int) string {
	return fmt.Sprintf("%s%s_%d", prefix, reservation, index)
}

// reservationOf returns a reference to the Reservation that a reserve pod is made for, for events; nil for
// another pod.
func reservationOf(pod *v1.Pod) *v1.ObjectReference {
	name, _, ok := PlacementOf(pod)
	if !ok {
		return nil
	}
	return &v1.ObjectReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "Reservation", Name: name,
		UID: types.UID(strings.SplitN(string(pod.UID), "/", 2)[0]),
	}
}

// Words returns a message about a pod as users are told it: of a reserve pod, it names the Reservation in place of the
// gang of its pods.
func Words(pod *v1.Pod, message string) string {
	name, _, ok := PlacementOf(pod)
	if !ok {
		return message
	}
	return strings.ReplaceAll(message, fmt.Sprintf("gang %q", pod.Namespace+"/"+GroupName(name)),
		fmt.Sprintf("Reservation %q", name))
}

// UIDOf returns the UID of the reserve pod for a placement, in an attempt to find places.
func UIDOf(reservation types.UID, index int32, attempt int) types.UID {
	return types.UID(fmt.Sprintf("%s/%d/%d", reservation, index, attempt))
}

// IsReservePod reports whether the pod is a reserve pod. No pod of the API server is taken for one.
func IsReservePod(pod *v1.Pod) bool { return reserved(pod.Name) }

func reserved(name string) bool { return strings.HasPrefix(name, prefix) }

// PlacementOf returns the Reservation that a reserve pod is made for, and the index of its
// placement; false if the pod is none.
func PlacementOf(pod *v1.Pod) (reservation string, index int, ok bool) {
	rest, ok := strings.CutPrefix(pod.Name, prefix)
	if !ok {
		return "", 0, false
	}
	reservation, number, ok := strings.Cut(rest, "_") // no name in the API has one
	if !ok {
		return "", 0, false
	}
	index, err := strconv.Atoi(number)
	if err != nil || PodName(reservation, index) != pod.Name {
		return "", 0, false
	}
	return reservation, index, true
}
