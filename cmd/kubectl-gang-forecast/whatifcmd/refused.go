package whatifcmd

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
)

// refused returns an error where the API server would refuse a manifest. It is asked to create each and to keep none,
// which its schemas, the policies and the webhooks answer. What the user may not create is noted.
func (o *options) refused(ctx context.Context, kinds meta.RESTMapper, manifests []*unstructured.Unstructured) error {
	if o.DumpFile != "" {
		return nil // a dump has no API server
	}
	config, err := o.Config()
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	var mu sync.Mutex
	barred := sets.New[string]()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readAtOnce)
	for _, u := range manifests {
		gvk := u.GroupVersionKind()
		mapping, err := kinds.RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			continue // that is reported where it matters
		}
		if mapping.Scope.Name() == meta.RESTScopeNameRoot {
			u.SetNamespace("")
		}
		group.Go(func() error {
			allowed, err := o.May(ctx, "create", mapping.Resource, u.GetNamespace())
			switch {
			case err != nil:
				o.Note("whether the API server would take %s %q is not known: %v", u.GetKind(),
					u.GetName()+u.GetGenerateName(), err)
				return nil
			case !allowed:
				mu.Lock()
				defer mu.Unlock()
				barred.Insert(mapping.Resource.GroupResource().String())
				return nil
			}
			_, err = client.Resource(mapping.Resource).Namespace(u.GetNamespace()).Create(ctx, u,
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
			switch {
			case isRefusal(err):
				return fmt.Errorf("%s %q: the API server would refuse it: %w", u.GetKind(), u.GetName()+u.GetGenerateName(), err)
			case err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err):
				// The manifests may have its namespace.
				o.Note("whether the API server would take %s %q is not known: %v", u.GetKind(),
					u.GetName()+u.GetGenerateName(), err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if len(barred) > 0 {
		o.Note("whether the API server would take the manifests is not known: you may not create %s",
			strings.Join(sets.List(barred), ", "))
	}
	return nil
}

// isRefusal reports whether an error of a dry run says that an object is wrong. What is Forbidden may depend on others
// of the manifests, such as a ServiceAccount, and a webhook that knows no dry run says nothing of the object.
func isRefusal(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) &&
		!strings.Contains(err.Error(), "does not support dry run")
}
