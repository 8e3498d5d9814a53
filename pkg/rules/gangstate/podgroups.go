package gangstate

import (
	"cmp"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// PodGroups are what the PodGroups of a gang say, by their kind; nil where there is none.
type PodGroups [2]*Object

// Object is what the PodGroup says that describes the gang; nil if there is none.
func (p PodGroups) Object() *Object { return cmp.Or(p[Community], p[Native]) }

// Said returns what they say to others than the gang. The first that names a queue names it for the gang.
func (p PodGroups) Said() (said Said) {
	object := p.Object()
	if object == nil {
		return Said{}
	}
	said = Said{Queue: object.Queue, Evicted: object.Annotations[v1alpha1.EvictedAnnotation]}
	if native := p[Native]; said.Queue == "" && native != nil {
		said.Queue = native.Queue
	}
	return said
}

// Said is what the PodGroups of a gang say to others than the gang.
type Said struct {
	// Queue is the queue that they name; empty for none.
	Queue string
	// Evicted is what the one that describes the gang says of its eviction, see [v1alpha1.EvictedAnnotation]; empty for
	// nothing.
	Evicted string
}

// Said returns what the PodGroups of a gang say; nothing if it has none.
func (s *Gangs) Said(key Key) Said {
	if g := s.gangs[key]; g != nil {
		return g.objects.Said()
	}
	return Said{}
}
