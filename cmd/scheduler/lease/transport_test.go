package lease

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	restclient "k8s.io/client-go/rest"

	"github.com/lockstep-sh/lockstep/test/helpers/await"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// stage is a process with a guarded client of an API server that notes what comes in.
type stage struct {
	*process
	client kubernetes.Interface
	// before is called before a request is answered.
	before func(*http.Request)

	mu       sync.Mutex
	requests []string
	timeouts []string
}

func stageOf(t *testing.T) *stage {
	t.Helper()
	s := &stage{process: processOf(t, fake.NewClientset(), "me"), before: func(*http.Request) {}}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.requests = append(s.requests, r.Method+" "+r.URL.Path)
		s.timeouts = append(s.timeouts, r.URL.Query().Get("timeout"))
		s.mu.Unlock()
		s.before(r)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Success"}`))
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	config := &restclient.Config{Host: server.URL, QPS: -1, TLSClientConfig: restclient.TLSClientConfig{Insecure: true}}
	s.client = kubernetes.NewForConfigOrDie(s.Guard(config))
	return s
}

func (s *stage) lead(t *testing.T) {
	t.Helper()
	must.Succeed(t, s.lock.Create(t.Context(), s.record()))
}

func (s *stage) seen() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.requests, ", ")
}

func (s *stage) bind(ctx context.Context) error {
	return s.client.CoreV1().Pods("ns").Bind(ctx, &v1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}, metav1.CreateOptions{})
}

// TestWrites: all writes by which a scheduler decides pass the gate while the lease is
// held, and none of them without; reads pass in any case.
func TestWrites(t *testing.T) {
	pods := func(s *stage) interface {
		Delete(context.Context, string, metav1.DeleteOptions) error
	} {
		return s.client.CoreV1().Pods("ns")
	}
	for sentence, c := range map[string]struct {
		do    func(context.Context, *stage) error
		want  string // the request
		write bool
	}{
		"a binding": {do: func(ctx context.Context, s *stage) error { return s.bind(ctx) }, want: "POST /api/v1/namespaces/ns/pods/a/binding", write: true},
		"a deletion": {
			do:   func(ctx context.Context, s *stage) error { return pods(s).Delete(ctx, "a", metav1.DeleteOptions{}) },
			want: "DELETE /api/v1/namespaces/ns/pods/a", write: true,
		},
		"an eviction": {
			do: func(ctx context.Context, s *stage) error {
				return s.client.CoreV1().RESTClient().Post().Namespace("ns").Resource("pods").Name("a").SubResource("eviction").Do(ctx).Error()
			},
			want: "POST /api/v1/namespaces/ns/pods/a/eviction", write: true,
		},
		"a nomination": {
			do: func(ctx context.Context, s *stage) error {
				_, err := s.client.CoreV1().Pods("ns").Patch(ctx, "a", types.MergePatchType, []byte("{}"), metav1.PatchOptions{}, "status")
				return ignoreKind(err)
			},
			want: "PATCH /api/v1/namespaces/ns/pods/a/status", write: true,
		},
		"a look": {
			do: func(ctx context.Context, s *stage) error {
				_, err := s.client.CoreV1().Pods("ns").Get(ctx, "a", metav1.GetOptions{})
				return ignoreKind(err)
			},
			want: "GET /api/v1/namespaces/ns/pods/a",
		},
		"a candidate of the election": {
			do: func(ctx context.Context, s *stage) error {
				return s.client.CoordinationV1beta1().RESTClient().Post().Namespace("ns").Resource("leasecandidates").Do(ctx).Error()
			},
			want: "POST /apis/coordination.k8s.io/v1beta1/namespaces/ns/leasecandidates",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := stageOf(t)
			check := func(when string, err error, refused bool, want string) {
				t.Helper()
				var refusal *RefusedError
				if got := errors.As(err, &refusal); got != refused || err != nil && !refused {
					t.Errorf("%s: error %v", when, err)
				}
				if got := s.seen(); got != want {
					t.Errorf("%s: the API server saw %q, want %q", when, got, want)
				}
				s.requests, s.timeouts = nil, nil
			}
			want := func(refused bool) string {
				if refused {
					return ""
				}
				return c.want
			}
			err := c.do(t.Context(), s)
			check("standing by", err, c.write, want(c.write))
			s.lead(t)
			s.pass(2 * time.Second)
			err = c.do(t.Context(), s)
			if got, timeout := strings.Join(s.timeouts, ""), map[bool]string{true: "7s"}[c.write]; got != timeout {
				t.Errorf("leading: the API server is given %q, want %q", got, timeout)
			}
			check("leading", err, false, c.want)
			if len(s.ended) > 0 {
				t.Errorf("ended with %q", s.ended)
			}
		})
	}
}

