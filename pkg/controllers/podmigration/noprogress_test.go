package podmigration

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/test/helpers/fakeapi"
)

// TestNoProgress: a controller makes no successor once it is gone, or is to have no pods.
func TestNoProgress(t *testing.T) {
	of := func(replicas *int32) client.Object {
		return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "rs", UID: "uid-1"}, Spec: appsv1.ReplicaSetSpec{Replicas: replicas}}
	}
	for sentence, c := range map[string]struct {
		objects []client.Object
		want    bool
	}{
		"it makes one":                {[]client.Object{of(new(int32(2)))}, false},
		"it says nothing, which is 1": {[]client.Object{of(nil)}, false},
		"it is to have no pods":       {[]client.Object{of(new(int32(0)))}, true},
		"it is gone":                  {nil, true},
	} {
		r := &reconciler{live: fakeapi.New(c.objects...).Build()}
		m := &v1alpha1.PodMigration{Status: v1alpha1.PodMigrationStatus{Successors: &v1alpha1.MigrationSuccessors{
			Controller: &v1alpha1.ReservationOwnerController{APIVersion: "apps/v1", Kind: "ReplicaSet", Namespace: "ns", Name: "rs", UID: "uid-1"},
		}}}
		if got, err := r.noProgress(t.Context(), m); err != nil || got != c.want {
			t.Errorf("%s: %t, %v; want %t", sentence, got, err, c.want)
		}
	}
}
