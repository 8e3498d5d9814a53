package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// placedWithin bounds the wait for one, and placedEvery is the interval of looking.
const placedWithin, placedEvery = time.Minute, 5 * time.Millisecond

func (b placing) run(ctx context.Context, f *fixture, r *report) (err error) {
	if err := f.withReservations(ctx, b.nodes); err != nil {
		return err
	}
	_, s, err := f.startWatched(ctx, ours)
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
		took, err := b.once(ctx, f, fmt.Sprint("rack-", f.turn))
		if err != nil {
			return err
		}
		r.add(t, 0, b.replicas, values{"s-to-available": took.Seconds()})
	}
	return nil
}

// once makes a Reservation, waits until it is held, and deletes it.
func (b placing) once(ctx context.Context, f *fixture, name string) (time.Duration, error) {
	one := &v1alpha1.Reservation{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{v1alpha1.RequiredTopologyAnnotation: localcluster.LabelRack}},
		Spec: v1alpha1.ReservationSpec{
			Replicas: int32(b.replicas),
			Owners:   []v1alpha1.ReservationOwner{{PodGroup: namespace + "/tonight"}},
		},
	}
	gpu := v1.ResourceList{localcluster.ResourceGPU: resource.MustParse("1")}
	one.Spec.Template.Spec.Containers = []v1.Container{{Name: "worker", Resources: v1.ResourceRequirements{Requests: gpu, Limits: gpu}}}
	ctx, cancel := context.WithTimeout(ctx, placedWithin)
	defer cancel()
	f.wrote.Add(2)
	begin := time.Now()
	if err := f.objects.Create(ctx, one); err != nil {
		return 0, fmt.Errorf("creating a Reservation: %w", err)
	}
	for one.Status.Phase != v1alpha1.ReservationAvailable {
		if err := errors.Join(await.Pause(ctx, placedEvery), f.objects.Get(ctx, client.ObjectKeyFromObject(one), one)); err != nil {
			return 0, fmt.Errorf("waiting for a Reservation: %w", err)
		}
	}
	took := time.Since(begin)
	if err := f.objects.Delete(ctx, one); err != nil {
		return 0, fmt.Errorf("deleting a Reservation: %w", err)
	}
	return took, nil
}
