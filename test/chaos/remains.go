package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/test/chaos/invariant"
	"github.com/lockstep-sh/lockstep/test/harness/observe"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// ourResources are those of the objects that our components write to.
var ourResources = []schema.GroupVersionResource{
	v1alpha1.QueueResource, v1alpha1.ReservationResource, v1alpha1.PodMigrationResource, v1alpha1.DefragmentationPlanResource, observe.PodGroups,
}

// remains returns what is left when everything was deleted, as soon as that is nothing or after a while.
func (s *stage) remains(ctx context.Context) (invariant.Remains, error) {
	for deadline := time.Now().Add(gaugesWithin); ; {
		found, err := s.listRemains(ctx)
		if err == nil && !found.Any() || time.Now().After(deadline) {
			return found, err
		}
		if err := await.Pause(ctx, tickEvery); err != nil {
			return found, fmt.Errorf("waiting until nothing is left: %w", err)
		}
	}
}

func (s *stage) listRemains(ctx context.Context) (found invariant.Remains, err error) {
	for _, resource := range ourResources {
		list, err := s.dynamic.Resource(resource).List(ctx, metav1.ListOptions{})
		if err != nil {
			return found, fmt.Errorf("listing %s: %w", resource.Resource, err)
		}
		for i := range list.Items {
			u := &list.Items[i]
			found.Objects = append(found.Objects, invariant.Remaining{
				Object: fmt.Sprintf("%s %s/%s", u.GetKind(), u.GetNamespace(), u.GetName()), Finalizers: u.GetFinalizers(),
			})
			if resource != v1alpha1.QueueResource {
				continue
			}
			var q v1alpha1.Queue
			read(u, &q)
			found.Queues = append(found.Queues, invariant.QueueUse{Name: q.Name, Allocated: q.Status.Allocated, Requested: q.Status.Requested})
		}
	}
	return found, nil
}
