package pools

import (
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// Queue returns a queue as its owner describes it, in all pools. Amounts that nothing can have are left out.
func Queue(q *v1alpha1.Queue) queueing.Queue {
	one := queueing.Queue{
		Name: q.Name, Parent: q.Spec.Parent, Weight: int64(max(q.Spec.Weight, 1)), Priority: q.Spec.Priority,
		Closed: q.Spec.Closed, NotReclaimable: q.Spec.Reclaimable != nil && !*q.Spec.Reclaimable, Fault: Fault(q),
		Deserved: resource.FromList(q.Spec.Deserved), Guarantee: resource.FromList(q.Spec.Guarantee),
		Capability: resource.FromList(q.Spec.Capability),
	}
	if q.Spec.MinRuntime != nil {
		one.MinRuntime = &q.Spec.MinRuntime.Duration
	}
	for _, p := range q.Spec.Pools {
		maps.Copy(one.Deserved, resource.FromList(p.Deserved).In(p.Name))
		maps.Copy(one.Guarantee, resource.FromList(p.Guarantee).In(p.Name))
		maps.Copy(one.Capability, resource.FromList(p.Capability).In(p.Name))
	}
	return one
}

// Fault returns what is wrong with the amounts of a queue, the first by field and resource; empty for nothing.
func Fault(q *v1alpha1.Queue) string {
	type amounts struct {
		field string
		list  v1.ResourceList
	}
	all := []amounts{{"spec.deserved", q.Spec.Deserved}, {"spec.guarantee", q.Spec.Guarantee},
		{"spec.capability", q.Spec.Capability}}
	for _, p := range q.Spec.Pools {
		field := fmt.Sprintf("spec.pools[%s].", p.Name)
		all = append(all, amounts{field + "deserved", p.Deserved}, amounts{field + "guarantee", p.Guarantee},
			amounts{field + "capability", p.Capability})
	}
	for _, one := range all {
		if fault := resource.Check(one.field, one.list, resource.MaxOfAll); fault != nil {
			return fault.Error()
		}
	}
	return ""
}
