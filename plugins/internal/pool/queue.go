package pool

import (
	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/internal/dispatch"
	"github.com/lockstep-sh/lockstep/plugins/internal/resource"
)

// Queue returns a queue as its owner describes it, in all pools.
func Queue(q *v1alpha1.Queue) dispatch.Queue {
	one := dispatch.Queue{
		Name: q.Name, Parent: q.Spec.Parent, Weight: int64(max(q.Spec.Weight, 1)), Priority: q.Spec.Priority,
		Closed: q.Spec.Closed, Kept: q.Spec.Reclaimable != nil && !*q.Spec.Reclaimable,
		Deserved: resource.FromList(q.Spec.Deserved), Guarantee: resource.FromList(q.Spec.Guarantee), Capability: resource.FromList(q.Spec.Capability),
	}
	if q.Spec.MinRuntime != nil {
		one.MinRuntime = &q.Spec.MinRuntime.Duration
	}
	for _, p := range q.Spec.Pools {
		for to, list := range map[*resource.Vector]v1.ResourceList{&one.Deserved: p.Deserved, &one.Guarantee: p.Guarantee, &one.Capability: p.Capability} {
			to.Add(resource.FromList(list).In(p.Name), 1)
		}
	}
	return one
}
