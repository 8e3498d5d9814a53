package main

import (
	"context"
	"fmt"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

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

func (b reserved) quick() bool { return false }

func (b reserved) run(ctx context.Context, f *fixture, r *report) error {
	reservations, err := f.withReservations(ctx, b.nodes)
	if err != nil {
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
		if err := b.reserve(ctx, f, reservations, w); err != nil {
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
		if err := reservations.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			return fmt.Errorf("deleting Reservations: %w", err)
		}
	}
	return nil
}

// withReservations sets up so many nodes, and an API server that knows Reservations. It returns a client for these.
func (f *fixture) withReservations(ctx context.Context, nodes int) (dynamic.NamespaceableResourceInterface, error) {
	if err := f.setNodes(ctx, nodes); err != nil {
		return nil, err
	}
	if err := f.cluster.Apply(ctx, filepath.Join("manifests", "crds")); err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(f.cluster.RESTConfig())
	if err != nil {
		return nil, fmt.Errorf("making a client for Reservations: %w", err)
	}
	return client.Resource(v1alpha1.ReservationResource), nil
}

// reserve makes the Reservations, as they are when the scheduler has placed them.
func (b reserved) reserve(ctx context.Context, f *fixture, client dynamic.NamespaceableResourceInterface, w workload) error {
	nodes, err := f.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
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
			TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "Reservation"},
			Spec: v1alpha1.ReservationSpec{
				Template: v1.PodTemplateSpec{Spec: pod.Spec},
				Owners:   []v1alpha1.ReservationOwner{{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{ownerLabel: owner}}}},
			},
		}
		one.Name = fmt.Sprintf("reservation-%05d", i)
		f.wrote.Add(2)
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(one)
		if err != nil {
			return fmt.Errorf("encoding a Reservation: %w", err)
		}
		made, err := client.Create(ctx, &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("creating a Reservation: %w", err)
		}
		one.Status = v1alpha1.ReservationStatus{
			Phase: v1alpha1.ReservationAvailable, NodeName: nodes.Items[i%len(nodes.Items)].Name,
			Placements:  []v1alpha1.ReservationPlacement{{NodeName: nodes.Items[i%len(nodes.Items)].Name, Allocatable: request}},
			Allocatable: request,
		}
		status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&one.Status)
		if err != nil {
			return fmt.Errorf("encoding the status of a Reservation: %w", err)
		}
		made.Object["status"] = status
		if _, err := client.UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("placing a Reservation: %w", err)
		}
		return nil
	})
}

// ownerLabel is on pods that have a Reservation each.
const ownerLabel = "benchmark.lockstep.dev/owner"
