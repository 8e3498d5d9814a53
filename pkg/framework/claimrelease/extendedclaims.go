package claimrelease

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"
)

// For the extended resources of a pod that a DeviceClass backs, kube-scheduler creates a claim when it binds the pod. A
// scheduler that ends before the pod is bound leaves the claim, with its devices, and the next one refuses the pod as
// long as the claim exists.

// byOwner is the name of the index of such claims by their pods.
const byOwner = "claims made for extended resources, by pod"

// indexMade adds an index of the claims for extended resources to an informer. It must be called before the informer
// runs, and may be called again.
func indexMade(claims cache.SharedIndexInformer) error {
	if _, done := claims.GetIndexer().GetIndexers()[byOwner]; done {
		return nil
	}
	err := claims.AddIndexers(cache.Indexers{byOwner: func(object any) ([]string, error) {
		claim, ok := object.(*resourceapi.ResourceClaim)
		if !ok || claim.Annotations[resourceapi.ExtendedResourceClaimAnnotation] != "true" {
			return nil, nil
		}
		if owner := metav1.GetControllerOf(claim); owner != nil {
			return []string{string(owner.UID)}, nil
		}
		return nil, nil
	}})
	if err != nil {
		return fmt.Errorf("indexing claims by the pods that they were made for: %w", err)
	}
	return nil
}

// mayBeBacked reports whether a pod requests resources that a DeviceClass can back.
func mayBeBacked(pod *v1.Pod) bool {
	requests := func(c v1.Container) bool {
		for name := range c.Resources.Requests {
			if schedutil.IsDRAExtendedResourceName(name) {
				return true
			}
		}
		return false
	}
	return slices.ContainsFunc(pod.Spec.Containers, requests) || slices.ContainsFunc(pod.Spec.InitContainers, requests)
}

// madeFor returns the claims that were created for the extended resources of a pod.
func madeFor(pod types.UID, claims cache.Indexer) (made []*resourceapi.ResourceClaim, err error) {
	objects, err := claims.ByIndex(byOwner, string(pod))
	if err != nil {
		return nil, fmt.Errorf("looking up claims of a pod: %w", err)
	}
	for _, object := range objects {
		if claim, ok := object.(*resourceapi.ResourceClaim); ok {
			made = append(made, claim)
		}
	}
	return made, nil
}
