package startup

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	schedcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
)

const (
	// readTimeout bounds one read.
	readTimeout = 30 * time.Second
	// readAnew is how long a cache gets to see what was read before it is read again: an
	// object that came and went in between never shows up in the cache.
	readAnew = 5 * time.Second
	// tryAgain is the pause after an API call failed.
	tryAgain = 500 * time.Millisecond
	// sayEvery is how often it is logged that scheduling waits.
	sayEvery = 10 * time.Second
	// patience is how long the start tries to read a kind that only plugins watch. If their informer has never synced
	// either, the start then goes on without the kind: the plugins hold back the pods that need it, and no others. If the
	// informer has synced before, the start waits without limit, since its cache may be old.
	patience = 30 * time.Second
)

// Watch is a plugin's handler at an informer.
type Watch interface {
	// Name names the plugin and the kind that it watches.
	Name() string
	// Own returns what the plugin's own informer watches, and with what field selector; false
	// where the informer is one of the factory's.
	Own() (resource schema.GroupVersionResource, selector string, own bool)
	// Store returns the cache of the informer.
	Store() cache.Store
	// Synced reports whether the first list of the informer is complete.
	Synced() bool
	// Handled returns the revisions of the objects that the handler has taken in, by UID.
	Handled() map[string]string
	// Forget is called once Handled is no longer needed.
	Forget()
}

// API is the clients that read what is stored.
type API struct {
	Metadata  metadata.Interface
	Discovery discovery.DiscoveryInterface
}

// Wait returns true when the informers of the factory and those of plugins, and then the
// scheduler's own cache and the handlers of plugins, have all that was stored when Wait was
// called, and false when ctx is done. The informers of the factory and their
// handlers have synced. Wait logs now and then what it waits for.
func Wait(ctx context.Context, api API, factory informers.SharedInformerFactory, scheduler schedcache.Cache,
	watches ...Watch) bool {
	logger, begin := klog.FromContext(ctx), time.Now()
	w := &waiting{lacks: map[string]string{}}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go w.logWaiting(ctx)
	var group sync.WaitGroup
	for _, k := range append(kinds(logger, factory, api.Metadata), ownKinds(watches, api)...) {
		group.Go(func() {
			w.persist(ctx, k.name, k.mayEnd, func(ctx context.Context) error {
				return k.catchUp(ctx, func(n int) { w.note(k.name, fmt.Sprintf("%d changes are not in the cache yet", n)) })
			})
		})
	}
	group.Wait()
	for _, f := range followers(factory, scheduler, watches) {
		group.Go(func() {
			w.persist(ctx, f.name, nil, func(ctx context.Context) error {
				return follow(ctx, f, func(n int) { w.note(f.name, fmt.Sprintf("%d changes have not been taken in yet", n)) })
			})
		})
	}
	group.Wait()
	if ctx.Err() != nil {
		return false
	}
	for _, watch := range watches {
		watch.Forget()
	}
	took := time.Since(begin)
	caughtUp(took)
	logger.Info("The caches have caught up with what is stored", "took", took)
	return true
}

// follower is what is made from a cache. What it has taken in is read before what the cache
// has: otherwise an object that comes in between would look like one that the follower has to lose.
type follower struct {
	name        string
	has, stored func() map[string]string
}

func followers(factory informers.SharedInformerFactory, scheduler schedcache.Cache, watches []Watch) []follower {
	all := []follower{
		{"pods in the scheduler's cache", func() map[string]string { return podsOf(scheduler) }, func() map[string]string {
			return podsIn(factory)
		}},
		{"nodes in the scheduler's cache", func() map[string]string { return nodesOf(scheduler) }, func() map[string]string {
			return nodesIn(factory)
		}},
	}
	for _, watch := range watches {
		all = append(all, follower{watch.Name(), watch.Handled, func() map[string]string {
			return revisionsIn(watch.Store(), uidOf, nil)
		}})
	}
	return all
}

