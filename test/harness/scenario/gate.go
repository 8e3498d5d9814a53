package scenario

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// Victims of an interrupt.
const (
	victimScheduler = "scheduler"
	victimAPIServer = "apiServer"
)

const (
	gateName      = "lockstep-scenario-bindings"
	gateProbe     = "gate-probe"
	gatePoll      = 20 * time.Millisecond
	interruptWait = 10 * time.Second // for the bindings let through to be seen
)

// certificate is made once: it takes longer than anything else here.
var certificate = sync.OnceValues(func() (pair [2][]byte, err error) {
	pair[0], pair[1], err = cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	return pair, err
})

// gate is a validating webhook on pods/binding: the API server calls it before it binds a pod. It can
// refuse, delay, and pull the plug at a chosen binding.
type gate struct {
	rec    *recorder
	server tlsServer
	probed chan struct{} // gets a value when the probe came by

	mu        sync.Mutex
	fails     []*failRule
	delays    []DelayBindings
	interrupt *interrupt
}

type failRule struct {
	FailBindings
	done map[string]int // refusals by pod
}

// interrupt is an armed Interrupt.
type interrupt struct {
	Interrupt
	kill   func(context.Context) error
	passed int
	once   sync.Once
	fired  chan struct{} // closed when the victim is dead
	err    error         // valid then
}

// openGate starts the webhook and returns when the API server asks it.
func openGate(ctx context.Context, client kubernetes.Interface, rec *recorder) (*gate, error) {
	g := &gate{rec: rec, probed: make(chan struct{}, 1)}
	var err error
	if g.server, err = serveTLS(http.HandlerFunc(g.serve)); err != nil {
		return nil, fmt.Errorf("serving webhooks: %w", err)
	}
	if err := g.register(ctx, client); err != nil {
		return nil, err
	}
	return g, nil
}

// tlsServer serves on this machine, at url, with a certificate that ca vouches for.
type tlsServer struct {
	*http.Server
	url string
	ca  []byte
}

func serveTLS(handler http.Handler) (s tlsServer, err error) {
	pair, err := certificate()
	if err != nil {
		return s, fmt.Errorf("making a certificate: %w", err)
	}
	keyPair, err := tls.X509KeyPair(pair[0], pair[1])
	if err != nil {
		return s, fmt.Errorf("reading the certificate: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return s, fmt.Errorf("listening: %w", err)
	}
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{keyPair}, MinVersion: tls.VersionTLS12},
	}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	return tlsServer{server, "https://" + listener.Addr().String(), pair[0]}, nil
}

func (g *gate) close() { _ = g.server.Close() }

// register registers the webhook with the API server and waits until it is called.
func (g *gate) register(ctx context.Context, client kubernetes.Interface) error {
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: gateName},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:                    "bindings.scenario.lockstep.dev",
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &g.server.url, CABundle: g.server.ca},
			AdmissionReviewVersions: []string{"v1"},
			SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
			FailurePolicy:           ptr.To(admissionregistrationv1.Fail),
			TimeoutSeconds:          ptr.To[int32](30),
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/binding"}},
			}},
		}},
	}
	if _, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, configuration, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("registering the webhook: %w", err)
	}
	probe := &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: gateProbe, Namespace: probeNamespace}, Target: v1.ObjectReference{Kind: "Node", Name: gateProbe},
	}
	for {
		// There is no such pod, so it always fails; what counts is whether the webhook was asked.
		_ = client.CoreV1().Pods(probeNamespace).Bind(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if len(g.probed) > 0 {
			return nil
		}
		if err := await.Pause(ctx, gatePoll); err != nil {
			return fmt.Errorf("waiting for the API server to ask the webhook: %w", err)
		}
	}
}

func (g *gate) serve(out http.ResponseWriter, in *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(in.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(out, "want an AdmissionReview", http.StatusBadRequest)
		return
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	if refusal := g.decide(in.Context(), review.Request.Namespace+"/"+review.Request.Name); refusal != "" {
		review.Response.Allowed = false
		review.Response.Result = &metav1.Status{Status: metav1.StatusFailure, Message: refusal, Code: http.StatusInternalServerError}
	}
	review.Request = nil
	out.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(out).Encode(review)
}

// decide returns why the binding of a pod is refused, or nothing.
func (g *gate) decide(ctx context.Context, pod string) string {
	if strings.HasPrefix(pod, probeNamespace+"/") {
		if strings.HasSuffix(pod, "/"+gateProbe) {
			select {
			case g.probed <- struct{}{}:
			default:
			}
		}
		return ""
	}
	delay, refusal, armed := g.apply(pod)
	if delay > 0 {
		_ = await.Pause(ctx, delay)
	}
	if armed != nil {
		armed.once.Do(func() { go g.fire(armed) })
		<-armed.fired
		return "the scenario ended the " + armed.Kill
	}
	return refusal
}

// apply returns what the rules say of a binding, and counts it.
func (g *gate) apply(pod string) (delay time.Duration, refusal string, armed *interrupt) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, d := range g.delays {
		if globAny(d.Pods, pod) {
			delay = max(delay, d.By.Duration)
		}
	}
	for _, f := range g.fails {
		if globAny(f.Pods, pod) && (f.Times == 0 || f.done[pod] < f.Times) {
			f.done[pod]++
			g.rec.note(KindNote, "binding of %s is refused, time %d", pod, f.done[pod])
			return delay, "the scenario refuses this binding", nil
		}
	}
	if i := g.interrupt; i != nil && globAny(i.Of, pod) {
		if i.passed >= i.AfterBound {
			return delay, "", i
		}
		i.passed++
	}
	return delay, "", nil
}

// fire ends the victim when the bindings that were let through are bound.
func (g *gate) fire(i *interrupt) {
	ctx, cancel := context.WithTimeout(context.Background(), interruptWait)
	defer cancel()
	defer close(i.fired)
	err := g.rec.Wait(ctx, func() bool {
		return len(g.rec.live(func(p *podRecord) bool { return !p.placed && p.bound() && globAny(i.Of, p.name) })) >= i.AfterBound
	})
	if err != nil {
		i.err = fmt.Errorf("waiting for %d bound pods before the interrupt: %w", i.AfterBound, err)
		return
	}
	i.err = i.kill(ctx)
}

// arm sets the interrupt.
func (g *gate) arm(i *interrupt) {
	g.mu.Lock()
	defer g.mu.Unlock()
	i.fired = make(chan struct{})
	g.interrupt = i
}

// disarm ends the interrupt: bindings pass from now on.
func (g *gate) disarm() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.interrupt = nil
}

// set applies a step.
func (g *gate) set(b *Bindings) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if b.Allow {
		g.fails, g.delays = nil, nil
	}
	if b.Fail != nil {
		g.fails = append(g.fails, &failRule{FailBindings: *b.Fail, done: map[string]int{}})
	}
	if b.Delay != nil {
		g.delays = append(g.delays, *b.Delay)
	}
}
