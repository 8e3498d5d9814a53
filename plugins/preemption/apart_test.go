package preemption

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
)

// TestSearchForMembersThatCannotRunTogether: nobody is evicted for members of which one keeps
// the other away, though nothing that runs keeps away either.
func TestSearchForMembersThatCannotRunTogether(t *testing.T) {
	apart := func(topologyKey string) []*v1.Pod {
		shy, other := st.PodWrapper{Pod: *member("p", 0, 2, 100, 1, "")}, st.PodWrapper{Pod: *member("p", 1, 2, 100, 1, "")}
		return []*v1.Pod{
			shy.PodAntiAffinityIn("role", topologyKey, []string{"other"}, st.PodAntiAffinityWithRequiredReq).Obj(),
			other.Label("role", "other").Obj(),
		}
	}
	sharing := func() []*v1.Pod { return claiming(2, func(int) string { return "p-0" }) }
	for sentence, c := range map[string]struct {
		preemptor []*v1.Pod
		nodes     int
		mode      v1.PersistentVolumeAccessMode
		want      string
	}{
		"hosts apart, two hosts":         {preemptor: apart(v1.LabelHostname), nodes: 2, want: "low0-0 low1-0"},
		"hosts apart, one host":          {preemptor: apart(v1.LabelHostname), nodes: 1, want: "none"},
		"racks apart, one rack":          {preemptor: apart(rack), nodes: 2, want: "none"},
		"one claim that many pods use":   {preemptor: sharing(), nodes: 1, mode: v1.ReadWriteMany, want: "low0-0"},
		"one claim that one pod may use": {preemptor: sharing(), nodes: 1, mode: v1.ReadWriteOncePod, want: "none"},
	} {
		t.Run(sentence, func(t *testing.T) {
			var nodes []*v1.Node
			var low []*v1.Pod
			for i := range c.nodes {
				nodes = append(nodes, node(fmt.Sprint("n", i), 2, "r0"))
				low = append(low, members(fmt.Sprint("low", i), 1, 1, 10, 2, nodes[i].Name)...)
			}
			objects := []runtime.Object{&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: benchClass}}}
			if c.mode != "" {
				for _, object := range boundClaims(nodes, c.preemptor[:1]) {
					if claim, ok := object.(*v1.PersistentVolumeClaim); ok {
						claim.Spec.AccessModes = []v1.PersistentVolumeAccessMode{c.mode}
					}
					objects = append(objects, object)
				}
			}
			s := newStage(t, nodes, low, objects...)
			d := s.demand(t, gang.Spec{}, c.preemptor...)
			if got := s.victimsOf(t, d); got != c.want {
				t.Errorf("victims %q, want %q", got, c.want)
			}
		})
	}
}
