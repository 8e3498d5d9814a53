package histories

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang-forecast/overlayserver"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/source"
	schedulerapp "github.com/lockstep-sh/lockstep/cmd/scheduler/app"
)

// served is what a new cluster serves.
const served = "../../cmd/kubectl-gang-forecast/simulate/testdata/cluster.json"

// What histories make. All else that is listed is as in an empty cluster.
var (
	pods      = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	nodes     = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	podGroups = schema.GroupVersionResource{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Resource: "podgroups"}
	queues    = schema.GroupVersionResource{Group: "scheduling.lockstep.dev", Version: "v1alpha1", Resource: "queues"}
	budgets   = schema.GroupVersionResource{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"}

	listKinds = map[schema.GroupVersionResource]string{pods: "PodList", nodes: "NodeList", podGroups: "PodGroupList", queues: "QueueList", budgets: "PodDisruptionBudgetList"}
)

// cluster is an API server in memory, with a scheduler at work. All that it does is in one synctest bubble: its clients
// reach the server by calls, so time passes only while every goroutine waits.
type cluster struct {
	server *overlayserver.Server
	dir    string
	// config is the path of the scheduler's configuration; empty for the built-in one.
	config string
	stop   context.CancelFunc
	ended  chan struct{}
	began  time.Time
	// grace is how long pods take to end that the scheduler evicts.
	grace time.Duration

	// fuse is after how many more bindings and deletions of pods the scheduler is dead: nothing that it writes arrives
	// any more. Below 0 it is not lit.
	mu   sync.Mutex
	fuse int
}

// self is how the clients of the histories call themselves.
const self = "histories"

// dead reports whether a request comes from a scheduler that is dead.
func (c *cluster) dead(r *http.Request, info *request.RequestInfo) bool {
	if r.UserAgent() == self || !slices.Contains([]string{"create", "delete", "patch", "update"}, info.Verb) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fuse > 0 && info.Resource == "pods" && (info.Subresource == "binding" || info.Verb == "delete") {
		c.fuse--
		return false
	}
	return c.fuse == 0
}

// light lights the fuse, or with -1 puts it out. It returns whether the scheduler was dead.
func (c *cluster) light(fuse int) (dead bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	dead, c.fuse = c.fuse == 0, fuse
	return dead
}

// readServed reads what an empty cluster serves.
func readServed() (*source.Dump, error) {
	data, err := os.ReadFile(served)
	if err != nil {
		return nil, fmt.Errorf("reading what a cluster serves: %w", err)
	}
	dump := &source.Dump{}
	if err := json.Unmarshal(data, dump); err != nil {
		return nil, fmt.Errorf("reading what a cluster serves: %w", err)
	}
	return dump, nil
}

// RoundTrip implements http.RoundTripper.
func (c *cluster) RoundTrip(r *http.Request) (*http.Response, error) {
	info, err := access.Requests.NewRequestInfo(r)
	if err != nil {
		return nil, fmt.Errorf("reading a request: %w", err)
	}
	if c.dead(r, info) {
		return nil, errors.New("the scheduler is dead")
	}
	ctx, cancel := context.WithCancel(r.Context())
	r = r.WithContext(ctx)
	if r.Body == nil {
		r.Body = http.NoBody
	}
	if info.IsResourceRequest && info.Verb == "watch" {
		reader, writer := io.Pipe()
		w := &streaming{header: http.Header{}, to: writer, begun: make(chan struct{})}
		go func() {
			c.server.ServeHTTP(w, r)
			w.WriteHeader(http.StatusOK)
			_ = writer.Close() // a pipe has no errors
		}()
		<-w.begun
		return &http.Response{StatusCode: w.code, Header: w.header, Body: &body{reader, cancel}, Request: r}, nil
	}
	defer cancel()
	w := httptest.NewRecorder()
	if c.grace > 0 && info.Resource == "pods" && info.Verb == "delete" && r.UserAgent() != self {
		if err := c.terminate(w, r, info.Name); err != nil {
			return nil, err
		}
	} else if kind := listKinds[schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}]; info.Verb == "list" && kind != "" {
		c.list(w, r, kind, schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource})
	} else {
		c.server.ServeHTTP(w, r)
	}
	answer := w.Result()
	answer.Request = r
	return answer, nil
}

