package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// placing measures how long a Reservation of many replicas in one rack takes from its creation until its status says
// that all are held.
type placing struct {
	nodes, replicas int
}

func (b placing) name() string {
	return fmt.Sprintf("Placing/nodes=%d/replicas=%d", b.nodes, b.replicas)
}

func (b placing) quick() bool { return false }

// placedWithin bounds the wait for one, and placedEvery is the interval of looking.
const placedWithin, placedEvery = time.Minute, 5 * time.Millisecond

func (b placing) run(ctx context.Context, f *fixture, r *report) (err error) {
	reservations, err := f.withReservations(ctx, b.nodes)
	if err != nil {
		return err
	}
	_, s, err := f.startWatched(ctx, ours, b.name())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	t := r.table(b.name(), []goal{{unit: "s-to-available", atMost: true, bound: 1}}, "scheduler=ours")
	for range f.rounds {
		if err := await.Pause(ctx, settlePause); err != nil {
			return err
		}
		f.turn++
		took, err := b.once(ctx, f, reservations, fmt.Sprint("rack-", f.turn))
		if err != nil {
			return err
		}
		r.add(t, 0, b.replicas, values{"s-to-available": took.Seconds()})
	}
	return nil
}

// once makes a Reservation, waits until it is held, and deletes it.
func (b placing) once(ctx context.Context, f *fixture, client dynamic.NamespaceableResourceInterface, name string) (time.Duration, error) {
	one := &v1alpha1.Reservation{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "Reservation"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{v1alpha1.RequiredTopologyAnnotation: localcluster.LabelRack}},
		Spec: v1alpha1.ReservationSpec{
			Replicas: int32(b.replicas),
			Owners:   []v1alpha1.ReservationOwner{{PodGroup: namespace + "/tonight"}},
		},
	}
	gpu := v1.ResourceList{localcluster.ResourceGPU: resource.MustParse("1")}
	one.Spec.Template.Spec.Containers = []v1.Container{{Name: "worker", Resources: v1.ResourceRequirements{Requests: gpu, Limits: gpu}}}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(one)
	if err != nil {
		return 0, fmt.Errorf("encoding a Reservation: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, placedWithin)
	defer cancel()
	f.wrote.Add(2)
	begin := time.Now()
	if _, err := client.Create(ctx, &unstructured.Unstructured{Object: object}, metav1.CreateOptions{}); err != nil {
		return 0, fmt.Errorf("creating a Reservation: %w", err)
	}
	for {
		now, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return 0, fmt.Errorf("waiting for a Reservation: %w", err)
		}
		if phase, _, _ := unstructured.NestedString(now.Object, "status", "phase"); phase == string(v1alpha1.ReservationAvailable) {
			break
		}
		if err := await.Pause(ctx, placedEvery); err != nil {
			return 0, fmt.Errorf("waiting for a Reservation: %w", err)
		}
	}
	took := time.Since(begin)
	if err := client.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return 0, fmt.Errorf("deleting a Reservation: %w", err)
	}
	return took, nil
}
