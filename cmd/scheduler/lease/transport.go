package lease

import (
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	restclient "k8s.io/client-go/rest"
)

// free are the API groups that take writes of a standby, too: leader election, and
// questions that are asked by a POST.
var free = []string{"/apis/coordination.k8s.io/", "/apis/authentication.k8s.io/", "/apis/authorization.k8s.io/"}

// Guard returns a configuration for clients that write only while the lease is held.
func (l *Lease) Guard(config *restclient.Config) *restclient.Config {
	guarded := restclient.CopyConfig(config)
	dial := config.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext // client-go's own
	}
	guarded.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		inner, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &conn{Conn: inner, lease: l}, nil
	}
	guarded.Wrap(func(next http.RoundTripper) http.RoundTripper { return &transport{next: next, lease: l} })
	return guarded
}

// writes reports whether a request changes what is stored.
func writes(request *http.Request) bool {
	switch request.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	return !slices.ContainsFunc(free, func(group string) bool { return strings.Contains(request.URL.Path, group) })
}

// transport refuses writes while the lease is not held, and makes the others end with it.
type transport struct {
	next  http.RoundTripper
	lease *Lease
}

// RoundTrip sends a request, or refuses it with a RefusedError. A write is sent with the
// time that the lease is held yet as its timeout, which the API server keeps, even if
// this process is stopped meanwhile. It goes on when its caller has given up: what was
// sent has to be answered before the lease is given back.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if !writes(request) {
		return t.next.RoundTrip(request)
	}
	if err := request.Context().Err(); err != nil {
		return nil, refuse(request, err)
	}
	left, err := t.lease.begin(request.Method + " " + request.URL.Path)
	if err != nil {
		return nil, refuse(request, err)
	}
	until := t.lease.now() + Instant(left)
	if deadline, ok := request.Context().Deadline(); ok {
		left = min(left, time.Until(deadline))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(request.Context()), left)
	response, err := t.next.RoundTrip(within(request.Clone(ctx), left))
	t.lease.done(err == nil && response.StatusCode < http.StatusInternalServerError, until)
	if err != nil {
		cancel()
		return nil, err
	}
	response.Body = &body{ReadCloser: response.Body, cancel: cancel}
	return response, nil
}

// WrappedRoundTripper returns the transport inside, for callers that look for its kind.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// refuse returns err for a request that is not sent.
func refuse(request *http.Request, err error) error {
	if request.Body != nil {
		_ = request.Body.Close() // as http.RoundTripper asks
	}
	return err
}

// within adds a timeout to a request, by which the API server gives up.
func within(request *http.Request, left time.Duration) *http.Request {
	query := request.URL.Query()
	if own, err := time.ParseDuration(query.Get("timeout")); err == nil && own > 0 && own < left {
		return request
	}
	query.Set("timeout", max(left.Truncate(time.Millisecond), time.Millisecond).String())
	url := *request.URL
	url.RawQuery = query.Encode()
	request.URL = &url
	return request
}

// body ends the context of its request when it is closed.
type body struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (b *body) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

// conn is the last gate: a process may be stopped between the transport and the system
// call, and what it had in hand goes out when it wakes.
type conn struct {
	net.Conn
	lease *Lease
}

func (c *conn) Write(data []byte) (int, error) {
	if err := c.lease.over(); err != nil {
		_ = c.Close()
		return 0, err
	}
	return c.Conn.Write(data)
}
