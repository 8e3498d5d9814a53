package access

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The ClusterRoles of manifests/rbac/users.yaml that users of kubectl gang need.
const (
	viewerRole   = "lockstep-viewer"
	approverRole = "lockstep-plan-approver"
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
	list, err := c.ServerResourcesForGroupVersion(resource.GroupVersion().String())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("asking which kinds there are: %w", err)
	}
	return slices.ContainsFunc(list.APIResources,
		func(r metav1.APIResource) bool { return r.Name == resource.Resource }), nil
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
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "watch", Group: resource.Group,
			Resource: resource.Resource, Namespace: namespace},
	}}
	if err := c.Create(ctx, review); err != nil {
		return fmt.Errorf("asking whether %s may be watched: %w", resource.GroupResource(), err)
	}
	if review.Status.Allowed {
		return nil
	}
	a.refusedRead.Store(true)
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
	case a.refusedRead.Load():
		return fmt.Sprintf("the ClusterRole %s has all that kubectl gang reads; in one namespace, view has what kubectl "+
			"gang list needs", viewerRole)
	}
	return ""
}

// roundTripper is a function that sends requests.
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// noting returns a transport that remembers that something was refused, whichever request asked for it.
func (a *Access) noting(to http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		response, err := to.RoundTrip(r)
		if err == nil && response.StatusCode == http.StatusForbidden {
			if r.Method == http.MethodGet {
				a.refusedRead.Store(true)
			} else {
				a.refusedWrite.Store(true)
			}
		}
		return response, err
	})
}