// terminate answers to the deletion of a pod, which ends after its grace.
func (c *cluster) terminate(w http.ResponseWriter, r *http.Request, name string) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return fmt.Errorf("reading the body of a deletion: %w", err)
	}
	options := &metav1.DeleteOptions{}
	if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, options); err != nil {
		return fmt.Errorf("reading the body of a deletion: %w", err)
	}
	ask := func(w http.ResponseWriter, verb string, body []byte) {
		other := r.Clone(context.WithoutCancel(r.Context()))
		other.Method, other.Body, other.ContentLength = verb, io.NopCloser(bytes.NewReader(body)), int64(len(body))
		if verb == http.MethodPatch {
			other.Header.Set("Content-Type", string(types.MergePatchType))
		}
		c.server.ServeHTTP(w, other)
	}
	for _, pod := range c.server.Made(pods) {
		if pod.GetName() != name || len(options.DryRun) > 0 || options.Preconditions != nil && options.Preconditions.UID != nil && *options.Preconditions.UID != pod.GetUID() {
			continue
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Success"}`)) // it is in memory
		if pod.GetDeletionTimestamp() == nil {
			ask(httptest.NewRecorder(), http.MethodPatch, fmt.Appendf(nil, `{"metadata":{"deletionTimestamp":%q}}`, time.Now().Add(c.grace).UTC().Format(time.RFC3339)))
			go func() {
				time.Sleep(c.grace)
				ask(httptest.NewRecorder(), http.MethodDelete, body)
			}()
		}
		return nil
	}
	ask(w, http.MethodDelete, body)
	return nil
}

// list answers with what there is now.
func (c *cluster) list(w http.ResponseWriter, r *http.Request, kind string, of schema.GroupVersionResource) {
	selects, err := overlayserver.Selects(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	list := unstructured.UnstructuredList{Object: map[string]any{"kind": kind, "apiVersion": of.GroupVersion().String(), "metadata": map[string]any{"resourceVersion": fmt.Sprint(uint64(1<<52) + uint64(c.server.Changes()))}}}
	for _, o := range c.server.Made(of) {
		if selects(o) {
			list.Items = append(list.Items, *o)
		}
	}
	if slices.ContainsFunc(r.Header.Values("Accept"), func(accept string) bool { return bytes.Contains([]byte(accept), []byte("as=PartialObjectMetadata")) }) {
		list.SetKind("PartialObjectMetadataList")
		list.SetAPIVersion(metav1.SchemeGroupVersion.String())
		for i := range list.Items {
			list.Items[i].Object = map[string]any{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": list.Items[i].Object["metadata"]}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list.UnstructuredContent()) // it is in memory
}

// streaming is the answer to a watch.
type streaming struct {
	header http.Header
	code   int
	to     io.Writer
	once   sync.Once
	begun  chan struct{}
}

func (s *streaming) Header() http.Header { return s.header }

func (s *streaming) WriteHeader(code int) {
	s.once.Do(func() { s.code = code; close(s.begun) })
}

func (s *streaming) Write(data []byte) (int, error) {
	s.WriteHeader(http.StatusOK)
	return s.to.Write(data)
}

// Flush implements http.Flusher.
func (s *streaming) Flush() {}

// body ends the watch that it is read from.
type body struct {
	*io.PipeReader
	cancel context.CancelFunc
}

func (b *body) Close() error { b.cancel(); return b.PipeReader.Close() }

// newCluster makes an empty cluster, without a scheduler. The server is that of all clusters of a process, one after
// the other. config is the scheduler's configuration.
func newCluster(server *overlayserver.Server, dir, config string, grace time.Duration) (*cluster, error) {
	c := &cluster{server: server, dir: dir, grace: grace, fuse: -1}
	kubeconfig := `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"m","cluster":{"server":"http://memory"}}],"contexts":[{"name":"m","context":{"cluster":"m"}}],"current-context":"m"}`
	if err := os.WriteFile(c.kubeconfig(), []byte(kubeconfig), 0o600); err != nil {
		return nil, fmt.Errorf("writing a kubeconfig: %w", err)
	}
	if config != "" {
		c.config = filepath.Join(dir, "config.yaml")
		if err := os.WriteFile(c.config, []byte(config), 0o600); err != nil {
			return nil, fmt.Errorf("writing the scheduler's configuration: %w", err)
		}
	}
	return c, nil
}

func (c *cluster) kubeconfig() string { return filepath.Join(c.dir, "kubeconfig.yaml") }

// startScheduler starts one.
func (c *cluster) startScheduler() error {
	ctx, cancel := context.WithCancel(context.Background())
	scheduler, err := schedulerapp.NewSimulated(ctx, c.config, c.kubeconfig())
	if err != nil {
		cancel()
		return err
	}
	c.stop, c.ended, c.began = cancel, make(chan struct{}), time.Now()
	go func() {
		defer close(c.ended)
		_ = scheduler.Run(ctx) // it ends with ctx
	}()
	return nil
}

// stopScheduler ends it, whatever it does. One that has just been started leaves goroutines behind.
func (c *cluster) stopScheduler() {
	time.Sleep(time.Until(c.began.Add(time.Second)))
	c.stop()
	<-c.ended
	time.Sleep(time.Second)
}
