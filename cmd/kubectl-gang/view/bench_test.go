package view

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// BenchmarkOverview: 5,000 nodes and 50,000 pods, in gangs of 16.
func BenchmarkOverview(b *testing.B) {
	const gangOf = 16
	nodes := fleet(250, 20)
	pods := make([]*v1.Pod, 50000)
	for i := range pods {
		node := nodes[i%len(nodes)].Name
		if i%10 == 0 {
			node = ""
		}
		pods[i] = asking(node, "1", v1.PodRunning)
		member := pod(fmt.Sprintf("team-%d", i/gangOf%50), fmt.Sprintf("train-%d", i/gangOf), i, node, annotated(v1alpha1.RequiredTopologyAnnotation, rack))
		pods[i].ObjectMeta = member.ObjectMeta
	}
	levels := Levels(nodes)
	b.Run("gangs", func(b *testing.B) {
		for b.Loop() {
			Gangs(GangsIn{Pods: pods, Nodes: nodes, Levels: levels})
		}
	})
	b.Run("topology", func(b *testing.B) {
		for b.Loop() {
			t := TopologyOf(TopologyIn{Nodes: nodes, Pods: pods, Levels: levels, Resource: gpu})
			t.Lines(true)
		}
	})
}
