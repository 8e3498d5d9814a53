package autoscaling

import (
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/pkg/kube/podadmission"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// podKind is pods that have the same template.
type podKind struct {
	template v1.PodTemplateSpec
	count    int
}

// kindsOf groups pods by their templates, in the order of the first pod of each.
func kindsOf(pods []*v1.Pod) ([]*podKind, error) {
	labels := labelsOf(pods)
	var kinds []*podKind
	byText := map[string]*podKind{}
	for _, pod := range pods {
		template := templateOf(pod, labels)
		text, err := json.Marshal(template)
		if err != nil {
			return nil, fmt.Errorf("encoding pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		k := byText[string(text)]
		if k == nil {
			k = &podKind{template: template}
			byText[string(text)] = k
			kinds = append(kinds, k)
		}
		k.count++
	}
	return kinds, nil
}

// templateOf returns what an autoscaler has to know of a pod to find room for it. What differs between pods that are
// alike to scheduling, such as token mounts and host names, is left out, and so is what marks a pod as waiting.
func templateOf(pod *v1.Pod, labels map[string]bool) v1.PodTemplateSpec {
	from := pod.Spec.DeepCopy()
	template := v1.PodTemplateSpec{Spec: v1.PodSpec{
		InitContainers: resource.AskingContainers(from.InitContainers),
		Containers:     resource.AskingContainers(from.Containers),
		Volumes:        attached(from.Volumes),
		RestartPolicy:  from.RestartPolicy, SchedulerName: from.SchedulerName, OS: from.OS,
		RuntimeClassName: from.RuntimeClassName,
		NodeSelector:     from.NodeSelector, Affinity: from.Affinity, Tolerations: from.Tolerations,
		TopologySpreadConstraints: from.TopologySpreadConstraints,
		PriorityClassName:         from.PriorityClassName, Priority: from.Priority, PreemptionPolicy: from.PreemptionPolicy,
		HostNetwork: from.HostNetwork, Overhead: from.Overhead, Resources: from.Resources,
		ResourceClaims: from.ResourceClaims,
	}}
	for key, value := range pod.Labels {
		if labels[key] {
			metav1.SetMetaDataLabel(&template.ObjectMeta, key, value)
		}
	}
	return template
}

// attached keeps the volumes that may restrict which nodes a pod can use.
func attached(volumes []v1.Volume) []v1.Volume {
	var kept []v1.Volume
	for _, volume := range volumes {
		if resource.IsAttached(volume) {
			kept = append(kept, volume)
		}
	}
	return kept
}

// labelsOf returns the keys of labels that templates have: those on which all pods agree, and those by which the pods'
// own affinity and spread constraints select. Labels that merely number pods would make each pod a kind of its own.
func labelsOf(pods []*v1.Pod) map[string]bool {
	keys := map[string]bool{}
	for key, value := range pods[0].Labels {
		keys[key] = true
		for _, pod := range pods[1:] {
			if other, ok := pod.Labels[key]; !ok || other != value {
				delete(keys, key)
				break
			}
		}
	}
	for _, pod := range pods {
		for _, term := range podadmission.Terms(pod.Spec.Affinity) {
			selected(keys, term.LabelSelector, term.MatchLabelKeys, term.MismatchLabelKeys)
		}
		for _, constraint := range pod.Spec.TopologySpreadConstraints {
			selected(keys, constraint.LabelSelector, constraint.MatchLabelKeys)
		}
	}
	return keys
}

// selected adds the keys by which pods are selected.
func selected(keys map[string]bool, selector *metav1.LabelSelector, more ...[]string) {
	for _, list := range more {
		for _, key := range list {
			keys[key] = true
		}
	}
	if selector == nil {
		return
	}
	for key := range selector.MatchLabels {
		keys[key] = true
	}
	for _, requirement := range selector.MatchExpressions {
		keys[requirement.Key] = true
	}
}
