// Package podgroupreader reads the PodGroups of gangs, of either API.
package podgroupreader

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

const kind = "PodGroup"

// The groups of the APIs that have PodGroups: that of the community, and that of Kubernetes.
const community, native = "scheduling.x-k8s.io", "scheduling.k8s.io"

// Of returns the PodGroups of a gang, that of the community first. It returns none where there is none, or its API is
// not served.
func Of(ctx context.Context, live client.Reader, mapper meta.RESTMapper,
	key client.ObjectKey) (groups []*unstructured.Unstructured, err error) {
	for _, api := range []string{community, native} {
		mapping, err := mapper.RESTMapping(schema.GroupKind{Group: api, Kind: kind})
		switch {
		case meta.IsNoMatchError(err):
			continue // it is not served
		case err != nil:
			return nil, fmt.Errorf("finding out whether PodGroups of %s are served: %w", api, err)
		}
		group := &unstructured.Unstructured{}
		group.SetGroupVersionKind(mapping.GroupVersionKind)
		switch err := live.Get(ctx, key, group); {
		case err == nil:
			groups = append(groups, group)
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("reading PodGroup %s of %s: %w", key, api, err)
		}
	}
	return groups, nil
}

// Read reads what the PodGroups of a gang say.
func Read(ctx context.Context, live client.Reader, mapper meta.RESTMapper,
	key gangspec.Key) (said gangspec.PodGroups, err error) {
	groups, err := Of(ctx, live, mapper, client.ObjectKey(key))
	for _, group := range groups {
		var pg client.Object = &coscheduling.PodGroup{}
		if group.GroupVersionKind().Group == native {
			pg = &schedulingv1beta1.PodGroup{}
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(group.Object, pg); err != nil {
			return gangspec.PodGroups{}, fmt.Errorf("reading PodGroup %s: %w", key, err)
		}
		said.Read(pg)
	}
	return said, err
}

// Queue returns the queue that the PodGroup of a pod's gang names for it; empty where the pod names one itself, or no
// PodGroup does.
func Queue(ctx context.Context, live client.Reader, mapper meta.RESTMapper, pod *v1.Pod) (string, error) {
	key, _, member := gangspec.KeyOf(pod)
	if !member || pod.Labels[v1alpha1.QueueLabel] != "" {
		return "", nil
	}
	groups, err := Read(ctx, live, mapper, key)
	return groups.QueueOf(pod), err
}
