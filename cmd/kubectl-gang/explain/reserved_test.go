package explain

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// lines are those about Reservations.
func lines(list []Reserved) (text string) {
	for i := range list {
		text += list[i].words() + "\n"
	}
	return text
}

func TestReserved(t *testing.T) {
	gpus := func(n string) v1.ResourceList { return v1.ResourceList{"nvidia.com/gpu": resource.MustParse(n)} }
	reservation := func(name, gang string, change func(*v1alpha1.ReservationStatus)) *v1alpha1.Reservation {
		r := &v1alpha1.Reservation{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ReservationSpec{Replicas: 2, Owners: []v1alpha1.ReservationOwner{{PodGroup: gang}}}}
		r.Status = v1alpha1.ReservationStatus{
			Phase: v1alpha1.ReservationAvailable, Allocatable: gpus("8"),
			Placements: []v1alpha1.ReservationPlacement{{NodeName: "node-2"}, {Index: 1, NodeName: "node-10"}},
		}
		change(&r.Status)
		return r
	}
	as := func(*v1alpha1.ReservationStatus) {}
	const mine = "team/train"
	for sentence, c := range map[string]struct {
		list  []*v1alpha1.Reservation
		named string
		want  string
	}{
		"none":                {nil, "", ""},
		"it is for others":    {[]*v1alpha1.Reservation{reservation("r", "team/other", as)}, "", ""},
		"it is there":         {[]*v1alpha1.Reservation{reservation("r", mine, as)}, "", "Reservation r: Available, for 2 members; 2 of 2 placements are held, and 0 pods use them, on node-2, node-10\n"},
		"it has ended":        {[]*v1alpha1.Reservation{reservation("r", mine, func(s *v1alpha1.ReservationStatus) { s.EndTime = &metav1.Time{Time: time.Unix(1, 0)} })}, "", ""},
		"it has no place yet": {[]*v1alpha1.Reservation{reservation("r", mine, func(s *v1alpha1.ReservationStatus) { s.Phase, s.Placements = "", nil })}, "", "Reservation r: Pending, for 2 members; 0 of 2 placements are held, and 0 pods use them; it cannot be used: it holds nothing yet\n"},
		"it was used": {[]*v1alpha1.Reservation{reservation("r", mine, func(s *v1alpha1.ReservationStatus) { s.Placements[0].Spent, s.Placements[1].Spent = true, true })}, "",
			"Reservation r: Available, for 2 members; 0 of 2 placements are held, and 0 pods use them; it cannot be used: all of it has been used\n"},
		"it is in use": {[]*v1alpha1.Reservation{reservation("r", mine, func(s *v1alpha1.ReservationStatus) { s.OwnerCount, s.Allocated = 3, gpus("8") })}, "",
			"Reservation r: Available, for 2 members; 2 of 2 placements are held, and 3 pods use them; it cannot be used: pods use all that it holds\n"},
		"they name another": {[]*v1alpha1.Reservation{reservation("r", mine, as), reservation("x", "team/other", as)}, "x",
			"Reservation r: Available, for 2 members; 2 of 2 placements are held, and 0 pods use them; it cannot be used: all members name another\n" +
				"Reservation x: Available, for 0 members; 2 of 2 placements are held, and 0 pods use them; it cannot be used: members name it, and are none of its owners\n"},
		"they name one that is not there": {nil, "x", "Reservation x: members name it, and it does not exist\n"},
	} {
		var pods []*v1.Pod
		for _, name := range []string{"a", "b"} {
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, Labels: map[string]string{v1alpha1.PodGroupXLabel: "train"}, Annotations: map[string]string{}}}
			if c.named != "" {
				pod.Annotations[v1alpha1.ReservationAnnotation] = c.named
			}
			pods = append(pods, pod)
		}
		list, err := reserved(c.list, pods)
		must.Succeed(t, err)
		if diff := cmp.Diff(c.want, lines(list)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", sentence, diff)
		}
	}
}
