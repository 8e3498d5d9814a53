package gangspec

import (
	"fmt"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	communityv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/keys"
)

// Fields of native PodGroups, as their users write them.
const (
	fieldMinCount  = "spec.schedulingPolicy.gang.minCount"
	fieldPolicy    = "spec.schedulingPolicy"
	fieldParent    = "spec.parentCompositePodGroupName"
	fieldTopology  = "spec.schedulingConstraints.topology"
	fieldClaims    = "spec.resourceClaims"
	fieldPriority  = "spec.priority"
	fieldDisrupted = "spec.disruptionMode"
)

// ReadPodGroup reads what a community PodGroup says.
func ReadPodGroup(object metav1.Object, spec *communityv1alpha1.PodGroupSpec) *PodGroupDescription {
	return &PodGroupDescription{
		UID: object.GetUID(), Created: object.GetCreationTimestamp().Time, Owner: MadeFor(object),
		Annotations: object.GetAnnotations(), Queue: object.GetLabels()[v1alpha1.QueueLabel],
		Ignored: IgnoredKeys(keys.PodGroup, object),
		Min:     spec.MinMember, RoundSeconds: spec.ScheduleTimeoutSeconds, MinResources: spec.MinResources,
	}
}

// ReadWithStatus reads what a community PodGroup says, and how many members ran to success by its status: for readers,
// who do not see those that are gone.
func ReadWithStatus(pg *coscheduling.PodGroup) *PodGroupDescription {
	o := ReadPodGroup(pg, &pg.Spec)
	if phase := pg.Status.Phase; phase != communityv1alpha1.PodGroupFinished && phase != communityv1alpha1.PodGroupFailed {
		o.Succeeded = int(pg.Status.Succeeded)
	}
	return o
}

// ReadNative reads what a native PodGroup says. What is not understood is among the problems; if it
// would be wrong to ignore it, no pod of the PodGroup is scheduled for that reason.
func ReadNative(pg *schedulingv1beta1.PodGroup) *PodGroupDescription {
	o := &PodGroupDescription{
		UID: pg.UID, Created: pg.CreationTimestamp.Time, Annotations: pg.Annotations, Queue: pg.Labels[v1alpha1.QueueLabel],
		Ignored: IgnoredKeys(keys.PodGroup, pg), MinField: fieldMinCount, Priority: pg.Spec.Priority,
		Never: pg.Spec.PreemptionPolicy != nil && *pg.Spec.PreemptionPolicy == schedulingv1beta1.PreemptNever,
	}
	switch policy := pg.Spec.SchedulingPolicy; {
	case policy.Gang != nil:
		o.Min = policy.Gang.MinCount
	case policy.Basic != nil:
		o.Basic, o.Min = true, 1
	default:
		o.Refused = fmt.Sprintf("its PodGroup's %s is neither gang nor basic, and others are not known", fieldPolicy)
	}
	if constraints := pg.Spec.SchedulingConstraints; constraints != nil {
		o.readTopology(constraints.Topology)
	}
	switch mode := pg.Spec.DisruptionMode; {
	case mode == nil || mode.Single != nil:
	case mode.All != nil:
		o.Whole = true
	default:
		o.Whole = true
		o.bad(fieldDisrupted, "", "single or all", "all")
	}
	if claims := pg.Spec.ResourceClaims; len(claims) > 0 {
		o.Refused = fmt.Sprintf("its PodGroup has %s (%q), and devices that are allocated to a PodGroup are not planned; "+
			"let the pods alone name a ResourceClaim that they share", fieldClaims, claims[0].Name)
	}
	if parent := pg.Spec.ParentCompositePodGroupName; parent != nil {
		o.bad(fieldParent, *parent, "understood: a CompositePodGroup has no effect", "this PodGroup by itself")
	}
	return o
}

func (o *PodGroupDescription) readTopology(constraints []schedulingv1beta1.TopologyConstraint) {
	for i, constraint := range constraints {
		if i == 0 {
			o.Topology = constraint.Key
			continue
		}
		o.bad(fmt.Sprintf("%s[%d].key", fieldTopology, i), constraint.Key, "understood: there can be one",
			"the first, "+o.Topology)
	}
}

func (o *PodGroupDescription) bad(key, value, want, used string) {
	o.Problems = append(o.Problems, KeyProblem{Key: key, Value: value, Want: want, Used: used, OnObject: true})
}

// MakesNoGang reports whether the pods of a PodGroup are in no gang: each is scheduled by itself. It is
// false without a PodGroup.
func (o *PodGroupDescription) MakesNoGang() bool {
	return o != nil && o.Basic && o.Topology == "" && o.Refused == ""
}

// EvictedOneByOne reports whether the pods of a PodGroup are evicted one by one, as pods in no gang are.
// It is false without a PodGroup.
func (o *PodGroupDescription) EvictedOneByOne() bool { return o != nil && o.Basic && !o.Whole }

// ProblemsWith returns what is not understood of a PodGroup, given one of its pods.
func (o *PodGroupDescription) ProblemsWith(pod *v1.Pod) []KeyProblem {
	if o.Priority == nil || *o.Priority == corev1helpers.PodPriority(pod) {
		return o.Problems
	}
	return append(slices.Clone(o.Problems), KeyProblem{
		Key: fieldPriority, Value: strconv.Itoa(int(*o.Priority)), OnObject: true,
		Want: fmt.Sprintf("that of its pods (%s has %d)", pod.Name, corev1helpers.PodPriority(pod)),
		Used: "the priority of each pod",
	})
}
