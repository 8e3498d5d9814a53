package ownedpodgroup

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// MPIJobSpec is what is read of the spec of an MPIJob of MPI Operator.
type MPIJobSpec struct {
	LauncherCreationPolicy string                 `json:"launcherCreationPolicy"`
	MPIReplicaSpecs        map[string]replicaSpec `json:"mpiReplicaSpecs"`
}

type replicaSpec struct {
	Replicas int32 `json:"replicas"`
}

// waitForWorkers is the policy by which the launcher is made when all workers are ready.
const waitForWorkers = "WaitForWorkersReady"

// Annotations returns what the PodGroup of an MPIJob lacks: whether the launcher is made later. One that works, too, is
// made no earlier than others.
func (j MPIJobSpec) Annotations(*metav1.ObjectMeta, int32) map[string]string {
	var stages []int
	if workers := int(j.MPIReplicaSpecs["Worker"].Replicas); j.LauncherCreationPolicy == waitForWorkers && workers > 0 {
		stages = []int{workers, 1}
	}
	return map[string]string{v1alpha1.StagesAnnotation: gangspec.StagesText(stages)}
}
