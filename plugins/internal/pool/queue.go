package pool

import (
	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/internal/resource"
)

// Amounts are what a queue's owner says of it, in all pools.
func Amounts(q *v1alpha1.QueueSpec) (deserved, guarantee, capability resource.Vector) {
	deserved, guarantee, capability = resource.FromList(q.Deserved), resource.FromList(q.Guarantee), resource.FromList(q.Capability)
	for _, p := range q.Pools {
		for to, list := range map[*resource.Vector]v1.ResourceList{&deserved: p.Deserved, &guarantee: p.Guarantee, &capability: p.Capability} {
			to.Add(resource.FromList(list).In(p.Name), 1)
		}
	}
	return deserved, guarantee, capability
}
