package simulate

import (
	"encoding/json"
	"fmt"
	"net/url"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/source"
	"github.com/lockstep-sh/lockstep/pkg/reservations/reservepods"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// full returns a cluster of so many nodes, with one pod on each that has all its GPUs.
func full(tb testing.TB, count int) *source.Dump {
	tb.Helper()
	base := small(tb)
	var some v1.NodeList
	must.Succeed(tb, (&source.Cluster{Base: base}).Read(tb.Context(), "/api/v1/nodes", &some))
	nodes := v1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}, ListMeta: metav1.ListMeta{ResourceVersion: "3"}}
	pods := v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: nodes.ListMeta}
	for i := range count {
		node := some.Items[0].DeepCopy()
		node.Name, node.UID, node.ResourceVersion = fmt.Sprint("node-", i), types.UID(fmt.Sprint("n", i)), "1"
		node.Labels[v1.LabelHostname] = node.Name
		pod := member(fmt.Sprint("low-", i), "", 0)
		pod.Annotations, pod.ResourceVersion = nil, "2"
		pod.Spec.Containers[0].Resources.Requests["nvidia.com/gpu"] = resource.MustParse("8")
		pod.Spec.NodeName, pod.Status.Phase = node.Name, v1.PodRunning
		nodes.Items, pods.Items = append(nodes.Items, *node), append(pods.Items, *pod)
	}
	for path, list := range map[string]any{"/api/v1/nodes": nodes, "/api/v1/pods?" + url.Values{"fieldSelector": {reservepods.Selector}}.Encode(): pods} {
		data, err := json.Marshal(list)
		must.Succeed(tb, err)
		base.Answers[path] = data
	}
	return base
}

// TestDecideAfterVictims: an attempt that takes long is followed by a pause, and the reason before is not the last
// word. The members keep away from each other, so that they are planned one by one.
func TestDecideAfterVictims(t *testing.T) {
	const members = 150
	for range 3 {
		answer := ask(t, full(t, 600), members, func(pod *v1.Pod) {
			priority := int32(1000)
			pod.Spec.Priority, pod.Labels = &priority, map[string]string{"app": "train"}
			pod.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
				TopologyKey: v1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: pod.Labels},
			}}}}
		})
		if got := answer.Placed(); got != members || len(answer.Victims) != members {
			t.Errorf("%d are placed and %d evicted, want %d and as many; %s: %s", got, len(answer.Victims), members, answer.Verdicts[0].Reason, answer.Verdicts[0].Message)
		}
	}
}
