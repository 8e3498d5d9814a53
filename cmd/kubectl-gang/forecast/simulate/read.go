package simulate

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/forecast/overlayserver"
)

// fast is how objects of the kinds of Kubernetes itself are read: protobuf costs a fraction of JSON. A dump has JSON
// alone.
const fast = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON

// read reads an object or a list from a cluster.
func read(ctx context.Context, base overlayserver.Base, path string, into any) error {
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
	response, err := base.Read(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		err := fmt.Errorf("reading %s: %s", path, response.Status)
		switch response.StatusCode {
		case http.StatusNotFound:
			return &MissingError{err}
		case http.StatusForbidden, http.StatusUnauthorized:
			return &overlayserver.NotAllowedError{Err: err}
		}
		return err
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

// MissingError means that an object does not exist, or that its kind is not served.
type MissingError struct{ Err error }

// Error implements error.
func (e *MissingError) Error() string { return e.Err.Error() }

// Unwrap returns what the API server said.
func (e *MissingError) Unwrap() error { return e.Err }

// Exists reports whether an object is in the cluster, and not on its way out. Where the user may not read it, it
// returns a [overlayserver.NotAllowedError].
func (s *Simulation) Exists(ctx context.Context, resource schema.GroupVersionResource, namespace, name string) (bool, error) {
	var object metav1.PartialObjectMetadata
	err := s.Read(ctx, overlayserver.PathOf(resource, namespace, name), &object)
	if IsNotFound(err) {
		return false, nil
	}
	return err == nil && object.DeletionTimestamp == nil, err
}
