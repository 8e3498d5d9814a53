package workloads

import (
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// rayCluster is what is read of a RayCluster of KubeRay.
type rayCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec rayClusterSpec `json:"spec"`
}

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

// says implements workload. KubeRay writes the minimum of a PodGroup once, and its autoscaler may make the cluster
// smaller later. Members beyond that minimum come one by one.
func (c *rayCluster) says(pg *coscheduling.PodGroup) (annotation, value string) {
	annotation = v1alpha1.MinAvailableAnnotation
	if n := c.pods(); n < int(pg.Spec.MinMember) {
		value = strconv.Itoa(n)
	}
	return annotation, value
}

// pods returns how many pods the cluster is to have, as KubeRay counts them for a PodGroup.
func (c *rayCluster) pods() int {
	n := 1 // the head
	for i := range c.Spec.WorkerGroupSpecs {
		n += c.Spec.WorkerGroupSpecs[i].pods()
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

// of implements workload.
func (c *rayCluster) of(owner *metav1.OwnerReference) bool { return c.UID == owner.UID }

// DeepCopyObject implements runtime.Object.
func (c *rayCluster) DeepCopyObject() runtime.Object { return ptr.To(c.deepCopy()) }

func (c *rayCluster) deepCopy() rayCluster {
	out := *c
	c.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.WorkerGroupSpecs = slices.Clone(c.Spec.WorkerGroupSpecs)
	for i := range out.Spec.WorkerGroupSpecs {
		group := &out.Spec.WorkerGroupSpecs[i]
		group.MaxReplicas = cloned(group.MaxReplicas)
	}
	return out
}
