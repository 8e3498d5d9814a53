package binder

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/pkg/framework/binding"
	"github.com/lockstep-sh/lockstep/pkg/kube/apiwrites"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// apiServer has one pod, and handles each call as configured: first, second
// and so on; the last configuration holds for all later calls.
type apiServer struct {
	*httptest.Server
	binds, reads []call

	mu  sync.Mutex
	pod *v1.Pod // nil: gone
	log []string
}

// call is how one call is handled.
type call struct {
	store bool           // do it
	then  func()         // and then
	lose  bool           // answer nothing: the connection breaks
	err   *metav1.Status // answer this
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind, script := "read", &s.reads
	if r.Method == http.MethodPost {
		kind, script = "bind", &s.binds
	}
	s.log = append(s.log, kind)
	var c call
	if len(*script) > 0 {
		if c = (*script)[0]; len(*script) > 1 {
			*script = (*script)[1:]
		}
	}
	answer := any(&metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess, Code: 201})
	if kind == "read" && !c.lose && c.err == nil {
		answer = s.pod
		if r.URL.Query().Has("resourceVersion") {
			c.err = &apierrors.NewBadRequest("a read that a cache may answer").ErrStatus
		}
		if s.pod == nil {
			c.err = &apierrors.NewNotFound(v1.Resource("pods"), "a").ErrStatus
		}
	}
	if kind == "bind" && c.store {
		if status := s.bind(r); status != nil {
			c.err = status
		}
	}
	if c.then != nil {
		c.then()
	}
	switch {
	case c.lose:
		panic(http.ErrAbortHandler)
	case c.err != nil:
		c.err.Kind, c.err.APIVersion = "Status", "v1"
		answer = c.err
	}
	w.Header().Set("Content-Type", "application/json")
	if c.err != nil {
		w.WriteHeader(int(c.err.Code))
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// bind stores a Binding as the API server does; nil is success.
func (s *apiServer) bind(r *http.Request) *metav1.Status {
	var b v1.Binding
	if err := json.NewDecoder(r.Body).Decode(&b); err != nil {
		return &apierrors.NewBadRequest(err.Error()).ErrStatus
	}
	if s.pod == nil {
		return &apierrors.NewNotFound(v1.Resource("pods"), "a").ErrStatus
	}
	if refused := (*apierrors.StatusError)(nil); errors.As(apiwrites.Bind(s.pod, &b), &refused) {
		return &refused.ErrStatus
	}
	return nil
}

func (s *apiServer) history() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.log, " ")
}

// clientOf is a handle with a client.
type clientOf struct {
	fwk.Handle
	client kubernetes.Interface
}

func (c clientOf) ClientSet() kubernetes.Interface { return c.client }
func (c clientOf) APICacher() fwk.APICacher        { return nil }
func (c clientOf) ProfileName() string             { return "ours" }

// binderTo returns the plugin, with short pauses, over an API server.
func binderTo(t *testing.T, server *apiServer) *Binder {
	t.Helper()
	server.Server = httptest.NewServer(server)
	t.Cleanup(server.Close)
	client := kubernetes.NewForConfigOrDie(&restclient.Config{Host: server.URL, QPS: -1})
	plugin, err := New(NewSlots())(t.Context(), &config.BoundedBinderArgs{MaxInFlight: 1}, clientOf{client: client})
	must.Succeed(t, err)
	pl := plugin.(*Binder)
	pl.patience = func() wait.Backoff { return wait.Backoff{Duration: time.Millisecond, Factor: 1.1, Steps: 100} }
	return pl
}

func unavailable() *metav1.Status { return &apierrors.NewServiceUnavailable("starting").ErrStatus }

