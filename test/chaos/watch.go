package main

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/test/chaos/invariant"
	"github.com/lockstep-sh/lockstep/test/chaos/workload"
	"github.com/lockstep-sh/lockstep/test/harness/observe"
)

// watchAll begins to watch all that the checker judges by, and returns when all of it was seen once.
func (o *observer) watchAll(ctx, watching context.Context, client kubernetes.Interface, dynamic dynamic.Interface, options Options) error {
	core := func(resource string, selector fields.Selector) cache.ListerWatcherWithContext {
		return observe.Core(client, resource, metav1.NamespaceAll, selector)
	}
	custom := func(resource schema.GroupVersionResource) cache.ListerWatcherWithContext {
		return observe.Dynamic(dynamic.Resource(resource))
	}
	follow(watching, o, observe.Follower[*v1.Pod]{From: core("pods", fields.Everything()), See: o.seePod, SeeAll: o.podsListed})
	followKind(watching, o, core("nodes", fields.Everything()),
		func(node *v1.Node) invariant.Observation { return invariant.NodeSeen{Node: node} },
		func(node *v1.Node) invariant.Observation { return invariant.NodeGone{Name: node.Name} })
	follow(watching, o, observe.Follower[*v1.Event]{
		From: core("events", fields.OneTermEqualSelector("reason", "Preempted")),
		See: func(_, after *v1.Event) {
			if after != nil {
				o.observe(invariant.Told{Event: after})
			}
		},
	})
	followKind(watching, o, custom(observe.PodGroups),
		func(u *unstructured.Unstructured) invariant.Observation {
			return invariant.GroupSeen{Group: groupOf(u)}
		},
		func(u *unstructured.Unstructured) invariant.Observation {
			return invariant.GroupGone{Key: groupOf(u).Key}
		})
	if options.holds() {
		followKind(watching, o, custom(v1alpha1.ReservationResource),
			func(u *unstructured.Unstructured) invariant.Observation {
				return invariant.ReservationSeen{Reserved: reservedBy(u)}
			},
			func(u *unstructured.Unstructured) invariant.Observation {
				return invariant.ReservationGone{Reserved: reservedBy(u)}
			})
	}
	if options.Moves {
		follow(watching, o, observe.Follower[*unstructured.Unstructured]{From: custom(v1alpha1.PodMigrationResource), See: o.seeMigration})
		followKind(watching, o, custom(v1alpha1.DefragmentationPlanResource),
			func(u *unstructured.Unstructured) invariant.Observation { return invariant.PlanSeen{Plan: planOf(u)} },
			func(u *unstructured.Unstructured) invariant.Observation { return invariant.PlanGone{UID: u.GetUID()} })
	}
	if err := o.Wait(ctx, func() bool { return o.unseen == 0 }); err != nil {
		return fmt.Errorf("waiting for the first lists: %w", err)
	}
	return nil
}

// followKind follows the objects of one resource, and hands on each that was created or changed, and each that is gone,
// as last seen.
func followKind[T observe.Object](ctx context.Context, o *observer, from cache.ListerWatcherWithContext, seen, gone func(T) invariant.Observation) {
	follow(ctx, o, observe.Follower[T]{From: from, See: func(before, after T) {
		var none T
		if after == none {
			o.observe(gone(before))
			return
		}
		o.observe(seen(after))
	}})
}

// seeMigration takes in a PodMigration that was created, changed or is gone.
func (o *observer) seeMigration(before, after *unstructured.Unstructured) {
	if after == nil {
		o.observe(invariant.MigrationGone{UID: before.GetUID()})
		return
	}
	o.observe(invariant.MigrationSeen{Migration: migrationOf(after)})
	if migrationOf(after).Reserved && (before == nil || !migrationOf(before).Reserved) {
		o.Lock()
		defer o.Unlock()
		o.reached(workload.AtTarget)
	}
}

// read reads an object of a kind that the API server checks.
func read(u *unstructured.Unstructured, into any) {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into); err != nil {
		panic(fmt.Errorf("reading %s %s: %w", u.GetKind(), u.GetName(), err)) // the API server takes no other
	}
}

func migrationOf(u *unstructured.Unstructured) invariant.Migration {
	var m v1alpha1.PodMigration
	read(u, &m)
	out := invariant.Migration{
		Key: m.Namespace + "/" + m.Name, UID: m.UID, Pod: m.Spec.PodUID, Phase: string(m.Status.Phase),
		Reserved: meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.MigrationReserved),
		Evicted:  meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.MigrationEvicted),
	}
	if c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.MigrationComplete); c != nil {
		out.Reason, out.Message = c.Reason, c.Message
	}
	return out
}

func planOf(u *unstructured.Unstructured) invariant.Plan {
	var p v1alpha1.DefragmentationPlan
	read(u, &p)
	out := invariant.Plan{Name: p.Name, UID: p.UID, Phase: string(p.Status.Phase), Moves: len(p.Status.Moves)}
	if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.DefragmentationComplete); c != nil {
		out.Reason, out.Message = c.Reason, c.Message
	}
	return out
}

// reservedBy returns what matters of a Reservation of the driver's, or of one that was made for a
// move.
func reservedBy(u *unstructured.Unstructured) invariant.Reserved {
	var r v1alpha1.Reservation
	read(u, &r)
	out := invariant.Reserved{
		Name: r.Name, UID: r.UID, Version: r.ResourceVersion, Once: *r.Spec.AllocateOnce, Restricted: r.Spec.AllocatePolicy == v1alpha1.AllocateRestricted,
		Namespace: r.Spec.Template.Namespace, Gang: r.Spec.Owners[0].PodGroup, Phase: string(r.Status.Phase), Owners: int(r.Status.OwnerCount),
	}
	if ttl := r.Spec.TTL.Duration; ttl > 0 {
		out.Ends = r.CreationTimestamp.Add(ttl)
	}
	for level, value := range workload.Levels {
		if r.Spec.Template.Spec.PriorityClassName == workload.ClassName(level) {
			out.Priority = value
		}
	}
	owner := &r.Spec.Owners[0]
	if owner.LabelSelector != nil {
		out.Labels = owner.LabelSelector.MatchLabels
	}
	if owner.Controller != nil {
		out.Controller = owner.Controller.UID
	}
	if owner.Object != nil {
		out.Pod = owner.Object.UID
	}
	out.ForMove = r.Labels[v1alpha1.PlanLabel] != "" || r.Labels[v1alpha1.MigrationLabel] != ""
	for _, p := range r.Status.Placements {
		out.Placements = append(out.Placements, invariant.Placement{
			Index: int(p.Index), Node: p.NodeName, Allocatable: p.Allocatable, Allocated: p.Allocated, Spent: p.Spent,
		})
	}
	return out
}

// follow follows the objects of one resource.
func follow[T observe.Object](ctx context.Context, o *observer, f observe.Follower[T]) {
	o.Lock()
	defer o.Unlock()
	o.unseen++
	first := true
	f.Listed = func() {
		o.Lock()
		defer o.Unlock()
		if first {
			first = false
			o.unseen--
			o.Changed()
		}
	}
	go f.Run(ctx)
}

func groupOf(u *unstructured.Unstructured) invariant.Group {
	minimum, _, _ := unstructured.NestedInt64(u.Object, "spec", "minMember")
	return invariant.Group{
		Key: u.GetNamespace() + "/" + u.GetName(), UID: u.GetUID(), Min: int(minimum), Annotations: u.GetAnnotations(), Labels: u.GetLabels(),
	}
}
