package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/featuregate"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/features"
)

// kind is one that kube-scheduler reads with a feature gate.
type kind struct {
	gate     featuregate.Feature
	resource schema.GroupVersionResource
	object   runtime.Object
}

// gatedKinds are those that an API server may not serve although kube-scheduler, or FairShare, waits for them.
var gatedKinds = []kind{
	{features.DynamicResourceAllocation, resourcev1.SchemeGroupVersion.WithResource("deviceclasses"),
		&resourcev1.DeviceClass{}},
	{features.DynamicResourceAllocation, resourcev1.SchemeGroupVersion.WithResource("resourceclaims"),
		&resourcev1.ResourceClaim{}},
	{features.DynamicResourceAllocation, resourcev1.SchemeGroupVersion.WithResource("resourceclaimtemplates"),
		&resourcev1.ResourceClaimTemplate{}},
	{features.DynamicResourceAllocation, resourcev1.SchemeGroupVersion.WithResource("resourceslices"),
		&resourcev1.ResourceSlice{}},
	{features.DRADeviceTaintRules, resourcev1.SchemeGroupVersion.WithResource("devicetaintrules"),
		&resourcev1.DeviceTaintRule{}},
	{features.GenericWorkload, schedulingv1beta1.SchemeGroupVersion.WithResource("podgroups"),
		&schedulingv1beta1.PodGroup{}},
	{features.CompositePodGroup, schedulingv1alpha3.SchemeGroupVersion.WithResource("compositepodgroups"),
		&schedulingv1alpha3.CompositePodGroup{}},
}

// unserved returns the kinds of the gates that are on which the API server does not serve.
func unserved(api discovery.DiscoveryInterface,
	on featuregate.MutableVersionedFeatureGate) (missing []kind, err error) {
	groups, err := api.ServerGroups()
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) { // it does not say
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	versions := metav1.ExtractGroupVersions(groups)
	for _, k := range gatedKinds {
		if !on.Enabled(k.gate) {
			continue
		}
		serves, err := servesKind(api, versions, k.resource)
		if err != nil {
			return nil, err
		}
		if !serves {
			missing = append(missing, k)
		}
	}
	return missing, nil
}

// report logs the names of the kinds that are not served. It fails where the user switched a gate on that needs one.
func report(ctx context.Context, missing []kind, on featuregate.MutableVersionedFeatureGate) error {
	var names []string
	for _, k := range missing {
		name := k.resource.GroupVersion().String() + " " + k.resource.Resource
		if on.ExplicitlySet(k.gate) {
			return fmt.Errorf("feature gate %s is on, and the API server does not serve %s: leave the gate out, "+
				"or start the API server "+
				"(1.37 or newer), too, with --feature-gates=%s=true and --runtime-config=%s=true",
				k.gate, name, k.gate, k.resource.GroupVersion())
		}
		names = append(names, name)
	}
	if len(names) > 0 {
		klog.FromContext(ctx).Info("The API server does not serve what some features need: they are off",
			"kinds", strings.Join(names, ", "))
	}
	return nil
}

// off returns the names of features that this program has, and that are off at the version that the gates emulate.
func off(on featuregate.MutableVersionedFeatureGate) []string {
	names := []string{"native PodGroups"}
	for gate, specs := range on.GetAllVersioned() {
		if strings.HasPrefix(string(gate), "DRA") && specs[len(specs)-1].Default && !on.Enabled(gate) {
			names = append(names, string(gate))
		}
	}
	slices.Sort(names)
	return names
}

func servesKind(api discovery.DiscoveryInterface, versions []string,
	resource schema.GroupVersionResource) (bool, error) {
	version := resource.GroupVersion().String()
	if !slices.Contains(versions, version) {
		return false, nil
	}
	list, err := api.ServerResourcesForGroupVersion(version)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err): // such as an old dump, which has no more than the groups
		return true, nil
	case err != nil:
		return false, fmt.Errorf("asking the API server for the kinds of %s: %w", version, err)
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool {
		return r.Name == resource.Resource
	}), nil
}

// empty gives a factory informers without objects for kinds that are not served: the others would wait for ever.
func empty(factory informers.SharedInformerFactory, kinds []kind) {
	for _, k := range kinds {
		factory.InformerFor(k.object, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
			return cache.NewSharedIndexInformer(nothing{}, k.object, 0,
				cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		})
	}
}

// nothing lists and watches no objects.
type nothing struct{}

func (nothing) List(metav1.ListOptions) (runtime.Object, error) {
	return &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
}

func (nothing) Watch(metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil }

// IsWatchListSemanticsUnSupported tells reflectors to list.
func (nothing) IsWatchListSemanticsUnSupported() bool { return true }
