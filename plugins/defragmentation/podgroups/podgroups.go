// Package podgroups reads the PodGroups of gangs, of either API, for those who move pods.
package podgroups

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
)

// kinds are the APIs that have PodGroups: that of the community, and that of Kubernetes.
var kinds = []schema.GroupKind{{Group: "scheduling.x-k8s.io", Kind: "PodGroup"}, {Group: "scheduling.k8s.io", Kind: "PodGroup"}}

// Of reads the PodGroups of a gang, that of the community first. It has none where there is none, or its API is not served.
func Of(ctx context.Context, live client.Reader, mapper meta.RESTMapper, key client.ObjectKey) (groups []*metav1.PartialObjectMetadata, err error) {
	for _, kind := range kinds {
		mapping, err := mapper.RESTMapping(kind)
		switch {
		case meta.IsNoMatchError(err):
			continue // it is not served
		case err != nil:
			return nil, fmt.Errorf("finding out whether %s is served: %w", kind, err)
		}
		group := &metav1.PartialObjectMetadata{}
		group.SetGroupVersionKind(mapping.GroupVersionKind)
		switch err := live.Get(ctx, key, group); {
		case err == nil:
			groups = append(groups, group)
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("reading PodGroup %s of %s: %w", key, kind.Group, err)
		}
	}
	return groups, nil
}

// Queue is the queue that the PodGroup of a pod's gang names for it; empty where the pod names one itself, or no PodGroup does.
func Queue(ctx context.Context, live client.Reader, mapper meta.RESTMapper, pod *v1.Pod) (string, error) {
	key, _, member := gang.KeyOf(pod)
	if !member || pod.Labels[v1alpha1.QueueLabel] != "" {
		return "", nil
	}
	groups, err := Of(ctx, live, mapper, client.ObjectKey(key))
	if err != nil {
		return "", err
	}
	for _, group := range groups {
		if queue := group.Labels[v1alpha1.QueueLabel]; queue != "" {
			return queue, nil
		}
	}
	return "", nil
}
