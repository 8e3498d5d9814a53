package gangspec

import (
	"cmp"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	communityv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// Kind is one of the two kinds of PodGroup. If both describe a gang, the community's wins.
type Kind int

// The kinds of PodGroup.
const (
	Community Kind = iota
	Native
)

// APIVersion returns the group and version of a kind of PodGroup.
func (k Kind) APIVersion() string {
	if k == Native {
		return schedulingv1beta1.SchemeGroupVersion.String()
	}
	return communityv1alpha1.SchemeGroupVersion.String()
}

// Ref refers to a PodGroup that has the name of a gang. Its UID is empty if there is none.
type Ref struct {
	Kind Kind
	UID  types.UID
}

// PodGroups are what the PodGroups of a gang say, by their kind; nil where there is none.
type PodGroups [2]*PodGroupDescription

// Read adds what a PodGroup of either kind says, with its status: see [ReadWithStatus].
func (p *PodGroups) Read(object metav1.Object) {
	switch pg := object.(type) {
	case *coscheduling.PodGroup:
		p[Community] = ReadWithStatus(pg)
	case *schedulingv1beta1.PodGroup:
		p[Native] = ReadNative(pg)
	}
}

// OfGang returns those that describe the gang: a native one that makes no gang does not.
func (p PodGroups) OfGang() PodGroups {
	if p[Native].MakesNoGang() {
		p[Native] = nil
	}
	return p
}

// Object is what the PodGroup says that describes the gang; nil if there is none.
func (p PodGroups) Object() *PodGroupDescription {
	p = p.OfGang()
	return cmp.Or(p[Community], p[Native])
}

// Facts returns what they say to others than the gang. The first that names a queue names it for the gang.
func (p PodGroups) Facts() (said PodGroupFacts) {
	p = p.OfGang()
	object := p.Object()
	if object == nil {
		return PodGroupFacts{}
	}
	said = PodGroupFacts{Queue: object.Queue, Evicted: object.Annotations[v1alpha1.EvictedAnnotation]}
	if native := p[Native]; said.Queue == "" && native != nil {
		said.Queue = native.Queue
	}
	return said
}

// QueueOf returns the queue that they name for a pod of their name; empty for none. A pod in no gang, since its native
// PodGroup makes none, is in the queue of that one.
func (p PodGroups) QueueOf(pod *v1.Pod) string {
	if native := p[Native]; native.MakesNoGang() && SourceOf(pod) == FromSchedulingGroup {
		return native.Queue
	}
	return p.Facts().Queue
}

// PodGroupFacts is what the PodGroups of a gang say to others than the gang.
type PodGroupFacts struct {
	// Queue is the queue that they name; empty for none.
	Queue string
	// Evicted is what the one that describes the gang says of its eviction, see [v1alpha1.EvictedAnnotation]; empty for
	// nothing.
	Evicted string
}
