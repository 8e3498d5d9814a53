package defragmentation

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/reservations/reservepods"
	"github.com/lockstep-sh/lockstep/pkg/rules/defrag"
	"github.com/lockstep-sh/lockstep/pkg/rules/defrag/migration"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// check makes the moves in a what-if, with all plugins of the profiles, and then places the gang or pod that waits. It
// returns where each member goes. Where something is refused it returns why: with places, the pod that was refused is
// not tried there again; without, the members found no room.
func (r *round) check(ctx context.Context, d *demand, p *problem,
	plan *defrag.Plan) (places map[types.UID]string, refused string, err error) {
	for i, move := range plan.Moves {
		pod := p.pods[move.Pod]
		copied := copyOf(pod.Pod, i)
		switch goesOn, err := r.survives(ctx, pod.Pod); {
		case err != nil:
			return nil, "", err
		case !goesOn:
			p.fixed[metav1.GetControllerOf(pod).UID] = true
			return map[types.UID]string{},
				fmt.Sprintf("Job %s of pod %s/%s would take its eviction for a failure: give it a podFailurePolicy that ignores "+
					"DisruptionTarget", metav1.GetControllerOf(pod).Name, pod.Namespace, pod.Name), nil
		}
		if !r.within(pod.request, p.simulation.Node(move.To)) {
			p.refuse(move.Pod, move.To)
			return map[types.UID]string{}, fmt.Sprintf("node %s would be used by more than protectionThresholds allow",
				p.nodeName(move.To)), nil
		}
		if status := p.simulation.CheckPod(ctx, copied, move.To); !status.IsSuccess() {
			if status.Code() == fwk.Error {
				return nil, "", fmt.Errorf("trying pod %s/%s on node %s: %w", pod.Namespace, pod.Name, p.nodeName(move.To),
					status.AsError())
			}
			p.refuse(move.Pod, move.To)
			return map[types.UID]string{}, fmt.Sprintf("pod %s/%s on node %s: %s", pod.Namespace, pod.Name, p.nodeName(move.To),
				status.Message()), nil
		}
		if err := p.simulation.Remove(ctx, pod.info, p.Pods[move.Pod].Node); err != nil {
			return nil, "", err
		}
		if err := p.simulation.Add(ctx, copied, move.To); err != nil {
			return nil, "", err
		}
	}
	if len(plan.Places) == 0 {
		return map[types.UID]string{}, "", nil // no pods have to be placed
	}
	var nodes []int
	for _, part := range plan.Places {
		for _, class := range part {
			nodes = append(nodes, class...)
		}
	}
	slices.Sort(nodes)
	if _, err := p.simulation.Restrict(ctx, slices.Compact(nodes), 4); err != nil {
		return nil, "", err
	}
	placed, err := p.simulation.Place(ctx)
	if err != nil {
		return nil, "", err
	}
	if !placed.Complete {
		return nil, d.name + " does not fit on the nodes that were cleared, for what the filters see", nil
	}
	return placed.Nodes, "", nil
}

// copyOf returns a pod like another, as its Reservation would have it.
func copyOf(pod *v1.Pod, number int) *v1.Pod {
	template := migration.TemplateOf(pod)
	for _, key := range gangspec.MemberLabels {
		delete(template.Labels, key)
	}
	copied := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: reservepods.PodName("move",
				number), UID: types.UID(fmt.Sprintf("%s/moved", pod.UID)),
			Labels: template.Labels, Annotations: template.Annotations,
		},
		Spec: template.Spec,
	}
	copied.Spec.Priority = pod.Spec.Priority
	return copied
}
