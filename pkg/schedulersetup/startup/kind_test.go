package startup

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/lockstep-sh/lockstep/pkg/reservations/reservepods"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// apiServer has pods at revision 100: p-0 of revision 1, p-1 of revision 2 and so on. It
// returns pages of no more than size.
type apiServer struct {
	pods, size int
	reads      []string
	away       atomic.Int32 // so many requests are not answered
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.away.Add(-1) >= 0 {
		http.Error(w, "starting", http.StatusServiceUnavailable)
		return
	}
	query := r.URL.Query()
	if query.Has("resourceVersion") || query.Get("fieldSelector") != reservepods.Selector || query.Get("limit") == "" {
		http.Error(w, "not a consistent read of the scheduler's pods in pages: "+r.URL.RawQuery, http.StatusBadRequest)
		return
	}
	first := 0
	_, _ = fmt.Sscan(query.Get("continue"), &first)
	s.reads = append(s.reads, fmt.Sprint(first))
	list := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"}}
	list.ResourceVersion = "100"
	for i := first; i < min(s.pods, first+s.size); i++ {
		list.Items = append(list.Items, metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"}, ObjectMeta: pod(i, i+1).ObjectMeta,
		})
	}
	if first+s.size < s.pods {
		list.Continue = fmt.Sprint(first + s.size)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list)
}

func pod(i, revision int) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("p-%d", i), ResourceVersion: fmt.Sprint(revision)}}
}

func kindFrom(t *testing.T, server *apiServer) *kind {
	t.Helper()
	s := httptest.NewServer(server)
	t.Cleanup(s.Close)
	client, err := metadata.NewForConfig(&restclient.Config{Host: s.URL, QPS: -1})
	must.Succeed(t, err)
	resource := v1.SchemeGroupVersion.WithResource("pods")
	return &kind{resource: resource, objects: client.Resource(resource), selector: reservepods.Selector, store: cache.NewStore(cache.MetaNamespaceKeyFunc)}
}

// see puts pods into the cache.
func (k *kind) see(t *testing.T, pods ...*v1.Pod) {
	t.Helper()
	for _, pod := range pods {
		if err := k.store.Add(pod); err != nil {
			t.Error(err)
		}
	}
}

func TestCatchUp(t *testing.T) {
	for sentence, c := range map[string]struct {
		pods, size int
		has        []*v1.Pod
		then       func(t *testing.T, k *kind) // after a while; nil: nothing has to be waited for
		reads      string
	}{
		"a cache that has all need not wait":             {pods: 2, size: 9, has: []*v1.Pod{pod(0, 1), pod(1, 2)}, reads: "0"},
		"nor need one that has nothing to see":           {size: 9, reads: "0"},
		"nor one that is ahead":                          {pods: 1, size: 9, has: []*v1.Pod{pod(0, 102), pod(7, 101)}, reads: "0"},
		"an addition is waited for":                      {pods: 2, size: 9, has: []*v1.Pod{pod(0, 1)}, then: func(t *testing.T, k *kind) { k.see(t, pod(1, 2)) }, reads: "0"},
		"a change is waited for":                         {pods: 2, size: 9, has: []*v1.Pod{pod(0, 1), pod(1, 1)}, then: func(t *testing.T, k *kind) { k.see(t, pod(1, 2)) }, reads: "0"},
		"a deletion is waited for":                       {pods: 1, size: 9, has: []*v1.Pod{pod(0, 1), pod(5, 6)}, then: func(_ *testing.T, k *kind) { _ = k.store.Delete(pod(5, 6)) }, reads: "0"},
		"one that moves on is not compared to the end":   {pods: 3, size: 1, then: func(t *testing.T, k *kind) { k.see(t, pod(9, 101)) }, reads: "0"},
		"one of many that does not is, page by page":     {pods: 3, size: 1, has: []*v1.Pod{pod(0, 1), pod(1, 2), pod(2, 3)}, reads: "0 1 2"},
		"and what is missing on the last page is missed": {pods: 3, size: 2, has: []*v1.Pod{pod(0, 1), pod(1, 2)}, then: func(t *testing.T, k *kind) { time.Sleep(settling); k.see(t, pod(2, 3)) }, reads: "0 2"},
		"what came and went meanwhile is not awaited":    {pods: 2, size: 9, has: []*v1.Pod{pod(0, 1)}, then: func(_ *testing.T, k *kind) { k.store.Bookmark("103") }, reads: "0"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			server := &apiServer{pods: c.pods, size: c.size}
			k := kindFrom(t, server)
			k.see(t, c.has...)
			done := make(chan error, 1)
			go func() { done <- k.catchUp(t.Context(), func(int) {}) }()
			if c.then != nil {
				select {
				case err := <-done:
					t.Fatalf("it did not wait, %v", err)
				case <-time.After(100 * time.Millisecond):
				}
				c.then(t, k)
			}
			if err := await.Value(t, "the cache to have caught up", done); err != nil {
				t.Error(err)
			}
			if got := strings.Join(server.reads, " "); got != c.reads {
				t.Errorf("pages read at %q, want %q", got, c.reads)
			}
		})
	}
}

// TestCatchUpNotServed: nothing is stored of a kind of Kubernetes that the API server does not serve.
func TestCatchUpNotServed(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	client, err := metadata.NewForConfig(&restclient.Config{Host: s.URL, QPS: -1})
	must.Succeed(t, err)
	k := &kind{objects: client.Resource(v1.SchemeGroupVersion.WithResource("pods"))}
	must.Succeed(t, k.catchUp(t.Context(), func(int) { t.Error("it lacks something") }))
	k.served = func(context.Context) (bool, error) { return true, nil } // a CRD that the API server will serve soon
	if err := k.catchUp(t.Context(), func(int) {}); err == nil {
		t.Error("it goes on without what is served")
	}
}

// TestPersist: an API server that does not answer is called again, and nothing proceeds.
func TestPersist(t *testing.T) {
	server := &apiServer{size: 9}
	server.away.Store(2)
	k := kindFrom(t, server)
	w := &waiting{lacks: map[string]string{}}
	begin := time.Now()
	w.persist(t.Context(), "pods", nil, func(ctx context.Context) error { return k.catchUp(ctx, func(int) {}) })
	if took := time.Since(begin); took < 2*tryAgain || len(w.lacks) > 0 || len(server.reads) != 1 {
		t.Errorf("after %s, lacking %v, %d reads", took, w.lacks, len(server.reads))
	}
	server.away.Store(1000)
	ctx, cancel := context.WithTimeout(t.Context(), tryAgain/2)
	defer cancel()
	w.persist(ctx, "pods", nil, func(ctx context.Context) error { return k.catchUp(ctx, func(int) {}) })
	if lack := w.lacks["pods"]; !strings.Contains(lack, "listing pods") {
		t.Errorf("lacking %q, want what went wrong", lack)
	}
	begin = time.Now()
	w.persist(t.Context(), "pods", func(failing time.Duration) bool { return failing > tryAgain/2 }, func(ctx context.Context) error { return k.catchUp(ctx, func(int) {}) })
	if took := time.Since(begin); took < tryAgain/2 || len(w.lacks) > 0 {
		t.Errorf("it gave up after %s, lacking %v", took, w.lacks)
	}
}
