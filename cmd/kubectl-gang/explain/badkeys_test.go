package explain

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
)

// TestBadKeys: bad values and keys without effect are told once for all members; of good ones nothing is.
func TestBadKeys(t *testing.T) {
	pods := func(annotations, labels map[string]string) []*v1.Pod {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Annotations: annotations, Labels: labels}}
		return []*v1.Pod{pod, pod.DeepCopy()}
	}
	typo := &coscheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b", Annotations: map[string]string{
		v1alpha1.RequiredTopologyAnnotation + "s": "rack"}}}
	typo.Spec.MinMember = 2
	for name, c := range map[string]struct {
		in   view.GangsIn
		pods []*v1.Pod
		want []string
	}{
		"good": {pods: pods(map[string]string{v1alpha1.GangNameAnnotation: "b", v1alpha1.MinAvailableAnnotation: "2"}, nil)},
		"a minimum that is none": {
			pods: pods(map[string]string{v1alpha1.GangNameAnnotation: "b", v1alpha1.MinAvailableAnnotation: "two"}, nil),
			want: []string{`Not used: gang.scheduling.koordinator.sh/min-available: "two" is not a whole number from 1 to 100000`},
		},
		"a misspelled key of pods": {
			pods: pods(map[string]string{v1alpha1.GangNameAnnotation: "b", "scheduling.lockstep.dev/required-topolgy": "rack"}, nil),
			want: []string{"Not used: scheduling.lockstep.dev/required-topolgy is not a key that is read here: did you mean scheduling.lockstep.dev/required-topology?"},
		},
		"a misspelled key of the PodGroup": {
			in:   view.GangsIn{PodGroups: []*coscheduling.PodGroup{typo}},
			want: []string{"Not used: scheduling.lockstep.dev/required-topologys is not a key that is read here: did you mean scheduling.lockstep.dev/required-topology?"},
		},
		"two gangs": {
			pods: pods(map[string]string{v1alpha1.GangNameAnnotation: "b"}, map[string]string{v1alpha1.PodGroupXLabel: "c"}),
			want: []string{`Not used: scheduling.x-k8s.io/pod-group names gang "c", and has no effect here: the annotation gang.scheduling.koordinator.sh/name counts before it, and names "b"`},
		},
	} {
		if diff := cmp.Diff(c.want, badKeys("a/b", &c.in, c.pods)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
