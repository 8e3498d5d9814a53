package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// reserved measures the cost of Reservations: pods in no gang without any, beside as much that running pods use, beside
// many that are for others, and as the owners of as many of these. Each Reservation holds one place on one node for pods
// with a label of its own: those for owners hold what a pod asks for, all others a tenth of a CPU.
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
		if err := b.reserve(ctx, f, reservations, w); err != nil {
			return err
		}
		if err := race(2, w); err != nil {
			return err
		}
		if err := race(3, owners); err != nil {
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

// held returns a pod that asks for what Reservation number i holds, where the nodes stand in some order.
func (b reserved) held(i int, w workload, nodes []v1.Node) *v1.Pod {
	pod := w.at(i % b.pods)
	if i >= b.pods {
		pod.Name = fmt.Sprint("nobody-", i)
		pod.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")}}
	}
	pod.Spec.NodeName = nodes[i%len(nodes)].Name
	return pod
}

// occupied is the namespace of pods that use what Reservations would hold: those of the workload are in another.
const occupied = metav1.NamespacePublic

// occupy runs pods in place of the Reservations. The function that it returns ends them.
func (b reserved) occupy(ctx context.Context, f *fixture, w workload) (end func(context.Context) error, err error) {
	nodes, err := f.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	pods := f.client.CoreV1().Pods(occupied)
	err = each(ctx, b.reservations, func(ctx context.Context, i int) error {
		pod := b.held(i, w, nodes.Items)
		pod.Namespace = occupied
		f.wrote.Add(1)
		if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating a running pod: %w", err)
		}
		return nil
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
func (b reserved) reserve(ctx context.Context, f *fixture, client dynamic.NamespaceableResourceInterface, w workload) error {
	nodes, err := f.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	return each(ctx, b.reservations, func(ctx context.Context, i int) error {
		pod := b.held(i, w, nodes.Items)
		owner, node := pod.Name, pod.Spec.NodeName
		pod.Spec.NodeName = ""
		request := pod.Spec.Containers[0].Resources.Requests.DeepCopy()
		maps.Copy(request, pod.Spec.Containers[0].Resources.Limits)
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
			Phase: v1alpha1.ReservationAvailable, NodeName: node,
			Placements:  []v1alpha1.ReservationPlacement{{NodeName: node, Allocatable: request}},
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