// ignoreKind ignores that the answer is a Status.
func ignoreKind(err error) error {
	if err != nil && strings.Contains(err.Error(), "unable to decode") || err != nil && strings.Contains(err.Error(), "converting") {
		return nil
	}
	return err
}

// TestAfterASleep: a process that wakes after the end of the lease sends nothing more,
// not even what was on its way when it fell asleep, and ends.
func TestAfterASleep(t *testing.T) {
	s := stageOf(t)
	s.lead(t)
	must.Succeed(t, s.bind(t.Context()))
	s.requests = nil
	s.pass(time.Minute)
	err := s.bind(t.Context())
	var refusal *RefusedError
	if !errors.As(err, &refusal) || !strings.Contains(err.Error(), "lease kube-system/lockstep-scheduler ran out 51s ago: POST /api/v1/namespaces/ns/pods/a/binding is not sent") {
		t.Errorf("error %v", err)
	}
	if got := s.seen(); got != "" {
		t.Errorf("the API server saw %q", got)
	}
	if len(s.ended) != 1 {
		t.Errorf("ended with %q", s.ended)
	}
}

// TestSleepInHand: the process is stopped when a write has passed the transport and not
// yet left; its bytes do not.
func TestSleepInHand(t *testing.T) {
	client, server := net.Pipe()
	defer func() { _ = server.Close() }()
	p := processOf(t, fake.NewClientset(), "me")
	c := &conn{Conn: client, lease: p.Lease}
	got := make(chan int, 2)
	go func() {
		for {
			n, err := server.Read(make([]byte, 8))
			got <- n
			if err != nil {
				return
			}
		}
	}()
	write := func() error { _, err := c.Write([]byte("x")); return err }
	if err := write(); err != nil || <-got != 1 {
		t.Fatalf("standing by, nothing is read: %v", err)
	}
	must.Succeed(t, p.lock.Create(t.Context(), p.record()))
	if err := write(); err != nil || <-got != 1 {
		t.Fatalf("leading, nothing is written: %v", err)
	}
	p.pass(time.Minute)
	var refusal *RefusedError
	if err := write(); !errors.As(err, &refusal) || <-got != 0 {
		t.Errorf("error %v of a write after the end of the lease; want it refused and the connection closed", err)
	}
}

// TestCancelled: a write whose caller gives up is answered all the same before the lease
// is given back; one whose caller has given up is not sent.
func TestCancelled(t *testing.T) {
	s := stageOf(t)
	s.lead(t)
	came, letGo := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(letGo) })
	defer release()
	s.before = func(*http.Request) {
		close(came)
		<-letGo
	}
	ctx, cancel := context.WithCancel(t.Context())
	bound := make(chan error, 1)
	go func() { bound <- s.bind(ctx) }()
	await.Value(t, "the write to arrive", came)
	cancel()
	given := make(chan error, 1)
	go func() { given <- s.leaving(t.Context()) }()
	select {
	case err := <-given:
		t.Fatalf("given back, with %v, while a write was under way", err)
	case <-time.After(20 * time.Millisecond):
	}
	release()
	if err := await.Value(t, "the lease to be given back", given); err != nil {
		t.Errorf("giving back: %v", err)
	}
	if err := await.Value(t, "the binding to return", bound); err != nil {
		t.Errorf("the binding was answered, and its caller is told %v", err)
	}
	s.requests = nil
	if err := s.bind(ctx); !errors.Is(err, context.Canceled) || s.seen() != "" {
		t.Errorf("error %v, requests %q", err, s.seen())
	}
}

// TestShorterTimeout: a caller's own, shorter timeout is kept.
func TestShorterTimeout(t *testing.T) {
	s := stageOf(t)
	s.lead(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	must.Succeed(t, s.bind(ctx))
	if got, err := time.ParseDuration(strings.Join(s.timeouts, "")); err != nil || got <= 0 || got > time.Second {
		t.Errorf("the API server is given %s, %v; want at most 1s", got, err)
	}
}

// TestWatch: a lease that runs out while nothing is written ends the process, too.
func TestWatch(t *testing.T) {
	ended := make(chan error, 1)
	p := processOf(t, fake.NewClientset(), "me")
	p.end = func(err error) { ended <- err }
	must.Succeed(t, p.lock.Create(t.Context(), p.record()))
	go p.Watch(t.Context())
	select {
	case err := <-ended:
		t.Fatal(err)
	case <-time.After(lookEvery + lookEvery/2):
	}
	p.pass(time.Minute)
	if err := await.Value(t, "the end of the process", ended); !strings.Contains(err.Error(), "ran out 51s ago") {
		t.Errorf("ended with %v", err)
	}
}
