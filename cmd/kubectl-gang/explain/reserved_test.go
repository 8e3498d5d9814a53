package explain

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/status/decisions"
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

// TestHeldForOthers: where nodes were refused for what others hold, the Reservations that hold it are named.
func TestHeldForOthers(t *testing.T) {
	reservation := func(name string, amounts, used v1.ResourceList, nodes ...string) *v1alpha1.Reservation {
		r := &v1alpha1.Reservation{ObjectMeta: metav1.ObjectMeta{Name: name}}
		r.Spec.TTL = &metav1.Duration{} // no end
		r.Status = v1alpha1.ReservationStatus{Phase: v1alpha1.ReservationAvailable, Allocatable: amounts, Allocated: used}
		for i, node := range nodes {
			r.Status.Placements = append(r.Status.Placements, v1alpha1.ReservationPlacement{Index: int32(i), NodeName: node})
		}
		return r
	}
	cpu := func(n string) v1.ResourceList { return v1.ResourceList{v1.ResourceCPU: resource.MustParse(n)} }
	tonight := reservation("tonight", cpu("16"), nil, "n1", "n2")
	soon := reservation("soon", cpu("4"), nil, "n1")
	soon.Spec.Expires = &metav1.Time{Time: time.Unix(0, 0).Add(5 * time.Hour)}
	ended := reservation("ended", cpu("16"), nil, "n1")
	ended.Status.Phase = v1alpha1.ReservationSucceeded
	for sentence, c := range map[string]struct {
		list    []*v1alpha1.Reservation
		refused string
		own     []Reserved
		want    string
	}{
		"one holds it":              {[]*v1alpha1.Reservation{tonight}, hold.ErrReason, nil, "Held for others: 16 cpu on 2 nodes (n1, n2) by Reservation tonight"},
		"until it ends":             {[]*v1alpha1.Reservation{soon}, hold.ErrReason, nil, "Held for others: 4 cpu on 1 node (n1) by Reservation soon for 5h more"},
		"no node was refused":       {[]*v1alpha1.Reservation{tonight}, "Insufficient cpu", nil, ""},
		"it is the gang's":          {[]*v1alpha1.Reservation{tonight}, hold.ErrReason, []Reserved{{Name: "tonight", Members: 2}}, ""},
		"the gang names it in vain": {[]*v1alpha1.Reservation{tonight}, hold.ErrReason, []Reserved{{Name: "tonight"}}, "Held for others: 16 cpu on 2 nodes (n1, n2) by Reservation tonight"},
		"none holds any": {[]*v1alpha1.Reservation{
			ended, reservation("used", cpu("4"), cpu("4"), "n1"), reservation("lost", cpu("4"), nil),
			reservation("gpus", v1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}, nil, "n1"),
		}, hold.ErrReason, nil, ""},
		"several do": {[]*v1alpha1.Reservation{
			reservation("a", cpu("2"), nil, "n1"), tonight, reservation("c", cpu("24"), cpu("4"), "n1"), reservation("b", cpu("2"), nil, "n1"),
		}, hold.ErrReason, nil, "Held for others: 20 cpu on 1 node (n1) by Reservation c, 16 cpu on 2 nodes (n1, n2) by Reservation tonight, 2 cpu on 1 node (n1) by Reservation a and 1 more"},
	} {
		r := &Report{Gang: "a/b", Reservations: c.own, Cases: []Case{{Placement: &decisions.Decision{
			Fits: []decisions.Fit{{Gang: "a/b", Fits: 12, Min: 14, Short: map[string]string{"cpu": "8"}}}, Refusals: map[string]int{c.refused: 2},
		}}}}
		if got := r.heldForOthers(c.list, time.Unix(0, 0)); got != c.want {
			t.Errorf("%s: it says %q, want %q", sentence, got, c.want)
		}
	}
}
