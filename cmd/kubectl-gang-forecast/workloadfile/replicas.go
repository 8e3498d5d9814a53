package workloadfile

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// replicas is what Deployments, ReplicaSets and StatefulSets have in common.
type replicas struct {
	replicas *int32
	template v1.PodTemplateSpec
	stateful *appsv1.StatefulSetSpec // nil for the others
}

// readReplicas reads one of them, strictly.
func readReplicas(u *unstructured.Unstructured) (*replicas, error) {
	switch u.GetKind() {
	case "Deployment":
		set := &appsv1.Deployment{}
		err := convert(u, set)
		return &replicas{replicas: set.Spec.Replicas, template: set.Spec.Template}, err
	case "ReplicaSet":
		set := &appsv1.ReplicaSet{}
		err := convert(u, set)
		return &replicas{replicas: set.Spec.Replicas, template: set.Spec.Template}, err
	default:
		set := &appsv1.StatefulSet{}
		err := convert(u, set)
		return &replicas{replicas: set.Spec.Replicas, template: set.Spec.Template, stateful: &set.Spec}, err
	}
}

// count returns how many pods it has, and first the number of the first.
func (s *replicas) count() int32 { return ptr.Deref(s.replicas, 1) }

func (s *replicas) first() int32 {
	if s.stateful == nil || s.stateful.Ordinals == nil {
		return 0
	}
	return s.stateful.Ordinals.Start
}

func (r *Reader) addReplicas(u *unstructured.Unstructured) error {
	set, err := readReplicas(u)
	if err != nil {
		return err
	}
	n, first, prefix := set.count(), set.first(), u.GetName()
	if set.stateful == nil {
		if prefix, err = r.prefix(u, n); err != nil {
			return err
		}
	}
	for i := first; i < first+n; i++ {
		pod := r.fromTemplate(u, &set.template, prefix, i)
		if set.stateful != nil && i > first && set.stateful.PodManagementPolicy != appsv1.ParallelPodManagement {
			if _, _, member := gangspec.GangOf(pod, r.native); member {
				break // the next is made once this one is ready, and it is not without its gang
			}
		}
		if set.stateful != nil {
			pod.Labels[appsv1.StatefulSetPodNameLabel], pod.Labels[appsv1.PodIndexLabel] = pod.Name, strconv.Itoa(int(i))
			if err := r.claimVolumes(pod, set.stateful.VolumeClaimTemplates); err != nil {
				return err
			}
		}
		if err := r.finish(pod); err != nil {
			return err
		}
	}
	return nil
}
