package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// reserved measures the cost of Reservations: pods in no gang without any, beside as much that running pods use, beside
// many that are for others, and as the owners of as many of these. Each Reservation holds one place on one node for
// pods with a label of its own: those for owners hold what a pod asks for, all others a tenth of a CPU.
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
	goals := []goal{
		{unit: "pods/s", ratio: true, bound: 0.9, column: 2},
		{unit: "pods/s", ratio: true, bound: 0.9, column: 2, over: 1},
		{unit: "pods/s", ratio: true, bound: 0.9},
	}
	t := r.table(b.name(), goals, "reservations=none", "reservations=running-pods", "reservations=of-others", "reservations=own")
	w := workload{scheduler: ours.schedulerName, prefix: "train", gangs: b.pods, size: 1}
	owners := w
	owners.owners = true
	for round := range f.rounds {
		race := func(column int, w workload) error {
			return f.raceOnce(ctx, r, t, column, ours, fmt.Sprintf("%s/%s/round=%d", b.name(), t.columns[column], round+1), w)
		}
		if err := race(0, w); err != nil {
			return err
		}
		end, err := b.occupy(ctx, f, w)
		if err != nil {
			return err
		}
		if err := race(1, w); err != nil {
			return err
		}
		if err := end(ctx); err != nil {
			return err
		}
		if err := b.reserve(ctx, f, w); err != nil {
			return err
		}
		if err := race(2, w); err != nil {
			return err
		}
		if err := race(3, owners); err != nil {
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

// held returns a pod that asks for what Reservation number i holds, where the nodes stand in some order.
func (b reserved) held(i int, w workload, nodes []string) *v1.Pod {
	pod := w.at(i % b.pods)
	if i >= b.pods {
		pod.Name = fmt.Sprint("nobody-", i)
		pod.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")}}
	}
	pod.Spec.NodeName = nodes[i%len(nodes)]
	return pod
}

// occupied is the namespace of pods that use what Reservations would hold: those of the workload are in another.
const occupied = metav1.NamespacePublic

// occupy runs pods in place of the Reservations. The function that it returns ends them.
func (b reserved) occupy(ctx context.Context, f *fixture, w workload) (end func(context.Context) error, err error) {
	nodes, err := f.nodeNames(ctx)
	if err != nil {
		return nil, err
	}
	pods := f.client.CoreV1().Pods(occupied)
	err = each(ctx, b.reservations, func(ctx context.Context, i int) error {
		pod := b.held(i, w, nodes)
		pod.Namespace = occupied
		return f.createPod(ctx, pod)
	})
	return func(ctx context.Context) error {
		now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}
		if err := pods.DeleteCollection(ctx, now, metav1.ListOptions{}); err != nil {
			return fmt.Errorf("deleting running pods: %w", err)
		}
		return nil
	}, err
}

// reserve makes the Reservations, as they are when the scheduler has placed them.
func (b reserved) reserve(ctx context.Context, f *fixture, w workload) error {
	nodes, err := f.nodeNames(ctx)
	if err != nil {
		return err
	}
	return each(ctx, b.reservations, func(ctx context.Context, i int) error {
		pod := b.held(i, w, nodes)
		owner, node := pod.Name, pod.Spec.NodeName
		pod.Spec.NodeName = ""
		request := pod.Spec.Containers[0].Resources.Requests.DeepCopy()
		maps.Copy(request, pod.Spec.Containers[0].Resources.Limits)
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
