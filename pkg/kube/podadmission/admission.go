// Package podadmission makes of a pod what the admission plugins of the API server make of one that is created: its
// priority, the defaults of the LimitRanges of its namespace, what its RuntimeClass says, and the selectors that its
// matchLabelKeys mean ([MergeLabelKeys]). It is for pods that the API server never sees: those that look for the places
// of a Reservation, and those that kubectl gang whatif supposes.
//
// What the API server would refuse is refused here, with a [Refusal]; any other error means that something could not be
// looked up.
//
// Only what decides where a pod fits is done. Quotas and webhooks are not asked, a pod gets no ServiceAccount, and no
// tolerations for nodes that are not ready or unreachable: such nodes also have a taint that these do not tolerate. The
// defaults of the schema, which do not depend on the cluster, are the caller's.
package podadmission

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/plugin/pkg/admission/limitranger"
)

// Cluster is where pods would be created.
type Cluster interface {
	// PriorityClasses lists all of them.
	PriorityClasses(ctx context.Context) ([]schedulingv1.PriorityClass, error)
	// RuntimeClass returns one by its name; nil where there is none.
	RuntimeClass(ctx context.Context, name string) (*nodev1.RuntimeClass, error)
	// LimitRanges lists those of a namespace.
	LimitRanges(ctx context.Context, namespace string) ([]v1.LimitRange, error)
}

// Refusal is why the API server would not create a pod.
type Refusal struct {
	// Field is the path in the pod.
	Field, Why string
}

func (r *Refusal) Error() string { return r.Field + ": " + r.Why }

func refuse(field, format string, args ...any) error {
	return &Refusal{Field: field, Why: fmt.Sprintf(format, args...)}
}

// Admit changes a pod that has the defaults of the schema into what would be created. If it fails, the pod is left half
// changed.
func Admit(ctx context.Context, cluster Cluster, pod *v1.Pod) error {
	if err := Prioritize(ctx, cluster, pod); err != nil {
		return err
	}
	if err := limit(ctx, cluster, pod); err != nil {
		return err
	}
	return useRuntimeClass(ctx, cluster, pod)
}

// Prioritize gives a pod the priority of its class, or of the default one, and whether it may preempt others.
func Prioritize(ctx context.Context, cluster Cluster, pod *v1.Pod) error {
	classes, err := cluster.PriorityClasses(ctx)
	if err != nil {
		return fmt.Errorf("looking up PriorityClasses: %w", err)
	}
	priority, policy := int32(0), new(v1.PreemptLowerPriority)
	switch class := classOf(pod, classes); {
	case class != nil:
		pod.Spec.PriorityClassName = class.Name
		priority, policy = class.Value, class.PreemptionPolicy
	case pod.Spec.PriorityClassName != "":
		return refuse("spec.priorityClassName", "%q: there is no such PriorityClass", pod.Spec.PriorityClassName)
	}
	if has := pod.Spec.Priority; has != nil && *has != priority {
		return refuse("spec.priority", "%d: it has to be left out, or be that of its PriorityClass, %d", *has, priority)
	}
	pod.Spec.Priority = &priority
	if policy == nil {
		return nil
	}
	if has := pod.Spec.PreemptionPolicy; has != nil && *has != *policy {
		return refuse("spec.preemptionPolicy", "%q: it has to be left out, or be that of its PriorityClass, %q",
			*has, *policy)
	}
	pod.Spec.PreemptionPolicy = policy
	return nil
}

// classOf returns the class that a pod names, or else the default one; nil for none.
func classOf(pod *v1.Pod, classes []schedulingv1.PriorityClass) (found *schedulingv1.PriorityClass) {
	for i := range classes {
		class := &classes[i]
		switch name := pod.Spec.PriorityClassName; {
		case name != "" && name == class.Name:
			return class
		case name == "" && class.GlobalDefault && (found == nil || class.Value < found.Value):
			found = class
		}
	}
	return found
}

// limit gives the containers of a pod the defaults of the LimitRanges of its namespace, and checks what these bound.
func limit(ctx context.Context, cluster Cluster, pod *v1.Pod) error {
	ranges, err := cluster.LimitRanges(ctx, pod.Namespace)
	if err != nil {
		return fmt.Errorf("looking up LimitRanges in namespace %q: %w", pod.Namespace, err)
	}
	if len(ranges) == 0 {
		return nil
	}
	// Of several defaults the first counts.
	slices.SortFunc(ranges, func(a, b v1.LimitRange) int { return cmp.Compare(a.Name, b.Name) })
	internal := &core.Pod{}
	if err := corev1.Convert_v1_Pod_To_core_Pod(pod, internal, nil); err != nil {
		return fmt.Errorf("reading the pod as the API server does: %w", err)
	}
	for i := range ranges {
		if err := limitranger.PodMutateLimitFunc(&ranges[i], internal); err != nil {
			return refuse("spec.containers", "LimitRange %s/%s: %v", pod.Namespace, ranges[i].Name, err)
		}
	}
	for i := range ranges {
		if err := limitranger.PodValidateLimitFunc(&ranges[i], internal); err != nil {
			return refuse("spec.containers", "LimitRange %s/%s forbids it: %v", pod.Namespace, ranges[i].Name, err)
		}
	}
	if err := corev1.Convert_core_Pod_To_v1_Pod(internal, pod, nil); err != nil {
		return fmt.Errorf("reading the pod with the defaults of LimitRanges: %w", err)
	}
	return nil
}

// useRuntimeClass gives a pod the overhead of its RuntimeClass, and its node selector and tolerations.
func useRuntimeClass(ctx context.Context, cluster Cluster, pod *v1.Pod) error {
	name, class := pod.Spec.RuntimeClassName, &nodev1.RuntimeClass{}
	if name != nil {
		var err error
		if class, err = cluster.RuntimeClass(ctx, *name); err != nil {
			return fmt.Errorf("looking up RuntimeClass %q: %w", *name, err)
		}
		if class == nil {
			return refuse("spec.runtimeClassName", "%q: there is no such RuntimeClass", *name)
		}
	}
	var overhead v1.ResourceList
	if class.Overhead != nil {
		overhead = class.Overhead.PodFixed
	}
	if has := pod.Spec.Overhead; len(has) > 0 && !equality.Semantic.DeepEqual(has, overhead) {
		return refuse("spec.overhead", "it has to be left out: the RuntimeClass that spec.runtimeClassName names has it")
	}
	pod.Spec.Overhead = maps.Clone(overhead)
	if class.Scheduling == nil {
		return nil
	}
	for key, value := range class.Scheduling.NodeSelector {
		if has, ok := pod.Spec.NodeSelector[key]; ok && has != value {
			return refuse("spec.nodeSelector["+key+"]", "%q: RuntimeClass %q has %q", has, class.Name, value)
		}
		if pod.Spec.NodeSelector == nil {
			pod.Spec.NodeSelector = map[string]string{}
		}
		pod.Spec.NodeSelector[key] = value
	}
	for _, toleration := range class.Scheduling.Tolerations {
		has := func(t v1.Toleration) bool { return equality.Semantic.DeepEqual(t, toleration) }
		if !slices.ContainsFunc(pod.Spec.Tolerations, has) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, toleration)
		}
	}
	return nil
}
