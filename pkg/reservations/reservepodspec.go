package reservations

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/kube/podadmission"
	"github.com/lockstep-sh/lockstep/pkg/reservations/reservepods"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/keys"
	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// waitingTime is longer than reserve pods can wait at Permit: they are placed together.
const waitingTime = "8760h"

// templateOf returns the pod that a Reservation describes, with the API server's defaults and handling of
// matchLabelKeys, in no gang. It has no name yet.
func templateOf(r *v1alpha1.Reservation) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: reservationstate.Namespace(r), Labels: maps.Clone(r.Spec.Template.Labels),
		Annotations:       maps.Clone(r.Spec.Template.Annotations),
		CreationTimestamp: metav1.NewTime(reservationstate.Start(r)),
	}}
	r.Spec.Template.Spec.DeepCopyInto(&pod.Spec)
	corev1.SetObjectDefaults_Pod(pod)
	pod.Spec.SchedulerName = reservationstate.SchedulerName(r)
	pod.Spec.SchedulingGroup = nil
	maps.DeleteFunc(pod.Labels, func(key, _ string) bool { return slices.Contains(gangspec.MemberLabels, key) })
	maps.DeleteFunc(pod.Annotations, func(key, _ string) bool {
		return slices.Contains(gangspec.MemberLabels, key) || strings.HasPrefix(key, keys.KoordinatorPrefix) &&
			!slices.Contains(topologyAnnotations, key) ||
			key == v1alpha1.MinByRoleAnnotation || key == v1alpha1.GangAnnotation || slices.Contains(written, key)
	})
	for _, key := range topologyAnnotations {
		if value, ok := r.Annotations[key]; ok && pod.Annotations[key] == "" {
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, value)
		}
	}
	if of, ok := r.Annotations[v1alpha1.InPlaceOfAnnotation]; ok {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, v1alpha1.InPlaceOfAnnotation, of)
	}
	podadmission.MergeMissingLabelKeys(pod) // a template may be taken from a pod, which has it
	return pod
}

// topologyAnnotations define the layout of several placements.
var topologyAnnotations = []string{
	v1alpha1.RequiredTopologyAnnotation, v1alpha1.PreferredTopologyAnnotation, v1alpha1.TopologySlicesAnnotation,
	v1alpha1.TopologySpreadAnnotation, v1alpha1.NetworkTopologySpecAnnotation,
}

// written are the annotations that record what a pod uses; those of a pod that the template was copied from are
// meaningless.
var written = []string{
	v1alpha1.ReservationAnnotation, v1alpha1.ReservationAllocatedAnnotation, v1alpha1.GPUCardAnnotation,
	v1alpha1.GPUCardMemoryAnnotation,
	v1alpha1.InPlaceOfAnnotation, // which the Reservation itself sets
}

// refusal returns why no place is sought for a template; empty if one is. The schema checks the shape of a template;
// this checks what the API server checks of pods, and what cannot be reserved.
func refusal(pod *v1.Pod) string {
	path := field.NewPath("spec", "template", "spec")
	for i, volume := range pod.Spec.Volumes {
		if resource.IsAttached(volume) {
			return field.Invalid(path.Child("volumes").Index(i), volume.Name,
				"volumes that have to be provisioned or attached cannot be reserved; leave it out, and narrow the choice of "+
					"nodes with nodeSelector if it is bound to some").Error()
		}
	}
	for i, claim := range pod.Spec.ResourceClaims {
		return field.Invalid(path.Child("resourceClaims").Index(i), claim.Name,
			"devices by claims cannot be reserved; leave it out").Error()
	}
	if fault := resource.CheckSpec(path.String(), pod); fault != nil {
		return fault.Error()
	}
	whole := pod.DeepCopy()
	for kind, list := range map[string][]v1.Container{"init": whole.Spec.InitContainers,
		"container": whole.Spec.Containers} {
		for i := range list { // no pod will run, so images may be left out
			list[i].Name, list[i].Image = cmp.Or(list[i].Name, fmt.Sprint(kind, "-", i)), cmp.Or(list[i].Image, "none")
		}
	}
	var internal core.PodTemplateSpec
	if err := corev1.Convert_v1_PodTemplateSpec_To_core_PodTemplateSpec(&v1.PodTemplateSpec{ObjectMeta: whole.ObjectMeta,
		Spec: whole.Spec}, &internal, nil); err != nil {
		return "spec.template: " + err.Error()
	}
	options := podutil.GetValidationOptionsFromPodTemplate(&internal, nil)
	if errs := validation.ValidatePodTemplateSpec(&internal, field.NewPath("spec", "template"), options); len(errs) > 0 {
		return errs.ToAggregate().Error()
	}
	return ""
}

// reservePods returns the pods that look for places: several are members of one gang.
func reservePods(r *v1alpha1.Reservation, template *v1.Pod, missing []int32, attempt int) map[int32]*v1.Pod {
	pods := map[int32]*v1.Pod{}
	for _, index := range missing {
		pod := template.DeepCopy()
		pod.Name = reservepods.PodName(r.Name, int(index))
		pod.UID = reservepods.UIDOf(r.UID, index, attempt)
		if int(index) < len(r.Spec.NodeNames) {
			pinToNode(pod, r.Spec.NodeNames[index])
		}
		if len(missing) > 1 {
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, v1alpha1.GangNameAnnotation, reservepods.GroupName(r.Name))
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, v1alpha1.MinAvailableAnnotation, strconv.Itoa(len(missing)))
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, v1alpha1.WaitingTimeAnnotation, waitingTime)
		}
		pods[index] = pod
	}
	return pods
}

// requireDomain requires a pod to be in the same domain of the required topology as the other placements.
func (r *Registry) requireDomain(pod *v1.Pod, standing []v1alpha1.ReservationPlacement) error {
	key := pod.Annotations[v1alpha1.RequiredTopologyAnnotation]
	if key == "" {
		return nil
	}
	for _, p := range standing {
		node, err := r.nodes.Get(p.NodeName)
		switch {
		case apierrors.IsNotFound(err):
			continue // its status will say that the node is gone; the others determine the domain
		case err != nil:
			return fmt.Errorf("looking up node %s: %w", p.NodeName, err)
		}
		if value, ok := node.Labels[key]; ok {
			pod.Spec.NodeSelector = maps.Clone(pod.Spec.NodeSelector)
			if pod.Spec.NodeSelector == nil {
				pod.Spec.NodeSelector = map[string]string{}
			}
			pod.Spec.NodeSelector[key] = value
			return nil
		}
	}
	return nil
}
