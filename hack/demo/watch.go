package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/test/localcluster"
)

// podGroupLabel names the PodGroup of a pod.
const podGroupLabel = "scheduling.x-k8s.io/pod-group"

var podGroups = schema.GroupVersionResource{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Resource: "podgroups"}

// sightings is what a watch has seen of pods and PodGroups, by namespace/name, and of queues, and when.
type sightings struct {
	mu     sync.Mutex
	pods   map[string]*podSeen
	groups map[string]groupSeen
	queues map[string]queueSeen
	// evicted are the pods that were evicted, by namespace.
	evicted map[string]map[types.UID]bool
	// changed is closed, and made anew, when something has changed.
	changed chan struct{}
}

// podSeen is a pod and when it was first seen, and first seen with a node.
type podSeen struct {
	*v1.Pod
	created, bound time.Time
}

// groupSeen is what the status of a PodGroup says.
type groupSeen struct {
	reason, message string // of its condition Scheduled
	running         int64
}

func (g groupSeen) String() string {
	return fmt.Sprintf("%d running; reason %q, message %q", g.running, g.reason, g.message)
}

// queueSeen is what the status of a queue says: GPUs, and gangs.
type queueSeen struct{ deserved, allocated, running, pending int64 }

func (q queueSeen) String() string {
	return fmt.Sprintf("%d GPUs deserved, %d allocated; %d gangs running, %d pending", q.deserved, q.allocated, q.running, q.pending)
}

// watch sees everything from now on.
func watch(ctx context.Context, c *localcluster.Cluster) (*sightings, error) {
	s := &sightings{pods: map[string]*podSeen{}, groups: map[string]groupSeen{}, queues: map[string]queueSeen{}, evicted: map[string]map[types.UID]bool{}, changed: make(chan struct{})}
	client, err := dynamic.NewForConfig(c.RESTConfig())
	if err != nil {
		return nil, fmt.Errorf("making a client for PodGroups and queues: %w", err)
	}
	pods := informers.NewSharedInformerFactory(c.Clientset(), 0).Core().V1().Pods().Informer()
	custom := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	groups, teams := custom.ForResource(podGroups).Informer(), custom.ForResource(v1alpha1.QueueResource).Informer()
	for informer, note := range map[cache.SharedIndexInformer]func(object any, gone bool){pods: s.notePod, groups: s.noteGroup, teams: s.noteQueue} {
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { note(object, false) },
			UpdateFunc: func(_, object any) { note(object, false) },
			DeleteFunc: func(object any) { note(object, true) },
		}); err != nil {
			return nil, fmt.Errorf("watching: %w", err)
		}
		go informer.RunWithContext(ctx)
	}
	if !cache.WaitForCacheSync(ctx.Done(), pods.HasSynced, groups.HasSynced, teams.HasSynced) {
		return nil, fmt.Errorf("watching: %w", context.Cause(ctx))
	}
	return s, nil
}

func (s *sightings) notePod(object any, gone bool) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.wake()
	if gone {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
			delete(s.pods, key)
		}
		return
	}
	pod, ok := object.(*v1.Pod)
	if !ok {
		return
	}
	key := pod.Namespace + "/" + pod.Name
	seen := s.pods[key]
	if seen == nil || seen.UID != pod.UID {
		seen = &podSeen{created: now}
		s.pods[key] = seen
	}
	seen.Pod = pod
	if slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue }) {
		if s.evicted[pod.Namespace] == nil {
			s.evicted[pod.Namespace] = map[types.UID]bool{}
		}
		s.evicted[pod.Namespace][pod.UID] = true
	}
	if pod.Spec.NodeName != "" && seen.bound.IsZero() {
		seen.bound = now
	}
}

func (s *sightings) noteGroup(object any, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.wake()
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		return
	}
	group, ok := object.(*unstructured.Unstructured)
	if gone || !ok {
		delete(s.groups, key)
		return
	}
	var seen groupSeen
	seen.running, _, _ = unstructured.NestedInt64(group.Object, "status", "running")
	conditions, _, _ := unstructured.NestedSlice(group.Object, "status", "conditions")
	for _, entry := range conditions {
		if m, ok := entry.(map[string]any); ok && m["type"] == "Scheduled" {
			seen.reason, seen.message = fmt.Sprint(m["reason"]), fmt.Sprint(m["message"])
		}
	}
	s.groups[key] = seen
}

func (s *sightings) noteQueue(object any, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.wake()
	raw, ok := object.(*unstructured.Unstructured)
	if gone || !ok {
		return // none is deleted in this story
	}
	queue := &v1alpha1.Queue{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, queue); err != nil {
		return
	}
	deserved, allocated := queue.Status.Deserved[localcluster.ResourceGPU], queue.Status.Allocated[localcluster.ResourceGPU]
	s.queues[queue.Name] = queueSeen{deserved.Value(), allocated.Value(), int64(queue.Status.RunningGangs), int64(queue.Status.PendingGangs)}
}

func (s *sightings) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// test asks a question of what was seen until now. changed is closed when the answer may be another.
func (s *sightings) test(question func(*sightings) (string, bool)) (saw string, ok bool, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	saw, ok = question(s)
	return saw, ok, s.changed
}

// gang is how far the pods of one gang, or of several, have come.
type gang struct {
	pods, bound, running int
	created              time.Time // of the last pod
	first, last          time.Time // bindings
	racks                []string
}

// gang looks at all pods of some namespaces; of bindings, only at those after a time.
func (s *sightings) gang(after time.Time, namespaces ...string) gang {
	var g gang
	for _, pod := range s.pods {
		if slices.Contains(namespaces, pod.Namespace) {
			g.add(pod, after)
		}
	}
	return g
}

func (g *gang) add(pod *podSeen, after time.Time) {
	g.pods++
	g.created = later(g.created, pod.created)
	if pod.Status.Phase == v1.PodRunning {
		g.running++
	}
	if pod.bound.IsZero() {
		return
	}
	g.bound++
	if rack, _, _ := strings.Cut(pod.Spec.NodeName, "-"); !slices.Contains(g.racks, rack) {
		g.racks = append(g.racks, rack)
	}
	if pod.bound.Before(after) {
		return
	}
	g.last = later(g.last, pod.bound)
	if g.first.IsZero() || pod.bound.Before(g.first) {
		g.first = pod.bound
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// together is how far apart the first and the last binding were.
func (g gang) together() time.Duration { return g.last.Sub(g.first) }

func (g gang) String() string {
	return fmt.Sprintf("%d pods, %d of them bound, %d running", g.pods, g.bound, g.running)
}

// told lists the pods of a namespace that wait for a node and say why.
func (s *sightings) told(namespace, why string) []string {
	var names []string
	for _, pod := range s.pods {
		if pod.Namespace == namespace && strings.Contains(whyPending(pod.Pod), why) {
			names = append(names, pod.Name)
		}
	}
	slices.Sort(names)
	return names
}

// runningOf counts the pods that run, by gang, of those of which any do.
func (s *sightings) runningOf(namespaces ...string) map[string]int {
	running := map[string]int{}
	for _, pod := range s.pods {
		if slices.Contains(namespaces, pod.Namespace) && pod.Status.Phase == v1.PodRunning {
			running[pod.Namespace+"/"+pod.Labels[podGroupLabel]]++
		}
	}
	return running
}

// whyPending is the message of the condition PodScheduled while that is false.
func whyPending(pod *v1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}
