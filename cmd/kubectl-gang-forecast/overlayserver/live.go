package overlayserver

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
)

// live is a cluster that runs.
type live struct {
	host   *url.URL
	client *http.Client
}

// Live returns the cluster of a client configuration. It is only read.
func Live(config *rest.Config) (Base, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	host, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("reading the address of the API server: %w", err)
	}
	return &live{host: host, client: client}, nil
}

// Read implements Base.
func (l *live) Read(r *http.Request) (*http.Response, error) {
	target := *l.host
	target.Path = strings.TrimSuffix(target.Path, "/") + r.URL.Path
	target.RawQuery = r.URL.RawQuery
	request, err := http.NewRequestWithContext(r.Context(), http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", r.URL.Path, err)
	}
	request.Header.Set("Accept", r.Header.Get("Accept"))
	response, err := l.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", r.URL.Path, err)
	}
	return response, nil
}

// relay hands on an answer.
func relay(w http.ResponseWriter, response *http.Response) {
	for _, key := range []string{"Content-Type", "Content-Encoding"} {
		if value := response.Header.Get(key); value != "" {
			w.Header().Set(key, value)
		}
	}
	w.WriteHeader(response.StatusCode)
	_, _ = io.Copy(w, response.Body) // the client is gone, and asks again
}

// asksForMetadata reports whether a request is for the metadata of objects only.
func asksForMetadata(r *http.Request) bool {
	return slices.ContainsFunc(r.Header.Values("Accept"), func(accept string) bool { return strings.Contains(accept, "as=PartialObjectMetadata") })
}
