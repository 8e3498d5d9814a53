package eviction

import (
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	policylisters "k8s.io/client-go/listers/policy/v1"
)

// Budgets are the PodDisruptionBudgets of the cluster at some moment. Nil means none.
type Budgets struct {
	allowed     []int
	byNamespace map[string][]budget
}

// budget is one PodDisruptionBudget.
type budget struct {
	place    int          // in allowed
	alone    map[int]bool // what Guards returns where it is the only one
	selector labels.Selector
	// disrupted are pods, by name, whose end it has allowed: it counts them already.
	disrupted map[string]metav1.Time
}

// ListBudgets reads the budgets.
func ListBudgets(lister policylisters.PodDisruptionBudgetLister) (*Budgets, error) {
	list, err := lister.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing disruption budgets: %w", err)
	}
	b := &Budgets{byNamespace: map[string][]budget{}}
	for _, one := range list {
		selector, err := metav1.LabelSelectorAsSelector(one.Spec.Selector)
		if err != nil || selector.Empty() {
			continue // it matches nothing, as for kube-scheduler
		}
		b.byNamespace[one.Namespace] = append(b.byNamespace[one.Namespace], budget{
			place: len(b.allowed), alone: map[int]bool{len(b.allowed): true}, selector: selector, disrupted: one.Status.DisruptedPods,
		})
		b.allowed = append(b.allowed, int(one.Status.DisruptionsAllowed))
	}
	return b, nil
}

// Allowed returns how many more pods each budget allows to be evicted.
func (b *Budgets) Allowed() []int {
	if b == nil {
		return nil
	}
	return b.allowed
}

// Guards returns the budgets that guard a pod, by their places in Allowed. The result must not be
// changed. The rules are those of kube-scheduler: a pod without labels is guarded by none.
func (b *Budgets) Guards(pod *v1.Pod) map[int]bool {
	if b == nil || len(pod.Labels) == 0 {
		return nil
	}
	var guards map[int]bool
	for _, one := range b.byNamespace[pod.Namespace] {
		if _, counted := one.disrupted[pod.Name]; counted || !one.selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		if guards == nil {
			guards = one.alone
			continue
		}
		guards = maps.Clone(guards)
		guards[one.place] = true
	}
	return guards
}
