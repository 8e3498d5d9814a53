package simulate

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang-forecast/overlayserver"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
)

// Cluster is one that is only read.
type Cluster struct{ base overlayserver.Base }

// Cluster returns the cluster that is asked about, without a scheduler. A live one is not read yet.
func (q *Question) Cluster(a *access.Access) (*Cluster, error) {
	base, err := q.source.base(a)
	return &Cluster{base}, err
}

// Read reads an object or a list.
func (c *Cluster) Read(ctx context.Context, path string, into any) error {
	return read(ctx, c.base, path, into)
}

// Pods returns all pods of a namespace.
func (c *Cluster) Pods(ctx context.Context, namespace string) ([]*v1.Pod, error) {
	var list v1.PodList
	if err := c.Read(ctx, "/api/v1/namespaces/"+namespace+"/pods", &list); err != nil {
		return nil, err
	}
	return access.Pointers(list.Items), nil
}

// fast is how objects of the kinds of Kubernetes itself are read: protobuf costs a fraction of JSON. A dump has JSON
// alone.
const fast = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON

// read reads an object or a list from a cluster. Its errors are those of API servers, except that they say no more than
// the path and the status.
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

// IsNotAllowed reports whether an error means that the user may not read something.
func IsNotAllowed(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// Exists reports whether an object is in the cluster, and not on its way out.
func (s *Simulation) Exists(ctx context.Context, resource schema.GroupVersionResource, namespace, name string) (bool, error) {
	var object metav1.PartialObjectMetadata
	err := s.Read(ctx, overlayserver.PathOf(resource, namespace, name), &object)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && object.DeletionTimestamp == nil, err
}

// hasEnded selects the pods that the scheduler leaves out.
const hasEnded = "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown"

// Pods returns the pods of a namespace as they are in the cluster, also those that have ended. They are not to be
// changed.
func (s *Simulation) Pods(ctx context.Context, namespace string) ([]*v1.Pod, error) {
	var listed []*v1.Pod
	if err := s.await(ctx, func() (ok bool) { listed, ok = s.scheduler.Listed(); return ok }); err != nil {
		return nil, err
	}
	// Later than the others, so that a pod that ends meanwhile is there: twice, maybe.
	var list v1.PodList
	path := "/api/v1/namespaces/" + namespace + "/pods?" + url.Values{"fieldSelector": {hasEnded}}.Encode()
	if err := s.Read(ctx, path, &list); err != nil {
		return nil, err
	}
	ended := map[types.UID]bool{}
	var pods []*v1.Pod
	for i := range list.Items {
		if pod := &list.Items[i]; podutil.IsPodTerminal(pod) { // a dump selects nothing
			ended[pod.UID] = true
			pods = append(pods, pod)
		}
	}
	for _, pod := range listed {
		if pod.Namespace == namespace && !ended[pod.UID] {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}
