package startup

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/metadata"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	schedcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// watch is a plugin's watch. It counts how often it was looked at.
type watch struct {
	resource  schema.GroupVersionResource
	store     looked
	mu        sync.Mutex
	handled   map[string]string
	looks     atomic.Int32
	forgotten atomic.Bool
	unsynced  bool
}

type looked struct {
	cache.Store
	looks atomic.Int32
}

func (s *looked) LastStoreSyncResourceVersion() string {
	s.looks.Add(1)
	return s.Store.LastStoreSyncResourceVersion()
}

func newWatch(resource schema.GroupVersionResource) *watch {
	return &watch{resource: resource, handled: map[string]string{}, store: looked{Store: cache.NewStore(cache.MetaNamespaceKeyFunc)}}
}

func (w *watch) Name() string       { return "somebody's" }
func (w *watch) Store() cache.Store { return &w.store }
func (w *watch) Synced() bool       { return !w.unsynced }
func (w *watch) Forget()            { w.forgotten.Store(true) }
func (w *watch) Own() (schema.GroupVersionResource, string, bool) {
	return w.resource, "", !w.resource.Empty()
}

func (w *watch) Handled() map[string]string {
	w.looks.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.handled)
}

func (w *watch) handle(uid, revision string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handled[uid] = revision
}

// see puts an object that was changed at revision into the cache.
func (w *watch) see(t *testing.T, revision string) {
	t.Helper()
	if err := w.store.Add(&metav1.PartialObjectMetadata{ObjectMeta: object(revision)}); err != nil {
		t.Error(err)
	}
}

func object(revision string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: "team", UID: types.UID("team-uid"), ResourceVersion: revision}
}

// storedQueues returns an API server with one queue of revision 20, or one that does not serve queues.
func storedQueues(t *testing.T, served bool) API {
	t.Helper()
	mux := http.NewServeMux()
	answer := func(path string, object any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(object)
		})
	}
	group, queues := v1alpha1.QueueResource.GroupVersion().String(), "/apis/"+v1alpha1.QueueResource.GroupVersion().String()+"/queues"
	if served {
		answer("/apis/"+group, metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: group, APIResources: []metav1.APIResource{{Name: "queues", Kind: "Queue"}},
		})
		answer(queues, metav1.PartialObjectMetadataList{
			TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "100"},
			Items: []metav1.PartialObjectMetadata{{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"}, ObjectMeta: object("20")}},
		})
	} else {
		mux.HandleFunc(queues, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "who are you?", http.StatusForbidden) })
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	config := &restclient.Config{Host: server.URL, QPS: -1}
	client, err := metadata.NewForConfig(config)
	must.Succeed(t, err)
	discovered, err := discovery.NewDiscoveryClientForConfig(config)
	must.Succeed(t, err)
	return API{Metadata: client, Discovery: discovered}
}

// empty is an empty scheduler's cache.
type empty struct{ schedcache.Cache }

func (empty) Dump() *schedcache.Dump { return &schedcache.Dump{} }

// TestWatchesOfPlugins: scheduling waits for the caches of plugins, and for their handlers.
func TestWatchesOfPlugins(t *testing.T) {
	for sentence, c := range map[string]struct {
		served bool
		begin  func(t *testing.T, w *watch)
		// late returns the counter of looks that find nothing, until then runs.
		late func(w *watch) *atomic.Int32
		then func(t *testing.T, w *watch)
	}{
		"what has been taken in is not waited for": {
			served: true, begin: func(t *testing.T, w *watch) { w.see(t, "20"); w.handle("team-uid", "20") },
		},
		"a cache of a plugin's own is waited for": {
			served: true, begin: func(t *testing.T, w *watch) { w.see(t, "10"); w.handle("team-uid", "10") },
			late: func(w *watch) *atomic.Int32 { return &w.store.looks }, then: func(t *testing.T, w *watch) { w.handle("team-uid", "20"); w.see(t, "20") },
		},
		"one that has nothing yet is, too": {
			served: true, begin: func(*testing.T, *watch) {},
			late: func(w *watch) *atomic.Int32 { return &w.store.looks }, then: func(t *testing.T, w *watch) { w.handle("team-uid", "20"); w.see(t, "20") },
		},
		"a kind that is not served is no obstacle": {begin: func(*testing.T, *watch) {}},
		"a handler that is late is waited for": {
			served: true, begin: func(t *testing.T, w *watch) { w.see(t, "20"); w.handle("team-uid", "10") },
			late: func(w *watch) *atomic.Int32 { return &w.looks }, then: func(_ *testing.T, w *watch) { w.handle("team-uid", "20") },
		},
		"also one at an informer that all share": {
			served: true, begin: func(t *testing.T, w *watch) { w.resource = schema.GroupVersionResource{}; w.see(t, "20") },
			late: func(w *watch) *atomic.Int32 { return &w.looks }, then: func(_ *testing.T, w *watch) { w.handle("team-uid", "21") },
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			w := newWatch(v1alpha1.QueueResource)
			c.begin(t, w)
			api, factory := storedQueues(t, c.served), informers.NewSharedInformerFactory(fake.NewClientset(), 0)
			done := make(chan bool, 1)
			go func() { done <- Wait(t.Context(), api, factory, empty{}, w) }()
			if c.late != nil {
				looks := c.late(w)
				await.Until(t, "it has looked 4 times", func() bool { return looks.Load() > 3 })
				if len(done) > 0 || w.forgotten.Load() {
					t.Fatal("it did not wait")
				}
				c.then(t, w)
			}
			if !await.Value(t, "the wait to end", done) || !w.forgotten.Load() {
				t.Errorf("it gave up, or what was handled is remembered for ever")
			}
		})
	}
}

// TestMayEnd: a kind that only plugins watch may go unread after a while where they could never read it either.
func TestMayEnd(t *testing.T) {
	for _, c := range []struct {
		unsynced bool
		failing  time.Duration
		want     bool
	}{{true, patience - 1, false}, {true, patience + 1, true}, {false, patience + 1, false}} {
		w := newWatch(v1alpha1.QueueResource)
		w.unsynced = c.unsynced
		if got := ownKinds([]Watch{w}, storedQueues(t, true))[0].mayEnd(c.failing); got != c.want {
			t.Errorf("never read: %t, failing for %s: may end %t, want %t", c.unsynced, c.failing, got, c.want)
		}
	}
}

// TestFollow: an object that came between the two reads is not one that a follower has to lose.
func TestFollow(t *testing.T) {
	now := map[string]string{"a": "1"}
	take := func() map[string]string { defer func() { now["b"] = "2" }(); return maps.Clone(now) }
	waited := 0
	if err := follow(t.Context(), follower{has: take, stored: take}, func(int) { waited++ }); err != nil || waited > 1 {
		t.Errorf("it was waited for %d times, %v", waited, err)
	}
}
