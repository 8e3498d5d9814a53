package workload

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1conversion "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/plugin/pkg/admission/limitranger"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/simulate"
	"github.com/lockstep-sh/lockstep/plugins/labelkeys"
)

// admit gives a pod what the API server gives it when it is created, beside its defaults: what its RuntimeClass and the LimitRanges
// of its namespace say, its priority, and what matchLabelKeys mean. It returns an error where the pod would be refused. Quotas and
// webhooks are not asked.
func (r *Reader) admit(pod *v1.Pod) error {
	priority, policy, err := r.priority(pod.Spec.PriorityClassName)
	if err != nil {
		return err
	}
	pod.Spec.Priority = &priority
	if pod.Spec.PreemptionPolicy == nil {
		pod.Spec.PreemptionPolicy = policy
	}
	if err := r.limit(pod); err != nil {
		return err
	}
	if err := r.useRuntimeClass(pod); err != nil {
		return err
	}
	labelkeys.Merge(pod)
	internal, err := internalOf(pod)
	if err != nil {
		return err
	}
	options := podutil.GetValidationOptionsFromPodSpecAndMeta(&internal.Spec, nil, &internal.ObjectMeta, nil)
	if errs := validation.ValidatePodCreate(internal, options); len(errs) > 0 {
		return fmt.Errorf("the API server would refuse it: %w", errs.ToAggregate())
	}
	return nil
}

// priority returns what a class of the manifests, or else of the cluster, says.
func (r *Reader) priority(class string) (int32, *v1.PreemptionPolicy, error) {
	if own := r.classes[class]; own != nil {
		return own.Value, own.PreemptionPolicy, nil
	}
	return r.Priority(class)
}

// internalOf returns a pod as the code of the API server has it.
func internalOf(pod *v1.Pod) (*core.Pod, error) {
	internal := &core.Pod{}
	if err := corev1conversion.Convert_v1_Pod_To_core_Pod(pod, internal, nil); err != nil {
		return nil, fmt.Errorf("reading it as the API server does: %w", err)
	}
	return internal, nil
}

// limit applies the LimitRanges of a pod's namespace.
func (r *Reader) limit(pod *v1.Pod) error {
	ranges, known := r.limits[pod.Namespace]
	if !known {
		var list v1.LimitRangeList
		err := r.Cluster.Read("/api/v1/namespaces/"+pod.Namespace+"/limitranges", &list)
		if err != nil && !simulate.IsNotFound(err) { // a dump may have none
			return err
		}
		ranges = list.Items
		if r.limits == nil {
			r.limits = map[string][]v1.LimitRange{}
		}
		r.limits[pod.Namespace] = ranges
	}
	if len(ranges) == 0 {
		return nil
	}
	internal, err := internalOf(pod)
	if err != nil {
		return err
	}
	for i := range ranges {
		if err := limitranger.PodMutateLimitFunc(&ranges[i], internal); err != nil {
			return fmt.Errorf("LimitRange %q: %w", ranges[i].Name, err)
		}
	}
	for i := range ranges {
		if err := limitranger.PodValidateLimitFunc(&ranges[i], internal); err != nil {
			return fmt.Errorf("LimitRange %q would refuse it: %w", ranges[i].Name, err)
		}
	}
	return corev1conversion.Convert_core_Pod_To_v1_Pod(internal, pod, nil)
}

// useRuntimeClass gives a pod the overhead of its RuntimeClass, and its node selector and tolerations.
func (r *Reader) useRuntimeClass(pod *v1.Pod) error {
	if pod.Spec.RuntimeClassName == nil {
		return nil
	}
	class := r.runtimes[*pod.Spec.RuntimeClassName]
	if class == nil {
		class = &nodev1.RuntimeClass{}
		if err := r.Cluster.Read("/apis/node.k8s.io/v1/runtimeclasses/"+*pod.Spec.RuntimeClassName, class); err != nil {
			return fmt.Errorf("spec.runtimeClassName: %w", err)
		}
		if r.runtimes == nil {
			r.runtimes = map[string]*nodev1.RuntimeClass{}
		}
		r.runtimes[*pod.Spec.RuntimeClassName] = class
	}
	if class.Overhead != nil {
		pod.Spec.Overhead = class.Overhead.PodFixed
	}
	if class.Scheduling == nil {
		return nil
	}
	for key, value := range class.Scheduling.NodeSelector {
		if has, ok := pod.Spec.NodeSelector[key]; ok && has != value {
			return fmt.Errorf("spec.nodeSelector[%s] is %q: RuntimeClass %q has %q", key, has, class.Name, value)
		}
		if pod.Spec.NodeSelector == nil {
			pod.Spec.NodeSelector = map[string]string{}
		}
		pod.Spec.NodeSelector[key] = value
	}
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, class.Scheduling.Tolerations...)
	return nil
}
