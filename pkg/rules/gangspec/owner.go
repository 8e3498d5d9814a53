package gangspec

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/keys"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// OwnerKind is a kind of object of which it is known which pods it makes together.
type OwnerKind string

// The kinds of owners.
const (
	OwnerJob             OwnerKind = "Job"
	OwnerJobSet          OwnerKind = "JobSet"
	OwnerLeaderWorkerSet OwnerKind = "LeaderWorkerSet"
)

// Owner is an object, or a part of it, whose pods are a gang because they asked for it by
// [v1alpha1.GangAnnotation].
type Owner struct {
	Kind OwnerKind
	Name string
	// Part is the name of a replicated job, or the index of a group of a LeaderWorkerSet; empty
	// for all that the object makes.
	Part string
}

// GangName returns the name of the gang, and of the PodGroup that describes it: job.train,
// jobset.train, jobset.train.workers, lws.serve.0. The dots set it apart from names that users
// give. Names of JobSets and LeaderWorkerSets, and of their parts, have none, so no two gangs have
// one name.
func (o Owner) GangName() string {
	kind := "job"
	switch o.Kind {
	case OwnerJob:
	case OwnerJobSet:
		kind = "jobset"
	case OwnerLeaderWorkerSet:
		kind = "lws"
	}
	if o.Part == "" {
		return kind + "." + o.Name
	}
	return kind + "." + o.Name + "." + o.Part
}

// OwnerOf returns the owner whose pods are the gang of this one; false if the pod does not ask for
// that, or its owner is of no known kind. What a pod says of its gang by other keys is ignored: see
// [KeyOf].
func OwnerOf(pod *v1.Pod) (Owner, bool) {
	switch pod.Annotations[v1alpha1.GangAnnotation] {
	case v1alpha1.GangOwner:
		return ownerBy(pod, false)
	case v1alpha1.GangOwnerPart:
		return ownerBy(pod, true)
	default:
		return Owner{}, false
	}
}

// ownerBy reads labels and owner references. The outermost owner counts: the Jobs of a JobSet
// belong together.
func ownerBy(pod *v1.Pod, parts bool) (Owner, bool) {
	if name := pod.Labels[v1alpha1.LeaderWorkerSetNameLabel]; isLabel(name) {
		index := pod.Labels[v1alpha1.LeaderWorkerGroupLabel]
		return Owner{OwnerLeaderWorkerSet, name, index}, isLabel(index)
	}
	if name := pod.Labels[v1alpha1.JobSetNameLabel]; isLabel(name) {
		if !parts {
			return Owner{Kind: OwnerJobSet, Name: name}, true
		}
		part := pod.Labels[v1alpha1.ReplicatedJobNameLabel]
		return Owner{OwnerJobSet, name, part}, isLabel(part)
	}
	if ref := objectstate.ControllingJob(pod); ref != nil {
		return Owner{Kind: OwnerJob, Name: ref.Name}, true
	}
	return Owner{}, false
}

