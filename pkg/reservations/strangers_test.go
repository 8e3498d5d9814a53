package reservations

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// TestPodsOfAnotherNamespace: whatever a pod says of itself, in a namespace that no owner names it is none, and uses
// nothing: labels, owner references, gangs and the annotation of what a pod uses can be written by whoever may create
// pods.
func TestPodsOfAnotherNamespace(t *testing.T) {
	claims := func(pod *v1.Pod) *v1.Pod {
		pod.Labels = map[string]string{"app": "owner", v1alpha1.PodGroupXLabel: "train"}
		pod.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "of-the-job", Controller: new(true)},
		}
		pod.Annotations = map[string]string{v1alpha1.ReservationAnnotation: "r"}
		return pod
	}
	for sentence, who := range map[string]v1alpha1.ReservationOwner{
		"labels":       {LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "owner"}}},
		"a gang":       {PodGroup: "default/train"},
		"a pod's name": {Object: &v1alpha1.ReservationOwnerObject{Namespace: "default", Name: "first"}},
		"a Job": {Controller: &v1alpha1.ReservationOwnerController{
			APIVersion: "batch/v1", Kind: "Job", Namespace: "default", Name: "train", UID: "of-the-job",
		}},
	} {
		t.Run(sentence, func(t *testing.T) {
			for _, once := range []bool{true, false} {
				s := newStage(t)
				r := s.make("r", on("a"), func(r *v1alpha1.Reservation) {
					r.Spec.Owners, r.Spec.AllocateOnce = []v1alpha1.ReservationOwner{who}, new(once)
				})
				forged := claims(owner("first", "1"))
				forged.Namespace, forged.UID = "other", "forged"
				on := bound(forged, "a", r, 0)
				s.Update(r)
				if mine := claims(owner("first", "1")); len(s.Slots(mine, nothing)) != 1 || s.Missing(mine) != "" {
					t.Errorf("its owner has %d slots: %s", len(s.Slots(mine, nothing)), s.Missing(mine))
				}
				if len(s.Slots(forged, nothing)) != 0 || len(s.Grants(forged)) != 0 || s.Missing(forged) == "" {
					t.Errorf("another's pod has %v, %v", s.Slots(forged, nothing), s.Grants(forged))
				}
				s.userChanged(on)
				if got := s.held(); got != "a: 4" {
					t.Errorf("after another's pod said that it uses it held %q", got)
				}
				later := newStage(t)
				later.userChanged(on)
				later.Update(r)
				if got := later.held(); got != "a: 4" {
					t.Errorf("after a restart held %q", got)
				}
			}
		})
	}
}
