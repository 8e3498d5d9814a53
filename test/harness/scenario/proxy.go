package scenario

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// lagPoll is the interval in which a watch that lags checks whether it still has to.
const lagPoll = 20 * time.Millisecond

// proxy stands between the schedulers and the API server: it does what a network may do, when a
// step asks for it. It acts in the schedulers' name, so that the API server sees no difference.
type proxy struct {
	rec        *recorder
	server     tlsServer
	kubeconfig string

	mu   sync.Mutex
	lose []*loseRule
	lags []LagWatch
}

type loseRule struct {
	LoseAnswers
	done map[string]int // lost returns by pod
}

// openProxy starts a proxy to an API server, and writes a kubeconfig that leads to it.
func openProxy(config *rest.Config, rec *recorder, kubeconfig string) (*proxy, error) {
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("reading the address of the API server: %w", err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a connection to the API server: %w", err)
	}
	p := &proxy{rec: rec, kubeconfig: kubeconfig}
	p.server, err = serveTLS(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: transport, FlushInterval: -1, ModifyResponse: p.answer,
		// What is lost is lost: no answer, a broken stream.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	})
	if err != nil {
		return nil, fmt.Errorf("serving schedulers: %w", err)
	}
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["proxy"] = &clientcmdapi.Cluster{Server: p.server.url, CertificateAuthorityData: p.server.ca}
	cfg.Contexts["proxy"] = &clientcmdapi.Context{Cluster: "proxy"}
	cfg.CurrentContext = "proxy"
	if err := clientcmd.WriteToFile(*cfg, kubeconfig); err != nil {
		return nil, errors.Join(fmt.Errorf("writing the way to the proxy: %w", err), p.server.Close())
	}
	return p, nil
}

func (p *proxy) close() error { return errors.Join(p.server.Close(), os.Remove(p.kubeconfig)) }

// set applies a step.
func (p *proxy) set(n *Network) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n.Allow {
		p.lose, p.lags = nil, nil
	}
	if n.LoseAnswers != nil {
		p.lose = append(p.lose, &loseRule{LoseAnswers: *n.LoseAnswers, done: map[string]int{}})
	}
	if n.Lag != nil {
		p.lags = append(p.lags, *n.Lag)
	}
}

// answer sees each answer of the API server before the scheduler does. An error loses it.
func (p *proxy) answer(response *http.Response) error {
	request := response.Request
	if request.Method == http.MethodPost && path.Base(request.URL.Path) == "binding" && response.StatusCode < http.StatusBadRequest {
		if pod, ok := podOf(path.Dir(request.URL.Path)); ok && p.loses(pod) {
			_ = response.Body.Close()
			return errors.New("the scenario loses this answer")
		}
	}
	if watch := request.URL.Query().Get("watch"); watch == "true" || watch == "1" {
		resource, agent := path.Base(request.URL.Path), path.Base(strings.SplitN(request.UserAgent(), "/", 2)[0])
		response.Body = newLagging(response.Body, func() time.Duration { return p.lag(resource, agent) })
	}
	return nil
}

// podOf finds the pod's name in a path: /api/v1/namespaces/NAMESPACE/pods/NAME.
func podOf(where string) (string, bool) {
	parts := strings.Split(strings.Trim(where, "/"), "/")
	if len(parts) != 6 || parts[4] != "pods" {
		return "", false
	}
	return parts[3] + "/" + parts[5], true
}

// loses reports whether the answer to the binding of a pod is lost, and counts it.
func (p *proxy) loses(pod string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, rule := range p.lose {
		if globAny(rule.Pods, pod) && (rule.Times == 0 || rule.done[pod] < rule.Times) {
			rule.done[pod]++
			p.rec.note(KindNote, "binding of %s is stored, and the answer lost, time %d", pod, rule.done[pod])
			return true
		}
	}
	return false
}

// lag returns by how much a watch is late now.
func (p *proxy) lag(resource, agent string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, lag := range p.lags {
		if lag.Resource == resource && strings.HasSuffix(agent, standbySuffix) == lag.Standby {
			return lag.By.Duration
		}
	}
	return 0
}

// lagging is a stream whose parts are handed on late.
type lagging struct {
	body  io.ReadCloser
	lag   func() time.Duration
	parts chan part
	rest  bytes.Buffer
	err   error
	done  context.Context
	end   context.CancelFunc
}

type part struct {
	came time.Time
	data []byte
	err  error
}

func newLagging(body io.ReadCloser, lag func() time.Duration) *lagging {
	l := &lagging{body: body, lag: lag, parts: make(chan part, 100_000)}
	l.done, l.end = context.WithCancel(context.Background())
	go func() {
		for {
			data := make([]byte, 32<<10)
			n, err := body.Read(data)
			select {
			case l.parts <- part{came: time.Now(), data: data[:n], err: err}:
			case <-l.done.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return l
}

func (l *lagging) Read(data []byte) (int, error) {
	for l.rest.Len() == 0 {
		if l.err != nil {
			return 0, l.err
		}
		select {
		case <-l.done.Done():
			return 0, io.ErrUnexpectedEOF
		case next := <-l.parts:
			for time.Since(next.came) < l.lag() {
				select {
				case <-l.done.Done():
					return 0, io.ErrUnexpectedEOF
				case <-time.After(lagPoll):
				}
			}
			l.rest.Write(next.data)
			l.err = next.err
		}
	}
	return l.rest.Read(data)
}

func (l *lagging) Close() error {
	l.end()
	return l.body.Close()
}
