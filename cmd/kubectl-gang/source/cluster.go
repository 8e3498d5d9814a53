package source

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/lockstep-sh/lockstep/pkg/kube/apiobjects"
)

// Base is where a cluster is read.
type Base interface {
	// Read answers a request for something to be read, as the API server does that has it.
	Read(r *http.Request) (*http.Response, error)
}

// Cluster is one that is only read.
type Cluster struct{ Base Base }

// Read reads an object or a list by its path. Its errors are those of API servers, except that they say no more than
// the path and the status.
func (c *Cluster) Read(ctx context.Context, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	object, typed := into.(runtime.Object)
	if typed {
		_, _, err := scheme.Scheme.ObjectKinds(object)
		typed = err == nil
	}
	request.Header.Set("Accept", runtime.ContentTypeJSON)
	if typed {
		request.Header.Set("Accept", fast)
	}
	response, err := c.Base.Read(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Code: int32(response.StatusCode), Message: fmt.Sprintf("reading %s: %s", path, response.Status),
		}}
	}
	body, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
	case typed:
		_, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, object)
	default:
		err = json.Unmarshal(body, into)
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return nil
}

// fast is how objects of the kinds of Kubernetes itself are read: protobuf costs a fraction of JSON. A dump has JSON
// alone.
const fast = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON

// Pods returns all pods of a namespace.
func (c *Cluster) Pods(ctx context.Context, namespace string) ([]*v1.Pod, error) {
	var list v1.PodList
	if err := c.Read(ctx, "/api/v1/namespaces/"+namespace+"/pods", &list); err != nil {
		return nil, err
	}
	return apiobjects.Pointers(list.Items), nil
}

// IsNotAllowed reports whether an error means that the user may not read something.
func IsNotAllowed(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

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
