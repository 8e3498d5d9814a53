package preemption

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// TestSearchForMembersThatCannotRunTogether: no pod is evicted for members one of which keeps the other away,
// though nothing that runs keeps either away.
func TestSearchForMembersThatCannotRunTogether(t *testing.T) {
	apart := func(topologyKey string) []*v1.Pod {
		shy, other := st.PodWrapper{Pod: *member("p", 0, 2, 100, 1, "")}, st.PodWrapper{Pod: *member("p", 1, 2, 100, 1, "")}
		return []*v1.Pod{
			shy.PodAntiAffinityIn("role", topologyKey, []string{"other"}, st.PodAntiAffinityWithRequiredReq).Obj(),
			other.Label("role", "other").Obj(),
		}
	}
	sharing := func() []*v1.Pod { return claiming(2, func(int) string { return "p-0" }) }
	differ := sharing()
	differ[1].Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("1m")
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
		"of members of different sizes":  {preemptor: differ, nodes: 1, mode: v1.ReadWriteOncePod, want: "none"},
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
			d := s.demand(t, gangspec.Spec{}, c.preemptor...)
			if got := s.victimsOf(t, d); got != c.want {
				t.Errorf("victims %q, want %q", got, c.want)
			}
		})
	}
}

// TestSearchForAClaimThatIsInUse: the search does not forget that a pod which may not be evicted uses the claim of
// a member, whatever else is asked of the member beside the members that come with it.
func TestSearchForAClaimThatIsInUse(t *testing.T) {
	for sentence, spread := range map[string]bool{"plain": false, "with a soft spread constraint": true} {
		t.Run(sentence, func(t *testing.T) {
			nodes := []*v1.Node{node("n1", 4, "r1"), node("n2", 4, "r1")}
			low := member("low", 0, 0, 10, 4, "n1")
			user := (&st.PodWrapper{Pod: *member("user", 0, 0, 200, 4, "n2")}).PVC("p-0").Obj()
			p := (&st.PodWrapper{Pod: *member("p", 0, 1, 100, 4, "")}).PVC("p-0").Label("app", "p")
			if spread {
				p = p.SpreadConstraint(1, v1.LabelHostname, v1.ScheduleAnyway, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "p"}}, nil, nil, nil, nil)
			}
			s := newStage(t, nodes, []*v1.Pod{low, user}, forOnePod(nodes, p.Obj())...)
			if got := s.victimsOf(t, s.demand(t, gangspec.Spec{}, p.Obj())); got != "none" {
				t.Errorf("victims %q, want none", got)
			}
		})
	}
}

// forOnePod returns the storage of a pod whose claims only one pod may use, on whichever node.
func forOnePod(nodes []*v1.Node, pod *v1.Pod) []runtime.Object {
	objects := []runtime.Object{&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: benchClass}}}
	for _, object := range boundClaims(nodes, []*v1.Pod{pod}) {
		switch one := object.(type) {
		case *v1.PersistentVolumeClaim:
			one.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
		case *v1.PersistentVolume:
			one.Spec.NodeAffinity = nil
		}
		objects = append(objects, object)
	}
	return objects
}
