package main

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/lockstep-sh/lockstep/test/chaos/invariant"
)

var podGroups = schema.GroupVersionResource{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Resource: "podgroups"}

// watched is how many kinds of objects are watched.
const watched = 4

// sink hands what a reflector sees to the observer: in the order of the watch, and again as a whole after it was
// cut.
type sink struct {
	seen   func(any)
	gone   func(any)
	listed func([]any)
}

func (s sink) Add(object any) error    { s.seen(object); return nil }
func (s sink) Update(object any) error { s.seen(object); return nil }
func (s sink) Delete(object any) error { s.gone(object); return nil }
func (s sink) Resync() error           { return nil }

func (s sink) Replace(list []any, _ string) error {
	s.listed(list)
	return nil
}

// watchAll begins to watch all that the checker judges by.
func (o *observer) watchAll(ctx context.Context, client kubernetes.Interface, dynamic dynamic.Interface) {
	core := client.CoreV1().RESTClient()
	reflect(ctx, "pods", cache.NewListWatchFromClient(core, "pods", v1.NamespaceAll, fields.Everything()), &v1.Pod{}, sink{
		seen:   func(object any) { o.seePod(object.(*v1.Pod)) },
		gone:   func(object any) { o.podGone(object.(*v1.Pod)) },
		listed: func(list []any) { o.podsListed(typed[*v1.Pod](list)) },
	})
	reflect(ctx, "nodes", cache.NewListWatchFromClient(core, "nodes", v1.NamespaceAll, fields.Everything()), &v1.Node{}, sink{
		seen: func(object any) { o.observe(invariant.NodeSeen{Node: object.(*v1.Node)}) },
		gone: func(object any) { o.observe(invariant.NodeGone{Name: object.(*v1.Node).Name}) },
		listed: func(list []any) {
			o.observe(invariant.NodesListed{Nodes: typed[*v1.Node](list)})
			o.markSynced("nodes")
		},
	})
	told := func(object any) { o.observe(invariant.Told{Event: object.(*v1.Event)}) }
	reflect(ctx, "events", cache.NewListWatchFromClient(core, "events", v1.NamespaceAll, fields.OneTermEqualSelector("reason", "Preempted")), &v1.Event{}, sink{
		seen: told,
		gone: func(any) {},
		listed: func(list []any) {
			for _, object := range list {
				told(object)
			}
			o.markSynced("events")
		},
	})
	groups := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return dynamic.Resource(podGroups).List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return dynamic.Resource(podGroups).Watch(ctx, options)
		},
	}
	reflect(ctx, "podgroups", groups, &unstructured.Unstructured{}, sink{
		seen: func(object any) { o.observe(invariant.GroupSeen{Group: groupOf(object)}) },
		gone: func(object any) { o.observe(invariant.GroupGone{Key: groupOf(object).Key}) },
		listed: func(list []any) {
			all := invariant.GroupsListed{}
			for _, object := range list {
				all.Groups = append(all.Groups, groupOf(object))
			}
			o.observe(all)
			o.markSynced("podgroups")
		},
	})
}

func typed[T any](list []any) []T {
	out := make([]T, len(list))
	for i := range list {
		out[i] = list[i].(T)
	}
	return out
}

func groupOf(object any) invariant.Group {
	u := object.(*unstructured.Unstructured)
	minimum, _, _ := unstructured.NestedInt64(u.Object, "spec", "minMember")
	return invariant.Group{
		Key: u.GetNamespace() + "/" + u.GetName(), UID: u.GetUID(), Min: int(minimum), Annotations: u.GetAnnotations(), Labels: u.GetLabels(),
	}
}

// reflect runs a reflector that comes back soon after the API server does.
func reflect(ctx context.Context, name string, from cache.ListerWatcher, object runtime.Object, into sink) {
	reflector := cache.NewReflectorWithOptions(from, object, into, cache.ReflectorOptions{
		Name: name, Backoff: &wait.Backoff{Duration: 50 * time.Millisecond, Factor: 1.5, Steps: 5, Cap: 500 * time.Millisecond},
	})
	go reflector.RunWithContext(ctx)
}