// isLabel reports whether a text can be the name of an object without dots. It is called for every
// pod that is queued, so it uses no regular expression.
func isLabel(name string) bool {
	for i := range len(name) {
		c := name[i]
		inside := c == '-' && i > 0 && i < len(name)-1
		if !inside && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

// askedInVain returns what is wrong if a pod asks to be in the gang of its owner, and is in no
// gang; nil if nothing is. An empty value asks for nothing, whatever the namespace says.
func askedInVain(pod *v1.Pod) *KeyProblem {
	value := pod.Annotations[v1alpha1.GangAnnotation]
	if value == "" {
		return nil
	}
	if _, _, member := KeyOf(pod); member {
		return nil
	}
	p := &KeyProblem{Key: v1alpha1.GangAnnotation, Value: value, Used: "no gang: the pod is scheduled alone"}
	if takes := keys.ValueOf(v1alpha1.GangAnnotation); !slices.Contains(takes.OneOf, value) {
		p.Want, p.Used = takes.Want, "nothing: the pod waits until this is corrected"
		return p
	}
	p.Want = fmt.Sprintf("for pods of %s, only for those of a Job, JobSet or LeaderWorkerSet", ownerText(pod))
	p.Used += fmt.Sprintf("; give it a gang by %s and %s, or by a PodGroup", v1alpha1.GangNameAnnotation,
		v1alpha1.MinAvailableAnnotation)
	return p
}

// CheckPod returns why a waiting pod cannot be scheduled as it is; nil if it can. Such a pod counts nowhere. It asks
// for an amount that no pod can have, or for a gang by a value that is none: alone it could run where its user does not
// want it.
func CheckPod(pod *v1.Pod) error {
	if fault := resource.CheckPod(pod); fault != nil {
		return fmt.Errorf("the pod asks for what no node can have: %w", fault)
	}
	if pod.Spec.NodeName == "" && AsksUnknownGang(pod) {
		return fmt.Errorf("%s; correct it on the template that the pod is made from, "+
			"or remove it to have the pod scheduled alone",
			askedInVain(pod).Fault())
	}
	return nil
}

// AsksUnknownGang reports whether a pod has a value of [v1alpha1.GangAnnotation] that is none, and nothing that counts
// before it.
func AsksUnknownGang(pod *v1.Pod) bool {
	_, _, member := KeyOf(pod)
	return !member && isUnknownGang(pod)
}

func isUnknownGang(pod *v1.Pod) bool {
	switch pod.Annotations[v1alpha1.GangAnnotation] {
	case "", v1alpha1.GangOwner, v1alpha1.GangOwnerPart:
		return false
	default:
		return true
	}
}

// ProblemsOutside returns what cannot be used of the keys of a pod that is in no gang.
func ProblemsOutside(pod *v1.Pod, defaults Defaults) []KeyProblem {
	if _, _, member := KeyOf(pod); member {
		return nil
	}
	var problems []KeyProblem
	if problem := askedInVain(pod); problem != nil {
		problems = append(problems, *problem)
	}
	if !DescribesGang(pod) {
		return problems
	}
	key, minimum := statedMin(pod)
	if minimum != "" {
		problems = append(problems, KeyProblem{
			Key: key, Value: minimum, Used: "no gang: the pod is scheduled alone",
			Want: fmt.Sprintf("said with the name of a gang, in %s or a label of a PodGroup", v1alpha1.GangNameAnnotation),
		})
	}
	_, bad := Parse(Key{Namespace: pod.Namespace}, nil, pod, defaults)
	for _, problem := range bad {
		if problem.Used == usedNothing {
			problem.Used = "none: the pod is in no gang"
		}
		if problem.Key != key && problem.Key != v1alpha1.PreemptionDelayAnnotation {
			problems = append(problems, problem)
		}
	}
	if _, problem := PreemptionDelayOf(pod); problem != nil {
		problems = append(problems, *problem)
	}
	return problems
}

// SameKeys reports whether two versions of a pod have the same keys of gangs.
func SameKeys(a, b *v1.Pod) bool {
	return sameEntry(a.Annotations, b.Annotations, v1alpha1.GangAnnotation) && DescribeAlike(a, b)
}

// ownerText describes the controller that made a pod.
func ownerText(pod *v1.Pod) string {
	if ref := metav1.GetControllerOfNoCopy(pod); ref != nil {
		return fmt.Sprintf("%s %q", ref.Kind, ref.Name)
	}
	return "no controller"
}

// ManagedByLabel is on the PodGroups that [LockstepController] makes for owners.
const (
	ManagedByLabel     = "app.kubernetes.io/managed-by"
	LockstepController = "lockstep-controller"
)

// MadeFor returns the UID of the owner for whose pods a PodGroup was made; empty if a user made it.
func MadeFor(group metav1.Object) types.UID {
	owner := metav1.GetControllerOfNoCopy(group)
	if owner == nil || group.GetLabels()[ManagedByLabel] != LockstepController {
		return ""
	}
	return owner.UID
}
