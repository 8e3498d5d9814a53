package reservationlifecycle

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

func TestSum(t *testing.T) {
	used := v1.ResourceList{v1.ResourceCPU: apiresource.MustParse("500m")}
	held := *reserve(2, true)
	held.Status = v1alpha1.ReservationStatus{Phase: v1alpha1.ReservationAvailable, Placements: placements("n1", "n2")}
	held.Status.Placements[0].Allocated = used
	spent := *held.DeepCopy()
	spent.CreationTimestamp = metav1.NewTime(made.Add(-time.Hour))
	spent.Spec.StartTime = new(metav1.NewTime(made.Add(30 * time.Minute)))
	spent.Status.Placements[0].Spent = true
	over := *held.DeepCopy()
	over.Status.Phase = v1alpha1.ReservationFailed
	got := sum([]v1alpha1.Reservation{held, spent, over, *reserve(1, true)}, made.Add(time.Hour))
	want := sums{
		count:    map[v1alpha1.ReservationPhase]int{"Pending": 1, "Available": 2, "Succeeded": 0, "Failed": 1},
		age:      map[v1alpha1.ReservationPhase]time.Duration{"Pending": time.Hour, "Available": time.Hour},
		reserved: resource.Vector{"cpu": 6000, "pods": 3}, allocated: resource.Vector{"cpu": 500},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(sums{})); diff != "" {
		t.Errorf("sums (-want +got):\n%s", diff)
	}
}
