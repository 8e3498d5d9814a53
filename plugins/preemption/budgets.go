package preemption

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	policylisters "k8s.io/client-go/listers/policy/v1"
	fwk "k8s.io/kube-scheduler/framework"
	stockpreemption "k8s.io/kubernetes/pkg/scheduler/framework/preemption"

	"github.com/lockstep-sh/lockstep/plugins/victim"
)

// guard marks the pods of which the eviction would violate a PodDisruptionBudget, if those
// that are worth less went first.
func (c *candidates) guard(gangs []victim.Gang, lister policylisters.PodDisruptionBudgetLister) error {
	budgets, err := lister.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing disruption budgets: %w", err)
	}
	if len(budgets) == 0 {
		return nil
	}
	type index struct{ gang, pod int }
	var order []index
	for i := range gangs {
		for j, pod := range gangs[i].Pods {
			if !pod.Protected {
				order = append(order, index{i, j})
			}
		}
	}
	at := func(x index) victim.Pod { return gangs[x.gang].Pods[x.pod] }
	slices.SortFunc(order, func(a, b index) int {
		return cmp.Or(cmp.Compare(at(a).Priority, at(b).Priority), at(b).Created.Compare(at(a).Created), cmp.Compare(at(a).UID, at(b).UID))
	})
	var victims []stockpreemption.Victim
	for _, x := range order {
		place, ok := c.at[at(x).UID]
		if !ok {
			continue
		}
		one, err := stockpreemption.NewVictim([]fwk.PodInfo{place.info}, at(x).Priority, fwk.PodKeyType)
		if err != nil {
			return fmt.Errorf("asking for the disruption budget of pod %s: %w", at(x).UID, err)
		}
		victims = append(victims, one)
	}
	violating, _ := stockpreemption.FilterVictimsWithPDBViolation(victims, budgets)
	guarded := map[types.UID]bool{}
	for _, v := range violating {
		guarded[v.Victim.Pods()[0].GetPod().UID] = true
	}
	for i := range gangs {
		for j := range gangs[i].Pods {
			gangs[i].Pods[j].Guarded = guarded[gangs[i].Pods[j].UID]
		}
	}
	return nil
}
