package defragplan

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/moves"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/podgroupreader"
	"github.com/lockstep-sh/lockstep/pkg/rules/defrag/migration"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// migrationFor is the PodMigration of a move. It reserves the target, and evicts no pod as long as it is suspended.
func migrationFor(p *v1alpha1.DefragmentationPlan, move int) *v1alpha1.PodMigration {
	one := &p.Status.Moves[move]
	return &v1alpha1.PodMigration{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: one.Namespace, Name: fmt.Sprintf("%s-%d", p.Name,
				move), Labels: map[string]string{v1alpha1.PlanLabel: p.Name},
			Annotations:     map[string]string{v1alpha1.WhyAnnotation: one.Why},
			OwnerReferences: []metav1.OwnerReference{ownedBy(p)},
		},
		Spec: v1alpha1.PodMigrationSpec{
			PodName: one.PodName, PodUID: one.PodUID, PodGroup: one.PodGroup, SourceNode: one.SourceNode,
			TargetNode: one.TargetNode,
			Suspend:    true, AllowBarePod: one.Bare,
		},
	}
}

func ownedBy(p *v1alpha1.DefragmentationPlan) metav1.OwnerReference {
	return *metav1.NewControllerRef(p, v1alpha1.SchemeGroupVersion.WithKind("DefragmentationPlan"))
}

// hold makes the Reservations of what is freed that are missing. It reports whether it could: not for a goal that is
// gone. It returns why the API server refuses one; empty if it refuses none.
func (r *reconciler) hold(ctx context.Context, p *v1alpha1.DefragmentationPlan) (made bool, refusal string, err error) {
	for number, key := range kinds(p) {
		pod, err := moves.Pod(ctx, r.live, key)
		if err != nil || pod == nil {
			return made, "", err // without its pod the goal is gone, which the next look finds
		}
		queue, err := podgroupreader.Queue(ctx, r.live, r.client.RESTMapper(), pod)
		if err != nil {
			return made, "", err
		}
		switch refusal, err := r.create(ctx, p, holdFor(p, number, pod, queue)); {
		case err != nil:
			return made, "", fmt.Errorf("reserving what is freed for %s: %w", p.Status.Goal, err)
		case refusal != "":
			return made, refusal, nil
		}
		made = true
	}
	return made, "", nil
}

// holdFor returns the Reservation of the capacity freed for members like this one. queue is the queue that their
// PodGroup names; empty for none. It does not expire: the plan deletes it, at the end of a time that begins after the
// last move.
func holdFor(p *v1alpha1.DefragmentationPlan, number int, pod *v1.Pod, queue string) *v1alpha1.Reservation {
	nodes := nodesOf(p, client.ObjectKeyFromObject(pod))
	owner := migration.OwnerByUID(pod)
	if key, _, member := gangspec.KeyOf(pod); member && p.Spec.Goal.Pod == nil { // a pod that is the goal is in no gang
		owner = v1alpha1.ReservationOwner{PodGroup: types.NamespacedName(key).String()}
	}
	return &v1alpha1.Reservation{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-goal-%d", p.Name, number), Labels: map[string]string{v1alpha1.PlanLabel: p.Name},
			OwnerReferences: []metav1.OwnerReference{ownedBy(p)},
		},
		Spec: v1alpha1.ReservationSpec{
			Template: migration.TemplateIn(queue, pod), Replicas: int32(len(nodes)), NodeNames: nodes,
			Owners: []v1alpha1.ReservationOwner{owner},
			TTL:    &metav1.Duration{}, // for ever
		},
	}
}

// nodesOf are the nodes of the members that a pod stands for, one for each.
func nodesOf(p *v1alpha1.DefragmentationPlan, pod client.ObjectKey) (nodes []string) {
	for _, place := range p.Status.Places {
		if place.Namespace == pod.Namespace && place.PodName == pod.Name {
			nodes = append(nodes, slices.Repeat([]string{place.NodeName}, max(0, int(place.Members)))...)
		}
	}
	return nodes
}
