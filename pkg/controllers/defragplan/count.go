package defragplan

import (
	"context"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/defrag"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// page is how many pods are read at a time.
const page = 500

// count is how many gangs of the shape of a plan fit, by arithmetic, on nodes that take their pods: those that are
// ready, not cordoned, and without taints but for what the shape asks for. It is asked once, at the end of a plan.
func (r *reconciler) count(ctx context.Context, p *v1alpha1.DefragmentationPlan) (*int32, error) {
	shape := p.Spec.Goal.Shape
	taken, err := r.held(ctx, func(rsv *v1alpha1.Reservation) bool { return rsv.Labels[v1alpha1.PlanLabel] == p.Name })
	if err != nil {
		return nil, err
	}
	left := movedOf(p) // they may be ending still
	if err := r.pods(ctx, func(pod *v1.Pod) {
		if objectstate.OccupiesNode(pod) && !left.Has(pod.UID) {
			resource.AddTo(taken, pod.Spec.NodeName, requests(pod), 1)
		}
	}); err != nil {
		return nil, err
	}
	var nodes v1.NodeList
	if err := r.live.List(ctx, &nodes); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	request := resource.FromList(shape.Requests)
	request[v1.ResourcePods] = 1
	columns := slices.Sorted(maps.Keys(request))
	vector := func(of resource.Vector) []int64 {
		v := make([]int64, len(columns))
		for i, name := range columns {
			v[i] = of[name]
		}
		return v
	}
	var rows [][]int64
	domains := map[string][]int{}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		domain, inOne := node.Labels[shape.Topology]
		if !objectstate.TakesPods(node) || repels(node, shape) || shape.Topology != "" && !inOne {
			continue
		}
		has := resource.OfNode(node)
		has.Add(taken[node.Name], -1)
		domains[domain] = append(domains[domain], len(rows))
		rows = append(rows, vector(has))
	}
	var sum int32
	for _, domain := range domains {
		sum += int32(defrag.Capacity(rows, domain, []defrag.Class{{Request: vector(request), Count: int(shape.Members)}},
			nil))
	}
	return &sum, nil
}

// pods calls with each pod that there is.
func (r *reconciler) pods(ctx context.Context, do func(pod *v1.Pod)) error {
	var list v1.PodList
	for {
		if err := r.live.List(ctx, &list, client.Limit(page), client.Continue(list.Continue)); err != nil {
			return fmt.Errorf("listing pods: %w", err)
		}
		for i := range list.Items {
			do(&list.Items[i])
		}
		if list.Continue == "" {
			return nil
		}
	}
}

// repels reports whether a taint keeps pods of a shape off a node.
func repels(node *v1.Node, shape *v1alpha1.GangShape) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool {
		_, asked := shape.Requests[v1.ResourceName(t.Key)]
		return t.Effect != v1.TaintEffectPreferNoSchedule && !asked
	})
}
