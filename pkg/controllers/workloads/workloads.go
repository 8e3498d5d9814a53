package workloads

import (
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// spec is what is read of the spec of a workload: an object that makes the members of a gang, as far as it says what
// its PodGroup does not.
type spec interface {
	// says returns an annotation and the value that the PodGroup is to have; an empty one for none.
	says(pg *coscheduling.PodGroup) (annotation, value string)
}

// workload is a workload of any kind. It has the name of the PodGroup.
type workload interface {
	client.Object
	spec
}

// object is a workload with the part of its spec that is read.
type object[S spec] struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec S `json:"spec"`
}

// says implements spec.
func (o *object[S]) says(pg *coscheduling.PodGroup) (annotation, value string) {
	return o.Spec.says(pg)
}

// DeepCopyObject implements runtime.Object.
func (o *object[S]) DeepCopyObject() runtime.Object { return copyOf(o) }

// list is a list of workloads of one kind.
type list[S spec] struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []object[S] `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *list[S]) DeepCopyObject() runtime.Object { return copyOf(l) }

// copyOf copies by way of JSON, in which all of this came. What is read from the cache is not copied.
func copyOf[T any](from *T) *T {
	to := new(T)
	text, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	if err != nil {
		panic(err)
	}
	return to
}

// known is a kind of workload.
type known struct {
	kind schema.GroupVersionKind
	// owner is the kind that owns the PodGroups of such workloads.
	owner schema.GroupKind
	empty func() workload
	list  runtime.Object
}

// workloads are the kinds that are known to say more than their PodGroups do.
var workloads = []known{
	knownAs[mpiJobSpec]("kubeflow.org", "v2beta1", "MPIJob", schema.GroupKind{Group: "kubeflow.org", Kind: "MPIJob"}),
	knownAs[jobSetSpec]("jobset.x-k8s.io", "v1alpha2", "JobSet",
		schema.GroupKind{Group: "trainer.kubeflow.org", Kind: "TrainJob"}),
	knownAs[rayClusterSpec]("ray.io", "v1", "RayCluster", schema.GroupKind{Group: "ray.io", Kind: "RayCluster"}),
}

func knownAs[S spec](group, version, kind string, owner schema.GroupKind) known {
	return known{
		kind: schema.GroupVersionKind{Group: group, Version: version, Kind: kind}, owner: owner,
		empty: func() workload { return &object[S]{} }, list: &list[S]{},
	}
}

// isOf reports whether a workload makes the pods of an owner of a PodGroup: it is the owner, or the owner controls it,
// as a TrainJob does its JobSet.
func isOf(w workload, owner *metav1.OwnerReference) bool {
	controller := metav1.GetControllerOfNoCopy(w)
	return w.GetUID() == owner.UID || controller != nil && controller.UID == owner.UID
}

// addToScheme makes the clients of a scheme read workloads as this package does.
func addToScheme(scheme *runtime.Scheme) {
	for _, w := range workloads {
		scheme.AddKnownTypeWithName(w.kind, w.empty())
		scheme.AddKnownTypeWithName(w.kind.GroupVersion().WithKind(w.kind.Kind+"List"), w.list)
		metav1.AddToGroupVersion(scheme, w.kind.GroupVersion())
	}
}

// mpiJobSpec is what is read of an MPIJob of MPI Operator.
type mpiJobSpec struct {
	LauncherCreationPolicy string                 `json:"launcherCreationPolicy"`
	MPIReplicaSpecs        map[string]replicaSpec `json:"mpiReplicaSpecs"`
}

type replicaSpec struct {
	Replicas int32 `json:"replicas"`
}

// waitForWorkers is the policy by which the launcher is made when all workers are ready.
const waitForWorkers = "WaitForWorkersReady"

// says implements spec.
func (j mpiJobSpec) says(*coscheduling.PodGroup) (annotation, value string) {
	return v1alpha1.StagesAnnotation, gangspec.StagesText(j.parts())
}

// parts returns the sizes of the parts, in the order in which they are made; nil where all members are made at once. A
// launcher that works, too, is made no earlier than others.
func (j mpiJobSpec) parts() []int {
	if j.LauncherCreationPolicy != waitForWorkers {
		return nil
	}
	const launcher = 1
	return inParts(int(j.MPIReplicaSpecs["Worker"].Replicas), launcher)
}

// jobSetSpec is what is read of a JobSet.
type jobSetSpec struct {
	ReplicatedJobs []replicatedJob `json:"replicatedJobs"`
	StartupPolicy  startupPolicy   `json:"startupPolicy"`
}

type startupPolicy struct {
	StartupPolicyOrder string `json:"startupPolicyOrder"`
}

type replicatedJob struct {
	Name      string       `json:"name"`
	Replicas  *int32       `json:"replicas"`
	DependsOn []dependency `json:"dependsOn"`
	Template  jobTemplate  `json:"template"`
}

type dependency struct {
	Name string `json:"name"`
}

type jobTemplate struct {
	Spec jobSpec `json:"spec"`
}

type jobSpec struct {
	Parallelism *int32 `json:"parallelism"`
	Completions *int32 `json:"completions"`
}

// inOrder is the policy by which each replicated job is made when the one before is ready.
const inOrder = "InOrder"

// says implements spec.
func (s jobSetSpec) says(*coscheduling.PodGroup) (annotation, value string) {
	return v1alpha1.StagesAnnotation, gangspec.StagesText(s.parts())
}

// parts returns the sizes of the parts, as those of an MPIJob. A replicated job depends only on jobs that come before
// it. Jobs that wait for equally many others, one after the other, are one part.
func (s jobSetSpec) parts() []int {
	sizes := make([]int, len(s.ReplicatedJobs))
	depths := map[string]int{}
	for i := range s.ReplicatedJobs {
		job := &s.ReplicatedJobs[i]
		depth := 0
		if s.StartupPolicy.StartupPolicyOrder == inOrder {
			depth = i
		}
		for _, other := range job.DependsOn {
			if before, ok := depths[other.Name]; ok {
				depth = max(depth, before+1)
			}
		}
		depths[job.Name] = depth
		sizes[depth] += job.pods()
	}
	return inParts(sizes...)
}

// pods returns the number of pods that run at a time.
func (j *replicatedJob) pods() int {
	each := ptr.Deref(j.Template.Spec.Parallelism, 1)
	each = min(each, ptr.Deref(j.Template.Spec.Completions, each))
	return int(ptr.Deref(j.Replicas, 1)) * int(each)
}

// inParts leaves out parts without members; a single part counts as none.
func inParts(sizes ...int) []int {
	sizes = slices.DeleteFunc(sizes, func(n int) bool { return n <= 0 })
	if len(sizes) < 2 {
		return nil
	}
	return sizes
}
