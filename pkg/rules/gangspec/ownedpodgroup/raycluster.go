package ownedpodgroup

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// RayClusterSpec is what is read of the spec of a RayCluster of KubeRay.
type RayClusterSpec struct {
	WorkerGroupSpecs []workerGroup `json:"workerGroupSpecs"`
}

type workerGroup struct {
	Suspend     bool   `json:"suspend"`
	Replicas    int32  `json:"replicas"`
	MinReplicas int32  `json:"minReplicas"`
	MaxReplicas *int32 `json:"maxReplicas"`
	NumOfHosts  int32  `json:"numOfHosts"`
}

// Annotations returns what the PodGroup of a RayCluster lacks: KubeRay writes its minimum once, and its autoscaler may
// make the cluster smaller later. Members beyond that minimum come one by one.
func (c RayClusterSpec) Annotations(_ *metav1.ObjectMeta, minMember int32) map[string]string {
	return map[string]string{v1alpha1.MinAvailableAnnotation: lowered(c.pods(), minMember)}
}

// pods returns how many pods the cluster is to have, as KubeRay counts them for a PodGroup.
func (c RayClusterSpec) pods() int {
	n := 1 // the head
	for i := range c.WorkerGroupSpecs {
		n += c.WorkerGroupSpecs[i].pods()
	}
	return n
}

func (g *workerGroup) pods() int {
	replicas := g.Replicas
	switch {
	case g.Suspend:
		return 0
	case replicas < g.MinReplicas:
		replicas = g.MinReplicas
	case g.MaxReplicas != nil:
		replicas = min(replicas, *g.MaxReplicas)
	}
	return int(replicas) * max(1, int(g.NumOfHosts)) // older CRDs have no number of hosts
}
