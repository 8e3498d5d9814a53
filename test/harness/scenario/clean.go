package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

const (
	// cleanTimeout bounds the wait for everything to be gone; a control plane that takes longer is
	// dropped.
	cleanTimeout = 15 * time.Second
	cleanPoll    = 50 * time.Millisecond
)

var (
	podsResource            = resourceOf("", "v1", "pods")
	nodesResource           = resourceOf("", "v1", "nodes")
	eventsResource          = resourceOf("", "v1", "events")
	priorityClassesResource = resourceOf("scheduling.k8s.io", "v1", "priorityclasses")
	nativePodGroupsResource = resourceOf("scheduling.k8s.io", "v1beta1", "podgroups")
	crdsResource            = resourceOf("apiextensions.k8s.io", "v1", "customresourcedefinitions")
)

// keptNamespace reports whether a control plane brings a namespace along.
func keptNamespace(name string) bool {
	return name == v1.NamespaceDefault || strings.HasPrefix(name, "kube-")
}

func resourceOf(group, version, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
}

// owners are what a scenario can leave behind that would make other things anew.
var owners = []schema.GroupVersionResource{
	resourceOf("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations"),
	resourceOf("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations"),
	resourceOf("batch", "v1", "jobs"),
	resourceOf("apps", "v1", "deployments"),
	resourceOf("apps", "v1", "statefulsets"),
	resourceOf("apps", "v1", "replicasets"),
}

// others are the other resources of which it can leave objects behind, beside custom resources; events last.
var others = []schema.GroupVersionResource{
	nativePodGroupsResource,
	resourceOf("scheduling.k8s.io", "v1beta1", "workloads"),
	resourceOf("policy", "v1", "poddisruptionbudgets"),
	podsResource,
	resourceOf("", "v1", "podtemplates"),
	resourceOf("resource.k8s.io", "v1", "resourceclaimtemplates"),
	resourceOf("resource.k8s.io", "v1", "resourceclaims"),
	resourceOf("resource.k8s.io", "v1", "resourceslices"),
	resourceOf("resource.k8s.io", "v1", "deviceclasses"),
	resourceOf("", "v1", "limitranges"),
	resourceOf("", "v1", "persistentvolumeclaims"),
	resourceOf("", "v1", "persistentvolumes"),
	resourceOf("storage.k8s.io", "v1", "storageclasses"),
	nodesResource,
	priorityClassesResource,
	resourceOf("events.k8s.io", "v1", "events"),
}

// clean removes what a scenario left behind. CRDs that a scenario applied cannot be distinguished from those that
// were there, so such a control plane is not clean.
func (s *site) clean(ctx context.Context) error {
	if s.kind.WithoutCRDs {
		return errors.New("cleaning the cluster: its CRDs may have been applied")
	}
	ctx, cancel := context.WithTimeout(ctx, cleanTimeout)
	defer cancel()
	custom, err := s.customResources(ctx)
	if err != nil {
		return err
	}
	for _, resource := range slices.Concat(owners, custom, others) {
		if err := s.sweep(ctx, resource); err != nil {
			return fmt.Errorf("cleaning %s: %w", resource.Resource, err)
		}
	}
	return s.dropNamespaces(ctx)
}

// customResources returns the resources of all CRDs.
func (s *site) customResources(ctx context.Context) ([]schema.GroupVersionResource, error) {
	list, err := s.client.Resource(crdsResource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing CRDs: %w", err)
	}
	var custom []schema.GroupVersionResource
	for i := range list.Items {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &crd); err != nil {
			return nil, fmt.Errorf("reading CRD %s: %w", list.Items[i].GetName(), err)
		}
		for _, version := range crd.Spec.Versions {
			if version.Storage {
				custom = append(custom, resourceOf(crd.Spec.Group, version.Name, crd.Spec.Names.Plural))
			}
		}
	}
	return custom, nil
}

// sweep deletes all objects of a resource and waits until they are gone. It removes finalizers: the controllers
// that would do so do not run any more.
func (s *site) sweep(ctx context.Context, resource schema.GroupVersionResource) error {
	for {
		list, err := s.client.Resource(resource).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			return nil // not served here
		}
		if err != nil {
			return err
		}
		namespaces := map[string]bool{}
		for i := range list.Items {
			object := &list.Items[i]
			if isSystem(resource, object.GetName()) {
				continue
			}
			namespaces[object.GetNamespace()] = true
			if object.GetDeletionTimestamp() == nil || len(object.GetFinalizers()) == 0 {
				continue
			}
			_, err := s.client.Resource(resource).Namespace(object.GetNamespace()).Patch(ctx, object.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("taking the finalizers off %s: %w", object.GetName(), err)
			}
		}
		if len(namespaces) == 0 {
			return nil
		}
		for namespace := range namespaces {
			if err := s.deleteAll(ctx, resource, namespace); err != nil {
				return err
			}
		}
		if err := await.Pause(ctx, cleanPoll); err != nil {
			return err
		}
	}
}

// isSystem reports whether the API server itself made an object and would make it again.
func isSystem(resource schema.GroupVersionResource, name string) bool {
	return resource == priorityClassesResource && strings.HasPrefix(name, "system-")
}

func (s *site) deleteAll(ctx context.Context, resource schema.GroupVersionResource, namespace string) error {
	selector := ""
	if resource == priorityClassesResource {
		selector = "metadata.name!=system-node-critical,metadata.name!=system-cluster-critical"
	}
	return s.client.Resource(resource).Namespace(namespace).DeleteCollection(ctx, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To[int64](0), PropagationPolicy: ptr.To(metav1.DeletePropagationBackground),
	}, metav1.ListOptions{FieldSelector: selector})
}

// dropNamespaces deletes the namespaces, which are empty by now except for what every namespace has. The namespace
// controller would take five seconds to look.
func (s *site) dropNamespaces(ctx context.Context) error {
	namespaces := s.cluster.Clientset().CoreV1().Namespaces()
	list, err := namespaces.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing namespaces: %w", err)
	}
	for i := range list.Items {
		if keptNamespace(list.Items[i].Name) {
			continue
		}
		if err := namespaces.Delete(ctx, list.Items[i].Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting namespace %s: %w", list.Items[i].Name, err)
		}
		namespace, err := namespaces.Get(ctx, list.Items[i].Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading namespace %s: %w", list.Items[i].Name, err)
		}
		namespace.Spec.Finalizers = nil
		if _, err := namespaces.Finalize(ctx, namespace, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("finalizing namespace %s: %w", namespace.Name, err)
		}
	}
	return nil
}
