package gangstate

import (
	"cmp"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// PodGroups are what the PodGroups of a gang say, by their kind; nil where there is none.
type PodGroups [2]*PodGroupDescription

// Object is what the PodGroup says that describes the gang; nil if there is none.
func (p PodGroups) Object() *PodGroupDescription { return cmp.Or(p[Community], p[Native]) }

// Facts returns what they say to others than the gang. The first that names a queue names it for the gang.
func (p PodGroups) Facts() (said PodGroupFacts) {
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

// PodGroupFacts is what the PodGroups of a gang say to others than the gang.
type PodGroupFacts struct {
	// Queue is the queue that they name; empty for none.
	Queue string
	// Evicted is what the one that describes the gang says of its eviction, see [v1alpha1.EvictedAnnotation]; empty for
	// nothing.
	Evicted string
}

// PodGroupFacts returns what the PodGroups of a gang say; nothing if it has none.
func (s *Gangs) PodGroupFacts(key Key) PodGroupFacts {
	if g := s.gangs[key]; g != nil {
		return g.objects.Facts()
	}
	return PodGroupFacts{}
}
