package ownergroup

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/framework/cachetransform"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

func TestKeysOnAnOwnerAreReportedOnce(t *testing.T) {
	job := func(annotations map[string]string) client.Object {
		whole := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "train", UID: "1", Annotations: annotations, Labels: map[string]string{"app": "a"}}}
		stripped, err := cachetransform.Job(whole)
		must.Succeed(t, err)
		return stripped.(*batchv1.Job)
	}
	none, one := job(map[string]string{"example.com/other": "x"}), job(map[string]string{"example.com/other": "x", v1alpha1.GangAnnotation: "Owner"})
	two := job(map[string]string{v1alpha1.GangAnnotation: "Owner", "scheduling.lockstep.dev/quue": "a"})
	labels := map[string]string{v1alpha1.RoleLabel: "worker"}
	copied, err := cachetransform.Job(&batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "train", UID: "1", Labels: labels},
		Spec:       batchv1.JobSpec{Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}}},
	})
	must.Succeed(t, err)
	const gang = "scheduling.lockstep.dev/gang has no effect here: it is an annotation of pods and namespaces; put it on the pod template"
	const queue = "scheduling.lockstep.dev/quue is not a key that is read here: did you mean scheduling.lockstep.dev/queue?"
	for sentence, c := range map[string]struct {
		old, now client.Object
		want     []string
	}{
		"keys of others":    {nil, none, nil},
		"a new Job":         {nil, one, []string{gang}},
		"another change":    {one, one, nil},
		"a key that is new": {none, one, []string{gang}},
		"one of two is new": {one, two, []string{queue}},
		"one that has gone": {two, one, nil},
		"labels that the API server took from the template": {nil, copied.(client.Object), nil},
		"a Job with two keys":                               {nil, two, []string{gang, queue}},
	} {
		t.Run(sentence, func(t *testing.T) {
			var got []string
			for _, event := range ignored(gangspec.OwnerJob, c.old, c.now) {
				got = append(got, event.Note)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}
