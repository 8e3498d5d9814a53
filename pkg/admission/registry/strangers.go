package registry

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
)

// strangers are the pods of gangs by the schedulers that they name: pods of a gang that name
// another scheduler than a profile are no members there, which their author may not know. It is
// safe for concurrent use.
type strangers struct {
	mu sync.Mutex
	// schedulers are the scheduler names of the pods of each gang.
	schedulers map[gangstate.Key]map[types.UID]string
	gangs      map[types.UID]gangstate.Key
}

// see adds a pod, and returns the gangs that it has joined or left.
func (s *strangers) see(pod *v1.Pod) (changed []gangstate.Key) {
	key, _, ok := gangstate.KeyOf(pod)
	s.mu.Lock()
	defer s.mu.Unlock()
	was, known := s.gangs[pod.UID]
	if known && ok && was == key {
		return nil
	}
	if known {
		s.drop(pod.UID, was)
		changed = append(changed, was)
	}
	if !ok {
		return changed
	}
	if s.gangs == nil {
		s.gangs, s.schedulers = map[types.UID]gangstate.Key{}, map[gangstate.Key]map[types.UID]string{}
	}
	if s.schedulers[key] == nil {
		s.schedulers[key] = map[types.UID]string{}
	}
	s.gangs[pod.UID], s.schedulers[key][pod.UID] = key, pod.Spec.SchedulerName
	return append(changed, key)
}

// gone removes a pod.
func (s *strangers) gone(uid types.UID) (changed []gangstate.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, known := s.gangs[uid]
	if !known {
		return nil
	}
	s.drop(uid, key)
	return []gangstate.Key{key}
}

func (s *strangers) drop(uid types.UID, key gangstate.Key) {
	delete(s.gangs, uid)
	delete(s.schedulers[key], uid)
	if len(s.schedulers[key]) == 0 {
		delete(s.schedulers, key)
	}
}

// of returns the message about pods of a gang that a profile leaves aside; empty where there are none.
func (s *strangers) of(key gangstate.Key, profile string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	count, others := 0, map[string]bool{}
	for _, name := range s.schedulers[key] {
		if name != profile {
			count++
			others[name] = true
		}
	}
	if count == 0 {
		return ""
	}
	verb := "names"
	if count > 1 {
		verb = "name"
	}
	names := strings.Join(slices.Sorted(maps.Keys(others)), ", ")
	return fmt.Sprintf("; %d more %s another scheduler: %s (set spec.schedulerName: %s)", count, verb, names, profile)
}
