package fairshare

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/lockstep-sh/lockstep/pkg/framework/watches"
)

// Devices are in no node's status, and claims in no pod's requests, but queues share devices out like what is there: a
// node has, for the dispatcher, what its ResourceSlices offer, and a pod asks for what its claims do.

// watchDevices watches which devices nodes have, and pods ask for. It returns functions that report whether all were
// seen.
func (d *Dispatcher) watchDevices(factory informers.SharedInformerFactory) ([]cache.InformerSynced, error) {
	resources := factory.Resource().V1()
	var synced []cache.InformerSynced
	for _, watch := range []struct {
		what     string
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{
		{"device classes", resources.DeviceClasses().Informer(), handlerOf(
			func(class *resourceapi.DeviceClass) { d.devicesChanged(d.devices.SetClass(class)) },
			func(class *resourceapi.DeviceClass) { d.devicesChanged(d.devices.DropClass(class.Name)) },
		)},
		{"resource slices", resources.ResourceSlices().Informer(), handlerOf(
			func(slice *resourceapi.ResourceSlice) { d.devicesChanged(false, d.devices.SetSlice(slice)) },
			func(slice *resourceapi.ResourceSlice) { d.devicesChanged(false, d.devices.DropSlice(slice.Name)) },
		)},
		{"resource claims", resources.ResourceClaims().Informer(), claimsHandler(d, d.claims.Set, d.claims.Drop)},
		{"resource claim templates", resources.ResourceClaimTemplates().Informer(),
			claimsHandler(d, d.claims.SetTemplate, d.claims.DropTemplate)},
	} {
		handler, err := d.listen(watch.what, watch.informer, watch.handler)
		if err != nil {
			return nil, fmt.Errorf("watching %s: %w", watch.what, err)
		}
		synced = append(synced, handler.HasSynced)
	}
	return synced, nil
}

// handlerOf returns a handler that calls set with objects that are there, and drop with those that are gone.
func handlerOf[T metav1.Object](set, drop func(T)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { set(object.(T)) },
		UpdateFunc: func(_, object any) { set(object.(T)) },
		DeleteFunc: watches.Deleted(drop),
	}
}

// claimsHandler returns a handler that calls set and drop, and counts the pods again which these return: their claims
// have changed.
func claimsHandler[T metav1.Object](d *Dispatcher, set func(T) map[types.UID]bool,
	drop func(types.NamespacedName) map[types.UID]bool) cache.ResourceEventHandler {
	change := func(pods func() map[types.UID]bool) {
		defer d.lock()()
		if d.usage.ClaimsChanged(pods()) {
			d.changed()
		}
	}
	return handlerOf(
		func(object T) { change(func() map[types.UID]bool { return set(object) }) },
		func(object T) {
			change(func() map[types.UID]bool {
				return drop(types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()})
			})
		},
	)
}

// devicesChanged updates nodes that may have other devices than before, and if classes count as other resources, what
// pods ask for.
func (d *Dispatcher) devicesChanged(renamed bool, nodes []string) {
	d.devices.Unlimited() // evaluates the selectors of shared devices, before the lock is taken
	d.change(func() {
		if renamed {
			d.usage.RecountDevices()
			nodes = nil
			all, _ := d.nodeLister.List(labels.Everything()) // it never fails
			for _, node := range all {
				nodes = append(nodes, node.Name)
			}
		}
		d.usage.SetUnlimited(d.devices.Unlimited())
		for _, name := range nodes {
			// Under the lock, so that it is no older than what was seen last. One that is not there will be counted with its
			// devices.
			if node, err := d.nodeLister.Get(name); err == nil {
				d.setNode(node)
			}
		}
	})
}
