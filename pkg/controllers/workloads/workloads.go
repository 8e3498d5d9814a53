package workloads

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// workload is an object that makes the members of a gang, as far as it says what its PodGroup does not. It has the name
// of the PodGroup.
type workload interface {
	client.Object
	// says returns an annotation and the value that the PodGroup is to have; an empty one for none.
	says(pg *coscheduling.PodGroup) (annotation, value string)
	// of reports whether the workload makes the pods of an owner of the PodGroup.
	of(owner *metav1.OwnerReference) bool
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
	{
		kind:  schema.GroupVersionKind{Group: "kubeflow.org", Version: "v2beta1", Kind: "MPIJob"},
		owner: schema.GroupKind{Group: "kubeflow.org", Kind: "MPIJob"},
		empty: func() workload { return &mpiJob{} },
		list:  &mpiJobList{},
	},
	{
		kind:  schema.GroupVersionKind{Group: "jobset.x-k8s.io", Version: "v1alpha2", Kind: "JobSet"},
		owner: schema.GroupKind{Group: "trainer.kubeflow.org", Kind: "TrainJob"},
		empty: func() workload { return &jobSet{} },
		list:  &jobSetList{},
	},
	{
		kind:  schema.GroupVersionKind{Group: "ray.io", Version: "v1", Kind: "RayCluster"},
		owner: schema.GroupKind{Group: "ray.io", Kind: "RayCluster"},
		empty: func() workload { return &rayCluster{} },
		list:  &rayClusterList{},
	},
}

// addToScheme makes the clients of a scheme read workloads as this package does.
func addToScheme(scheme *runtime.Scheme) {
	for _, w := range workloads {
		scheme.AddKnownTypeWithName(w.kind, w.empty())
		scheme.AddKnownTypeWithName(w.kind.GroupVersion().WithKind(w.kind.Kind+"List"), w.list)
		metav1.AddToGroupVersion(scheme, w.kind.GroupVersion())
	}
}

// list is a list of workloads of one kind.
type list[T any, P copied[T]] struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []T `json:"items"`
}

type (
	mpiJobList     = list[mpiJob, *mpiJob]
	jobSetList     = list[jobSet, *jobSet]
	rayClusterList = list[rayCluster, *rayCluster]
)

type copied[T any] interface {
	*T
	deepCopy() T
}

// DeepCopyObject implements runtime.Object.
func (l *list[T, P]) DeepCopyObject() runtime.Object {
	out := &list[T, P]{TypeMeta: l.TypeMeta, Items: make([]T, len(l.Items))}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items[i] = P(&l.Items[i]).deepCopy()
	}
	return out
}

// mpiJob is what is read of an MPIJob of MPI Operator.
type mpiJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec mpiJobSpec `json:"spec"`
}

type mpiJobSpec struct {
	LauncherCreationPolicy string                 `json:"launcherCreationPolicy"`
	MPIReplicaSpecs        map[string]replicaSpec `json:"mpiReplicaSpecs"`
}

type replicaSpec struct {
	Replicas int32 `json:"replicas"`
}

// waitForWorkers is the policy by which the launcher is made when all workers are ready.
const waitForWorkers = "WaitForWorkersReady"

// says implements workload.
func (j *mpiJob) says(*coscheduling.PodGroup) (annotation, value string) {
	return v1alpha1.StagesAnnotation, format(j.parts())
}

// parts returns the sizes of the parts, in the order in which they are made; nil where all members are made at once. A
// launcher that works, too, is made no earlier than others.
func (j *mpiJob) parts() []int {
	if j.Spec.LauncherCreationPolicy != waitForWorkers {
		return nil
	}
	const launcher = 1
	return inParts(int(j.Spec.MPIReplicaSpecs["Worker"].Replicas), launcher)
}

// of implements workload.
func (j *mpiJob) of(owner *metav1.OwnerReference) bool { return j.UID == owner.UID }

// jobSet is what is read of a JobSet.
type jobSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec jobSetSpec `json:"spec"`
}

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

// says implements workload.
func (s *jobSet) says(*coscheduling.PodGroup) (annotation, value string) {
	return v1alpha1.StagesAnnotation, format(s.parts())
}

// parts returns the sizes of the parts, as those of an MPIJob. A replicated job depends only on jobs that come before
// it. Jobs that wait for equally many others, one after the other, are one part.
func (s *jobSet) parts() []int {
	sizes := make([]int, len(s.Spec.ReplicatedJobs))
	depths := map[string]int{}
	for i := range s.Spec.ReplicatedJobs {
		job := &s.Spec.ReplicatedJobs[i]
		depth := 0
		if s.Spec.StartupPolicy.StartupPolicyOrder == inOrder {
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

// of implements workload: the TrainJob that owns the PodGroup controls its JobSet.
func (s *jobSet) of(owner *metav1.OwnerReference) bool {
	controller := metav1.GetControllerOfNoCopy(s)
	return controller != nil && controller.UID == owner.UID
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

// format returns the value of the annotation stages.
func format(parts []int) string {
	sizes := make([]string, len(parts))
	for i, n := range parts {
		sizes[i] = strconv.Itoa(n)
	}
	return strings.Join(sizes, ",")
}

// DeepCopyObject implements runtime.Object.
func (j *mpiJob) DeepCopyObject() runtime.Object { return ptr.To(j.deepCopy()) }

func (j *mpiJob) deepCopy() mpiJob {
	out := *j
	j.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.MPIReplicaSpecs = maps.Clone(j.Spec.MPIReplicaSpecs)
	return out
}

// DeepCopyObject implements runtime.Object.
func (s *jobSet) DeepCopyObject() runtime.Object { return ptr.To(s.deepCopy()) }

func (s *jobSet) deepCopy() jobSet {
	out := *s
	s.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.ReplicatedJobs = slices.Clone(s.Spec.ReplicatedJobs)
	for i := range out.Spec.ReplicatedJobs {
		job := &out.Spec.ReplicatedJobs[i]
		job.DependsOn = slices.Clone(job.DependsOn)
		job.Replicas = cloned(job.Replicas)
		job.Template.Spec = jobSpec{Parallelism: cloned(job.Template.Spec.Parallelism),
			Completions: cloned(job.Template.Spec.Completions)}
	}
	return out
}

func cloned(n *int32) *int32 {
	if n == nil {
		return nil
	}
	return ptr.To(*n)
}
