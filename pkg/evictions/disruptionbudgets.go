package evictions

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	policylisters "k8s.io/client-go/listers/policy/v1"
)

// Budgets are the PodDisruptionBudgets of the cluster at some moment; nil for none.
type Budgets struct {
	allowed     []int
	names       []string // namespace/name, as in allowed
	byNamespace map[string][]budget
}

// budget is one PodDisruptionBudget.
type budget struct {
	index    int          // in allowed
	alone    map[int]bool // what Guards returns if it is the only one
	selector labels.Selector
	// disrupted are the names of pods whose eviction it has allowed and counts already.
	disrupted map[string]metav1.Time
}

// ListBudgets reads the budgets. With emptyCovers an empty selector covers all pods of its namespace that have labels,
// as in the Eviction API; else none, as in kube-scheduler.
func ListBudgets(lister policylisters.PodDisruptionBudgetLister, emptyCovers bool) (*Budgets, error) {
	list, err := lister.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing disruption budgets: %w", err)
	}
	b := &Budgets{byNamespace: map[string][]budget{}}
	for _, one := range list {
		selector, err := metav1.LabelSelectorAsSelector(one.Spec.Selector)
		if err != nil || selector.Empty() && !emptyCovers {
			continue
		}
		b.byNamespace[one.Namespace] = append(b.byNamespace[one.Namespace], budget{
			index: len(b.allowed), alone: map[int]bool{len(b.allowed): true}, selector: selector,
			disrupted: one.Status.DisruptedPods,
		})
		b.allowed = append(b.allowed, int(one.Status.DisruptionsAllowed))
		b.names = append(b.names, one.Namespace+"/"+one.Name)
	}
	return b, nil
}

// Allowed returns how many more evictions each budget allows.
func (b *Budgets) Allowed() []int {
	if b == nil {
		return nil
	}
	return b.allowed
}

// UsedUp returns the budgets that cover one of some pods and allow no eviction now, as namespace/name, sorted.
func (b *Budgets) UsedUp(pods []*v1.Pod) (names []string) {
	for _, pod := range pods {
		for place := range b.Guards(pod) {
			if b.allowed[place] <= 0 {
				names = append(names, b.names[place])
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Guards returns the budgets that cover a pod, as indexes into Allowed. The result must not be changed. As in
// kube-scheduler, a pod without labels is covered by none.
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
		guards[one.index] = true
	}
	return guards
}
