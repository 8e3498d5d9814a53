package main

import (
	"context"
	"fmt"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
)

// reserved measures the cost of Reservations: pods in no gang without any, beside many that are for others, and as the
// owners of as many of these. Each Reservation holds one place on one node for pods with a label of its own: those for
// owners hold what a pod asks for, all others a tenth of a CPU.
type reserved struct {
	nodes, reservations, pods int
}

func (b reserved) name() string {
	return fmt.Sprintf("Reservations/nodes=%d/pods=%d/reservations=%d", b.nodes, b.pods, b.reservations)
}

func (b reserved) run(ctx context.Context, f *fixture, r *report) error {
	if err := f.withReservations(ctx, b.nodes); err != nil {
		return err
	}
	goals := []goal{{unit: "pods/s", ratio: true, bound: 0.98, column: 1}, {unit: "pods/s", ratio: true, bound: 0.9, column: 2}}
	t := r.table(b.name(), goals, "reservations=none", "reservations=of-others", "reservations=own")
	w := workload{scheduler: ours.schedulerName, prefix: "train", gangs: b.pods, size: 1}
	for round := range f.rounds {
		label := func(column int) string { return fmt.Sprintf("%s/%s/round=%d", b.name(), t.columns[column], round+1) }
		if err := f.raceOnce(ctx, r, t, 0, ours, label(0), w); err != nil {
			return err
		}
		if err := b.reserve(ctx, f, w); err != nil {
			return err
		}
		if err := f.raceOnce(ctx, r, t, 1, ours, label(1), w); err != nil {
			return err
		}
		owners := w
		owners.owners = true
		if err := f.raceOnce(ctx, r, t, 2, ours, label(2), owners); err != nil {
			return err
		}
		if err := f.objects.DeleteAllOf(ctx, &v1alpha1.Reservation{}); err != nil {
			return fmt.Errorf("deleting Reservations: %w", err)
		}
	}
	return nil
}

// withReservations sets up so many nodes, and an API server that knows Reservations.
func (f *fixture) withReservations(ctx context.Context, nodes int) error {
	if err := f.setNodes(ctx, nodes); err != nil {
		return err
	}
	return f.cluster.Apply(ctx, filepath.Join("manifests", "crds"))
}

// reserve makes the Reservations, as they are when the scheduler has placed them.
func (b reserved) reserve(ctx context.Context, f *fixture, w workload) error {
	nodes, err := f.nodeNames(ctx)
	if err != nil {
		return err
	}
	return each(ctx, b.reservations, func(ctx context.Context, i int) error {
		pod := w.at(i % b.pods)
		request := pod.Spec.Containers[0].Resources.Requests.DeepCopy()
		request[localcluster.ResourceGPU] = resource.MustParse("1")
		owner := pod.Name
		if i >= b.pods {
			owner = fmt.Sprint("nobody-", i)
			request = v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")}
			pod.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: request}
		}
		one := &v1alpha1.Reservation{
			Spec: v1alpha1.ReservationSpec{
				Template: v1.PodTemplateSpec{Spec: pod.Spec},
				Owners:   []v1alpha1.ReservationOwner{{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{ownerLabel: owner}}}},
			},
		}
		one.Name = fmt.Sprintf("reservation-%05d", i)
		f.wrote.Add(2)
		if err := f.objects.Create(ctx, one); err != nil {
			return fmt.Errorf("creating a Reservation: %w", err)
		}
		node := nodes[i%len(nodes)]
		one.Status = v1alpha1.ReservationStatus{
			Phase: v1alpha1.ReservationAvailable, NodeName: node,
			Placements:  []v1alpha1.ReservationPlacement{{NodeName: node, Allocatable: request}},
			Allocatable: request,
		}
		if err := f.objects.Status().Update(ctx, one); err != nil {
			return fmt.Errorf("placing a Reservation: %w", err)
		}
		return nil
	})
}

// ownerLabel is on pods that have a Reservation each.
const ownerLabel = "benchmark.lockstep.dev/owner"
