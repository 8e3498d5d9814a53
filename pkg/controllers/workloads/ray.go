package workloads

import (
	"strconv"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// rayClusterSpec is what is read of a RayCluster of KubeRay.
type rayClusterSpec struct {
	WorkerGroupSpecs []workerGroup `json:"workerGroupSpecs"`
}

type workerGroup struct {
	Suspend     bool   `json:"suspend"`
	Replicas    int32  `json:"replicas"`
	MinReplicas int32  `json:"minReplicas"`
	MaxReplicas *int32 `json:"maxReplicas"`
	NumOfHosts  int32  `json:"numOfHosts"`
}

// says implements spec. KubeRay writes the minimum of a PodGroup once, and its autoscaler may make the cluster
// smaller later. Members beyond that minimum come one by one.
func (c rayClusterSpec) says(pg *coscheduling.PodGroup) (annotation, value string) {
	annotation = v1alpha1.MinAvailableAnnotation
	if n := c.pods(); n < int(pg.Spec.MinMember) {
		value = strconv.Itoa(n)
	}
	return annotation, value
}

// pods returns how many pods the cluster is to have, as KubeRay counts them for a PodGroup.
func (c rayClusterSpec) pods() int {
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
