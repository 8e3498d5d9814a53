package reservepods

import (
	"fmt"
	"maps"
	"strconv"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/pkg/kube/apiwrites"
)

var resource = v1.Resource("pods")

// Store is the reserve pods of a process. It is safe for concurrent use. What it returns are
// copies, and what it refuses it refuses with the errors of the API server.
type Store struct {
	mu sync.Mutex
	// pods are never changed: each change puts another object in the place of the one before.
	pods map[cache.ObjectName]*v1.Pod
	// version is the resourceVersion that was given last. Each change has one of its own.
	version  uint64
	watchers []func(watch.Event)
}

// NewStore makes one without pods.
func NewStore() *Store { return &Store{pods: map[cache.ObjectName]*v1.Pod{}} }

// Add puts a pod into the store. It has the name of a reserve pod, a namespace and a UID.
func (s *Store) Add(pod *v1.Pod) error {
	if !IsReservePod(pod) || pod.Namespace == "" || pod.UID == "" {
		return apierrors.NewBadRequest(fmt.Sprintf("adding pod %q in namespace %q with UID %q: "+
			"the name of a reserve pod begins with %q, and it has a namespace and a UID",
			pod.Name, pod.Namespace, pod.UID, prefix))
	}
	pod = pod.DeepCopy()
	pod.TypeMeta, pod.ManagedFields = metav1.TypeMeta{}, nil
	pod.Generation = max(pod.Generation, 1)
	if pod.Status.Phase == "" {
		pod.Status.Phase = v1.PodPending
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, found := s.pods[cache.MetaObjectToName(pod)]; found {
		return apierrors.NewAlreadyExists(resource, pod.Name)
	}
	s.put(watch.Added, pod)
	return nil
}

// Get returns a pod.
func (s *Store) Get(namespace, name string) (*v1.Pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pod, err := s.get(namespace, name)
	if err != nil {
		return nil, err
	}
	return pod.DeepCopy(), nil
}

// Delete takes a pod out of the store, at once. The preconditions may be nil.
func (s *Store) Delete(namespace, name string, preconditions *metav1.Preconditions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	pod, err := s.get(namespace, name)
	if err == nil && preconditions != nil {
		err = apiwrites.Check(resource, pod, ptr.Deref(preconditions.UID, ""), ptr.Deref(preconditions.ResourceVersion, ""))
	}
	if err != nil {
		return err
	}
	s.put(watch.Deleted, pod.DeepCopy())
	return nil
}

// Bind gives a pod its node.
func (s *Store) Bind(namespace string, binding *v1.Binding) error {
	_, err := s.change(namespace, binding.Name, func(pod *v1.Pod) (*v1.Pod, error) {
		pod = pod.DeepCopy()
		return pod, apiwrites.Bind(pod, binding)
	})
	return err
}

// Update changes the metadata of a pod. Its status stays as it is, and the spec must.
func (s *Store) Update(namespace string, pod *v1.Pod) (*v1.Pod, error) {
	return s.update(namespace, pod, keepStatus)
}

// UpdateStatus changes the status of a pod. Its spec stays as it is.
func (s *Store) UpdateStatus(namespace string, pod *v1.Pod) (*v1.Pod, error) {
	return s.update(namespace, pod, keepSpec)
}

func (s *Store) update(namespace string, pod *v1.Pod, keep func(before, now *v1.Pod) error) (*v1.Pod, error) {
	return s.change(namespace, pod.Name, func(before *v1.Pod) (*v1.Pod, error) {
		if err := apiwrites.Check(resource, before, pod.UID, pod.ResourceVersion); err != nil {
			return nil, err
		}
		now := pod.DeepCopy()
		return now, keep(before, now)
	})
}

// change puts what f makes of a pod in its place. f does not change what it gets. If nothing
// differs, nothing happens.
func (s *Store) change(namespace, name string, f func(*v1.Pod) (*v1.Pod, error)) (*v1.Pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, err := s.get(namespace, name)
	if err != nil {
		return nil, err
	}
	now, err := f(before)
	if err != nil {
		return nil, err
	}
	now.ResourceVersion = before.ResourceVersion
	if equality.Semantic.DeepEqual(before, now) {
		return before.DeepCopy(), nil
	}
	s.put(watch.Modified, now)
	return now.DeepCopy(), nil
}

// get looks a pod up. s.mu is held.
func (s *Store) get(namespace, name string) (*v1.Pod, error) {
	pod, found := s.pods[cache.NewObjectName(namespace, name)]
	if !found {
		return nil, apierrors.NewNotFound(resource, name)
	}
	return pod, nil
}

// put takes in a pod as it is now, or was at its end, and calls the watchers. s.mu is held.
func (s *Store) put(kind watch.EventType, pod *v1.Pod) {
	s.version++
	pod.ResourceVersion = strconv.FormatUint(s.version, 10)
	take(s.pods, watch.Event{Type: kind, Object: pod})
	for _, watcher := range s.watchers {
		watcher(watch.Event{Type: kind, Object: pod})
	}
}

// watch returns the pods as they are now, and makes the store call a watcher for every change from
// now on, in order. The watcher is called under the lock of the store.
func (s *Store) watch(watcher func(watch.Event)) map[cache.ObjectName]*v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers = append(s.watchers, watcher)
	return maps.Clone(s.pods)
}

// take makes pods what they are after an event.
func take(pods map[cache.ObjectName]*v1.Pod, event watch.Event) {
	pod := event.Object.(*v1.Pod)
	if event.Type == watch.Deleted {
		delete(pods, cache.MetaObjectToName(pod))
		return
	}
	pods[cache.MetaObjectToName(pod)] = pod
}
