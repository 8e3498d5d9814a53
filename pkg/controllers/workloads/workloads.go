package workloads

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec/ownedpodgroup"
)

// spec is what is read of the spec of a workload: an object that makes the members of a gang, as far as it says what
// its PodGroup does not.
type spec interface {
	// Annotations returns the annotations that the PodGroup should have, an empty value for none. meta is of the workload.
	Annotations(meta *metav1.ObjectMeta, minMember int32) map[string]string
}

// workload is a workload of any kind. It has the name of the PodGroup.
type workload interface {
	client.Object
	// annotations returns the annotations that its PodGroup should have, an empty value for none.
	annotations(pg *coscheduling.PodGroup) map[string]string
}

// object is a workload with the part of its spec that is read.
type object[S spec] struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec S `json:"spec"`
}

// annotations implements workload.
func (o *object[S]) annotations(pg *coscheduling.PodGroup) map[string]string {
	return o.Spec.Annotations(&o.ObjectMeta, pg.Spec.MinMember)
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
	knownAs[ownedpodgroup.MPIJobSpec]("kubeflow.org", "v2beta1", "MPIJob",
		schema.GroupKind{Group: "kubeflow.org", Kind: "MPIJob"}),
	knownAs[ownedpodgroup.JobSetSpec]("jobset.x-k8s.io", "v1alpha2", "JobSet",
		schema.GroupKind{Group: "trainer.kubeflow.org", Kind: "TrainJob"}),
	knownAs[ownedpodgroup.RayClusterSpec]("ray.io", "v1", "RayCluster",
		schema.GroupKind{Group: "ray.io", Kind: "RayCluster"}),
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
