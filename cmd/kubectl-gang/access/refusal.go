package access

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/pkg/kube/crds"
)

// The ClusterRoles of manifests/rbac/users.yaml that users of kubectl gang need: for all that it reads, and for what it
// reads in one namespace.
const (
	ViewerRole = "lockstep-viewer"
	TenantRole = "lockstep-tenant"

	queueViewerRole = "lockstep-queue-viewer"
	approverRole    = "lockstep-plan-approver"
)

// isServed reports whether the cluster has a kind. Every user may ask that.
func (a *Access) isServed(resource schema.GroupVersionResource) (bool, error) {
	config, err := a.Config()
	if err != nil {
		return false, err
	}
	c, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return false, fmt.Errorf("making a client: %w", err)
	}
	return crds.Served(context.Background(), c, resource)
}

// May reports whether the user may create, or watch, objects of a resource, in all namespaces if none is given.
func (a *Access) May(ctx context.Context, verb string, resource schema.GroupVersionResource,
	namespace string) (bool, error) {
	c, err := a.Client()
	if err != nil {
		return false, err
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: resource.Group,
			Resource: resource.Resource, Namespace: namespace},
	}}
	if err := c.Create(ctx, review); err != nil {
		return false, fmt.Errorf("asking whether %s may be %sed: %w", resource.GroupResource(),
			strings.TrimSuffix(verb, "e"), err)
	}
	return review.Status.Allowed, nil
}

// MayWatch returns a Forbidden error if the user may not watch a kind, in all namespaces if none is given. A watch that
// is refused would be tried for ever.
func (a *Access) MayWatch(ctx context.Context, list client.ObjectList, namespace string) error {
	c, err := a.Client()
	if err != nil {
		return err
	}
	resource, err := resourceOf(c, list)
	if err != nil {
		return err
	}
	if allowed, err := a.May(ctx, "watch", resource, namespace); err != nil || allowed {
		return err
	}
	a.noteRefused(resource.GroupResource())
	where := "at the cluster scope"
	if namespace != "" {
		where = fmt.Sprintf("in the namespace %q", namespace)
	}
	return fmt.Errorf("watching %s: %w", resource.GroupResource(),
		apierrors.NewForbidden(resource.GroupResource(), "", fmt.Errorf("the user may not watch them %s", where)))
}

// Advice returns which ClusterRole has what the API server refused; empty where it refused nothing.
func (a *Access) Advice() string {
	switch {
	case a.refusedWrite.Load():
		return fmt.Sprintf("the ClusterRole %s has what approving a plan needs", approverRole)
	case len(a.refused()) > 0:
		return fmt.Sprintf("the ClusterRole %s has all that kubectl gang reads; %s has what list and explain need in one "+
			"namespace, and %s what queues needs", ViewerRole, TenantRole, queueViewerRole)
	}
	return ""
}

// Refused says in one line what the user may not read, and which ClusterRole has it; empty where nothing was refused.
// Resources of the core group are named, and the others if there are none of these.
func (a *Access) Refused() string {
	var core, others []string
	for _, resource := range a.refused() {
		if resource.Group == "" {
			core = append(core, resource.Resource)
		} else {
			others = append(others, resource.String())
		}
	}
	text := strings.Join(core, ", ")
	switch {
	case len(core)+len(others) == 0:
		return ""
	case len(core) == 0:
		text = strings.Join(others, ", ")
	case len(others) > 0:
		text += " and others"
	}
	return fmt.Sprintf("%s: forbidden; ask for the ClusterRole %s", text, ViewerRole)
}

// refused returns the resources that the user may not read.
func (a *Access) refused() []schema.GroupResource {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.SortedFunc(maps.Keys(a.refusedReads), func(x, y schema.GroupResource) int {
		return strings.Compare(x.String(), y.String())
	})
}

func (a *Access) noteRefused(resource schema.GroupResource) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refusedReads[resource] = true
}

// roundTripper is a function that sends requests.
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Requests tells what is asked for by the paths of the API server.
var Requests = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api")}

// resourceAt returns which resource a request reads; its path in place of the name where that is of no resource.
func resourceAt(r *http.Request) schema.GroupResource {
	info, err := Requests.NewRequestInfo(r)
	if err != nil || !info.IsResourceRequest {
		return schema.GroupResource{Resource: r.URL.Path}
	}
	return schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
}

// noting returns a transport that remembers what was refused, whichever request asked for it.
func (a *Access) noting(to http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		response, err := to.RoundTrip(r)
		if err == nil && response.StatusCode == http.StatusForbidden {
			switch r.Method {
			case http.MethodGet:
				a.noteRefused(resourceAt(r))
			case http.MethodPatch:
				a.refusedWrite.Store(true)
			}
		}
		return response, err
	})
}