func TestBindings(t *testing.T) {
	pod := st.MakePod().Namespace("ns").Name("a").UID("1").Obj()
	forbidden := &apierrors.NewForbidden(v1.Resource("pods/binding"), "a", nil).ErrStatus
	type world struct {
		binds, reads []call
		live         *v1.Pod // before; nil: the pod as it is scheduled
		wantNode     string  // after
		wantErr      string  // in the status; "" is success
		wantOpen     bool    // it will never be known whether it was bound
		wantCalls    string
	}
	for sentence, c := range map[string]world{
		"what succeeds is not looked at": {
			binds: []call{{store: true}}, wantNode: "here", wantCalls: "bind",
		},
		"a binding that is stored while its answer is lost has succeeded": {
			binds: []call{{store: true, lose: true}}, wantNode: "here", wantCalls: "bind read",
		},
		"one that is lost on the way is sent again": {
			binds: []call{{lose: true}, {store: true}}, wantNode: "here", wantCalls: "bind read bind",
		},
		"the second of two that meet at the API server is no failure": {
			// kube-scheduler's binder itself sends again after 503.
			binds: []call{{store: true, err: unavailable()}, {store: true}}, wantNode: "here", wantCalls: "bind bind read",
		},
		"an API server that is away is waited for": {
			binds: []call{{lose: true}, {lose: true}, {store: true}}, reads: []call{{err: unavailable()}, {err: unavailable()}, {}}, wantNode: "here",
			wantCalls: "bind read read read bind read bind",
		},
		"what is refused has failed, once the pod was looked at": {
			binds: []call{{err: forbidden}}, wantErr: "forbidden", wantCalls: "bind read",
		},
		"a pod that somebody else binds is not ours": {
			binds: []call{{lose: true}}, live: st.MakePod().Namespace("ns").Name("a").UID("1").Node("there").Obj(), wantNode: "there",
			wantErr: "binding pod ns/a to node here: it is bound to node there, by another scheduler", wantCalls: "bind read",
		},
		"a pod of the same name is another pod": {
			binds: []call{{store: true}}, live: st.MakePod().Namespace("ns").Name("a").UID("2").Obj(),
			wantErr: "binding pod ns/a to node here: the pod is gone; there is another of its name, with UID 2", wantCalls: "bind read",
		},
		"a pod that is gone may have been bound before, where an answer was lost": {
			binds: []call{{lose: true}}, live: st.MakePod().Namespace("ns").Name("a").UID("2").Obj(),
			wantErr: "the pod is gone; there is another of its name", wantOpen: true, wantCalls: "bind read",
		},
		"nothing is bound of a pod that is being deleted": {
			binds: []call{{lose: true}}, live: st.MakePod().Namespace("ns").Name("a").UID("1").Terminating().Obj(),
			wantErr: "the pod is being deleted", wantCalls: "bind read",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			server := &apiServer{binds: c.binds, reads: c.reads, pod: pod.DeepCopy()}
			if c.live != nil {
				server.pod = c.live
			}
			pl := binderTo(t, server)
			state := framework.NewCycleState()
			status := pl.Bind(t.Context(), state, pod, "here")
			if got := binding.LeftOpen(state); got != c.wantOpen {
				t.Errorf("left open: %t, want %t", got, c.wantOpen)
			}
			if c.wantErr == "" && !status.IsSuccess() || c.wantErr != "" && !strings.Contains(status.Message(), c.wantErr) {
				t.Errorf("status %v, want %q", status, c.wantErr)
			}
			if got := server.pod.Spec.NodeName; got != c.wantNode {
				t.Errorf("the pod is on node %q, want %q", got, c.wantNode)
			}
			if got := server.history(); got != c.wantCalls {
				t.Errorf("calls %q, want %q", got, c.wantCalls)
			}
			if pl.slots.used != 0 {
				t.Errorf("%d slots in use", pl.slots.used)
			}
		})
	}
}

// TestOpenBinding: while it is not known whether a binding is stored, Bind does not
// return, and no slot is held; when the scheduler shuts down, it returns that this is open.
func TestOpenBinding(t *testing.T) {
	pod := st.MakePod().Namespace("ns").Name("a").UID("1").Obj()
	server := &apiServer{binds: []call{{store: true, lose: true}}, reads: []call{{err: unavailable()}}, pod: pod.DeepCopy()}
	pl := binderTo(t, server)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan *fwk.Status, 1)
	go func() { done <- pl.Bind(ctx, framework.NewCycleState(), pod, "here") }()
	await.Until(t, "the pod was read 20 times", func() bool { return strings.Count(server.history(), "read") >= 20 })
	select {
	case status := <-done:
		t.Fatalf("it returned %v", status)
	default:
	}
	if err := pl.slots.acquire(t.Context()); err != nil { // the only one
		t.Fatal(err)
	}
	pl.slots.release()
	cancel()
	status := await.Value(t, "Bind to return when the scheduler goes down", done)
	if status.Code() != fwk.Error || !strings.Contains(status.Message(), "binding pod ns/a to node here: context canceled before it was known whether it is stored") {
		t.Errorf("status %v", status)
	}
	if got := server.history(); strings.Count(got, "bind") != 1 {
		t.Errorf("calls %q: it was sent again although nobody knew that it was not stored", got)
	}
}

// TestDeletedBeforeBinding: that a pod was deleted before it was bound is no error.
func TestDeletedBeforeBinding(t *testing.T) {
	pod := st.MakePod().Namespace("ns").Name("a").UID("1").Obj()
	server := &apiServer{binds: []call{{err: &apierrors.NewNotFound(v1.Resource("pods"), "a").ErrStatus}}}
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.Verbosity(5), ktesting.BufferLogs(true)))
	status := binderTo(t, server).Bind(klog.NewContext(t.Context(), logger), framework.NewCycleState(), pod, "here")
	if !status.IsRejected() || !errors.Is(status.AsError(), binding.ErrDeleted) || status.Message() != "binding pod ns/a to node here: the pod is gone" {
		t.Errorf("status %v, %v", status, status.AsError())
	}
	for _, entry := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
		if entry.Type == ktesting.LogError || entry.Verbosity < 2 {
			t.Errorf("logged at verbosity %d: %s", entry.Verbosity, entry.Message)
		}
	}
}

// TestNotes: what plugins have written on a pod is there with its node, even where the answer was lost.
func TestNotes(t *testing.T) {
	pod := st.MakePod().Namespace("ns").Name("a").UID("1").Obj()
	for sentence, binds := range map[string][]call{
		"at once":            {{store: true}},
		"the answer is lost": {{store: true, lose: true}},
		"the call is lost":   {{lose: true}, {store: true}},
	} {
		t.Run(sentence, func(t *testing.T) {
			server := &apiServer{binds: binds, pod: pod.DeepCopy()}
			state := framework.NewCycleState()
			binding.Annotate(state, "one", "1")
			binding.Annotate(state, "two", "2")
			if status := binderTo(t, server).Bind(t.Context(), state, pod, "here"); !status.IsSuccess() {
				t.Fatal(status)
			}
			if got := server.pod; got.Spec.NodeName != "here" || got.Annotations["one"] != "1" || got.Annotations["two"] != "2" {
				t.Errorf("node %q, annotations %v", got.Spec.NodeName, got.Annotations)
			}
		})
	}
}
