package owners

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

func TestOwned(t *testing.T) {
	of := func(name string, owners ...v1alpha1.ReservationOwner) *v1alpha1.Reservation {
		return &v1alpha1.Reservation{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ReservationSpec{Owners: owners}}
	}
	pod := func(name, app string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, Labels: map[string]string{v1alpha1.PodGroupXLabel: "train", "app": app}}}
	}
	got, err := Owned([]*v1alpha1.Reservation{
		of("gang", v1alpha1.ReservationOwner{PodGroup: "team/train"}),
		of("another", v1alpha1.ReservationOwner{PodGroup: "team/other"}),
		of("app", v1alpha1.ReservationOwner{PodGroup: "team/other"}, v1alpha1.ReservationOwner{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}, Namespace: "team"}),
	}, []*v1.Pod{pod("a", "x"), pod("b", "y")})
	must.Succeed(t, err)
	if diff := cmp.Diff(map[string]int{"gang": 2, "app": 1}, got); diff != "" {
		t.Errorf("owned (-want +got):\n%s", diff)
	}
	if _, err := Owned([]*v1alpha1.Reservation{of("bad", v1alpha1.ReservationOwner{PodGroup: "train"})}, nil); err == nil {
		t.Error("owners that cannot be read are taken")
	}
}