// follow returns once a follower has taken in all that is stored now. left is called with the number of changes that it
// lacks.
func follow(ctx context.Context, f follower, left func(int)) error {
	has, stored := f.has(), f.stored()
	b, err := newBacklog(stored, "", has)
	if err != nil {
		return err
	}
	return until(ctx, readAnew, func() (bool, error) {
		n, err := b.settle(in(has), func(key string) bool { _, ok := stored[key]; return !ok })
		if n == 0 || err != nil {
			return err == nil, err
		}
		left(n)
		has, stored = f.has(), f.stored()
		return false, nil
	})
}

func in(revisions map[string]string) seen {
	return func(key string) (string, bool) { revision, ok := revisions[key]; return revision, ok }
}

// podsIn returns the pods on nodes that the informer has, by UID, as the scheduler's cache
// has them.
func podsIn(factory informers.SharedInformerFactory) map[string]string {
	return revisionsIn(factory.Core().V1().Pods().Informer().GetStore(), uidOf, func(object metav1.Object) bool {
		pod, ok := object.(*v1.Pod)
		return ok && pod.Spec.NodeName != ""
	})
}

func nodesIn(factory informers.SharedInformerFactory) map[string]string {
	return revisionsIn(factory.Core().V1().Nodes().Informer().GetStore(), nameOf, nil)
}

// revisionsIn returns the revisions of the objects that a cache has, by their keys, of those that count; nil if all do.
func revisionsIn(store cache.Store, key func(metav1.Object) string, counts func(metav1.Object) bool) map[string]string {
	objects := store.List()
	revisions := make(map[string]string, len(objects))
	for _, object := range objects {
		if accessor, err := meta.Accessor(object); err == nil && (counts == nil || counts(accessor)) {
			revisions[key(accessor)] = accessor.GetResourceVersion()
		}
	}
	return revisions
}

func uidOf(object metav1.Object) string { return string(object.GetUID()) }

func nameOf(object metav1.Object) string { return cache.MetaObjectToName(object).String() }

func podsOf(scheduler schedcache.Cache) map[string]string {
	nodes, pods := scheduler.Dump().Nodes, 0
	for _, node := range nodes {
		pods += len(node.GetPods())
	}
	revisions := make(map[string]string, pods)
	for _, node := range nodes {
		for _, pod := range node.GetPods() {
			revisions[string(pod.GetPod().UID)] = pod.GetPod().ResourceVersion
		}
	}
	return revisions
}

func nodesOf(scheduler schedcache.Cache) map[string]string {
	nodes := scheduler.Dump().Nodes
	revisions := make(map[string]string, len(nodes))
	for name, info := range nodes {
		if node := info.Node(); node != nil {
			revisions[name] = node.ResourceVersion
		}
	}
	return revisions
}

// waiting is what Wait waits for.
type waiting struct {
	mu    sync.Mutex
	lacks map[string]string
}

func (w *waiting) note(name, lack string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lacks[name] = lack
}

func (w *waiting) end(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.lacks, name)
}

// persist calls do until it succeeds, or ctx is done, or mayEnd says that it may end after failing for so long. If
// mayEnd is nil, it does not end by that.
func (w *waiting) persist(ctx context.Context, name string, mayEnd func(failing time.Duration) bool,
	do func(context.Context) error) {
	w.note(name, "being read")
	var failing time.Time
	for ctx.Err() == nil {
		err := do(ctx)
		switch {
		case err == nil:
			w.end(name)
			return
		case errors.Is(err, errBehind):
			failing = time.Time{}
			continue // what it lacks is noted
		case failing.IsZero():
			failing = time.Now()
		case mayEnd != nil && mayEnd(time.Since(failing)):
			klog.FromContext(ctx).Error(err, "Failed to read a kind of object that plugins watch; going on without",
				"kind", name)
			w.end(name)
			return
		}
		w.note(name, err.Error())
		select {
		case <-ctx.Done():
		case <-time.After(tryAgain):
		}
	}
}

// logWaiting logs now and then what is waited for.
func (w *waiting) logWaiting(ctx context.Context) {
	ticker := time.NewTicker(sayEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		w.mu.Lock()
		var lacks []string
		for name, lack := range w.lacks {
			lacks = append(lacks, name+": "+lack)
		}
		w.mu.Unlock()
		klog.FromContext(ctx).Info("Scheduling waits until the caches have what is stored", "lacking",
			strings.Join(lacks, "; "))
	}
}
