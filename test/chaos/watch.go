package main

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/lockstep-sh/lockstep/test/chaos/invariant"
	"github.com/lockstep-sh/lockstep/test/observe"
)

// watchAll begins to watch all that the checker judges by, and returns when all of it was seen once.
func (o *observer) watchAll(ctx, watching context.Context, client kubernetes.Interface, dynamic dynamic.Interface) error {
	follow(watching, o, observe.Follower[*v1.Pod]{
		From: observe.Core(client, "pods", metav1.NamespaceAll, fields.Everything()), See: o.seePod, SeeAll: o.podsListed,
	})
	follow(watching, o, observe.Follower[*v1.Node]{
		From: observe.Core(client, "nodes", metav1.NamespaceAll, fields.Everything()),
		See: func(before, after *v1.Node) {
			if after == nil {
				o.observe(invariant.NodeGone{Name: before.Name})
				return
			}
			o.observe(invariant.NodeSeen{Node: after})
		},
		SeeAll: func(all []*v1.Node) { o.observe(invariant.NodesListed{Nodes: all}) },
	})
	follow(watching, o, observe.Follower[*v1.Event]{
		From: observe.Core(client, "events", metav1.NamespaceAll, fields.OneTermEqualSelector("reason", "Preempted")),
		See: func(_, after *v1.Event) {
			if after != nil {
				o.observe(invariant.Told{Event: after})
			}
		},
	})
	follow(watching, o, observe.Follower[*unstructured.Unstructured]{
		From: observe.Dynamic(dynamic.Resource(observe.PodGroups)),
		See: func(before, after *unstructured.Unstructured) {
			if after == nil {
				o.observe(invariant.GroupGone{Key: groupOf(before).Key})
				return
			}
			o.observe(invariant.GroupSeen{Group: groupOf(after)})
		},
		SeeAll: func(list []*unstructured.Unstructured) {
			all := invariant.GroupsListed{}
			for _, group := range list {
				all.Groups = append(all.Groups, groupOf(group))
			}
			o.observe(all)
		},
	})
	if err := o.Wait(ctx, func() bool { return o.unseen == 0 }); err != nil {
		return fmt.Errorf("waiting for the first lists: %w", err)
	}
	return nil
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
