package workloadfile

import (
	"context"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1conversion "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"

	"github.com/lockstep-sh/lockstep/pkg/kube/podadmission"
)

// admit gives a pod what the API server gives it when it is created, beside its defaults: what admission makes of it,
// and what matchLabelKeys mean. It returns an error where the pod would be refused.
func (r *Reader) admit(pod *v1.Pod) error {
	if err := podadmission.Admit(context.Background(), lookups{r}, pod); err != nil { // the reader has its own context
		return err
	}
	podadmission.MergeLabelKeys(pod)
	internal := &core.Pod{}
	if err := corev1conversion.Convert_v1_Pod_To_core_Pod(pod, internal, nil); err != nil {
		return fmt.Errorf("reading it as the API server does: %w", err)
	}
	options := podutil.GetValidationOptionsFromPodSpecAndMeta(&internal.Spec, nil, &internal.ObjectMeta, nil)
	if errs := validation.ValidatePodCreate(internal, options); len(errs) > 0 {
		return fmt.Errorf("the API server would refuse it: %w", errs.ToAggregate())
	}
	return nil
}

// lookups is what admission goes by: what the manifests have, or else the cluster. Each is read once.
type lookups struct{ *Reader }

// PriorityClasses implements podadmission.Cluster.
func (r lookups) PriorityClasses(context.Context) ([]schedulingv1.PriorityClass, error) {
	if r.priorities == nil {
		var list schedulingv1.PriorityClassList
		if err := r.Cluster.Read("/apis/scheduling.k8s.io/v1/priorityclasses", &list); err != nil {
			return nil, err
		}
		classes := map[string]schedulingv1.PriorityClass{}
		for _, class := range list.Items {
			classes[class.Name] = class
		}
		for name, class := range r.classes {
			classes[name] = *class
		}
		r.priorities = slices.AppendSeq([]schedulingv1.PriorityClass{}, maps.Values(classes))
	}
	return r.priorities, nil
}

// RuntimeClass implements podadmission.Cluster.
func (r lookups) RuntimeClass(_ context.Context, name string) (*nodev1.RuntimeClass, error) {
	if class := r.runtimes[name]; class != nil {
		return class, nil
	}
	class := &nodev1.RuntimeClass{}
	switch err := r.Cluster.Read("/apis/node.k8s.io/v1/runtimeclasses/"+name, class); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	r.runtimes[name] = class
	return class, nil
}

// LimitRanges implements podadmission.Cluster.
func (r lookups) LimitRanges(_ context.Context, namespace string) ([]v1.LimitRange, error) {
	ranges, known := r.limits[namespace]
	if known {
		return ranges, nil
	}
	var list v1.LimitRangeList
	err := r.Cluster.Read("/api/v1/namespaces/"+namespace+"/limitranges", &list)
	if err != nil && !apierrors.IsNotFound(err) { // a dump may have none
		return nil, err
	}
	r.limits[namespace] = list.Items
	return list.Items, nil
}
