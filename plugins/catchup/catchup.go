package catchup

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	schedcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"

	"github.com/lockstep-sh/lockstep/plugins/internal/backlog"
)

const (
	// readTimeout bounds one read.
	readTimeout = 30 * time.Second
	// readAnew is how long a cache gets to see what was read before it is read anew: an
	// object that came and went in between would be waited for in vain.
	readAnew = 5 * time.Second
	// tryAgain is the pause after the API server did not answer.
	tryAgain = 500 * time.Millisecond
	// sayEvery is how often it is said that scheduling waits.
	sayEvery = 10 * time.Second
)

// Wait returns when the informers of the factory, and the scheduler's own cache, have all
// that was stored when it was called, with true; or with false, when ctx is done. The
// informers and their handlers have synced. It says once in a while what it waits for.
func Wait(ctx context.Context, client metadata.Interface, factory informers.SharedInformerFactory, scheduler schedcache.Cache) bool {
	logger, begin := klog.FromContext(ctx), time.Now()
	w := &waiting{lacks: map[string]string{}}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go w.say(ctx)
	var group sync.WaitGroup
	for _, k := range kinds(logger, factory, client) {
		group.Go(func() {
			name := k.resource.GroupResource().String()
			w.persist(ctx, name, func(ctx context.Context) error {
				return k.catchUp(ctx, func(n int) { w.note(name, fmt.Sprintf("%d changes are not in the cache yet", n)) })
			})
		})
	}
	group.Wait()
	for name, own := range map[string]func() (stored, cached map[string]string){
		"pods in the scheduler's cache":  func() (_, _ map[string]string) { return podsIn(factory), podsOf(scheduler) },
		"nodes in the scheduler's cache": func() (_, _ map[string]string) { return nodesIn(factory), nodesOf(scheduler) },
	} {
		w.persist(ctx, name, func(ctx context.Context) error { return follow(ctx, own) })
	}
	if ctx.Err() != nil {
		return false
	}
	took := time.Since(begin)
	caughtUp(took)
	logger.Info("The caches have what was stored when this process began to lead; scheduling begins", "took", took)
	return true
}

// follow returns when a cache that is made from another has what that one has now.
func follow(ctx context.Context, own func() (stored, cached map[string]string)) error {
	stored, cached := own()
	b, err := backlog.New(stored, "", cached)
	if err != nil {
		return err
	}
	return until(ctx, readAnew, func() (bool, error) {
		stored, cached := own()
		n, err := b.Settle(in(cached), func(key string) bool { _, ok := stored[key]; return !ok })
		return n == 0, err
	})
}

func in(revisions map[string]string) backlog.Seen {
	return func(key string) (string, bool) { revision, ok := revisions[key]; return revision, ok }
}

// podsIn are the pods on nodes that the informer has, by UID, as the scheduler's cache
// has them.
func podsIn(factory informers.SharedInformerFactory) map[string]string {
	revisions := map[string]string{}
	for _, object := range factory.Core().V1().Pods().Informer().GetStore().List() {
		if pod, ok := object.(*v1.Pod); ok && pod.Spec.NodeName != "" {
			revisions[string(pod.UID)] = pod.ResourceVersion
		}
	}
	return revisions
}

func nodesIn(factory informers.SharedInformerFactory) map[string]string {
	revisions := map[string]string{}
	for _, object := range factory.Core().V1().Nodes().Informer().GetStore().List() {
		if node, ok := object.(*v1.Node); ok {
			revisions[cache.MetaObjectToName(node).String()] = node.ResourceVersion
		}
	}
	return revisions
}

func podsOf(scheduler schedcache.Cache) map[string]string {
	revisions := map[string]string{}
	for _, node := range scheduler.Dump().Nodes {
		for _, pod := range node.GetPods() {
			revisions[string(pod.GetPod().UID)] = pod.GetPod().ResourceVersion
		}
	}
	return revisions
}

func nodesOf(scheduler schedcache.Cache) map[string]string {
	revisions := map[string]string{}
	for name, info := range scheduler.Dump().Nodes {
		if node := info.Node(); node != nil {
			revisions[name] = node.ResourceVersion
		}
	}
	return revisions
}

// waiting is what is waited for.
type waiting struct {
	mu    sync.Mutex
	lacks map[string]string
}

func (w *waiting) note(name, lack string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lacks[name] = lack
}

// persist does something until it succeeds, or ctx is done.
func (w *waiting) persist(ctx context.Context, name string, do func(context.Context) error) {
	w.note(name, "being read")
	for ctx.Err() == nil {
		err := do(ctx)
		switch {
		case err == nil:
			w.mu.Lock()
			delete(w.lacks, name)
			w.mu.Unlock()
			return
		case errors.Is(err, errBehind):
			continue // what it lacks is noted
		}
		w.note(name, err.Error())
		select {
		case <-ctx.Done():
		case <-time.After(tryAgain):
		}
	}
}

// say says what is waited for, once in a while.
func (w *waiting) say(ctx context.Context) {
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
		klog.FromContext(ctx).Info("Scheduling waits until the caches have what is stored", "lacking", strings.Join(lacks, "; "))
	}
}
