package fairshare

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

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
		{"resource claims", resources.ResourceClaims().Informer(), handlerOf(
			func(claim *resourceapi.ResourceClaim) {
				d.claimsChanged(func() bool { return d.usage.SetClaim(claim) })
			},
			func(claim *resourceapi.ResourceClaim) {
				d.claimsChanged(func() bool { return d.usage.DropClaim(nameOf(claim)) })
			},
		)},
		{"resource claim templates", resources.ResourceClaimTemplates().Informer(), handlerOf(
			func(template *resourceapi.ResourceClaimTemplate) {
				d.claimsChanged(func() bool { return d.usage.SetTemplate(template) })
			},
			func(template *resourceapi.ResourceClaimTemplate) {
				d.claimsChanged(func() bool { return d.usage.DropTemplate(nameOf(template)) })
			},
		)},
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

func nameOf(object metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

// claimsChanged counts the pods again whose claims have changed.
func (d *Dispatcher) claimsChanged(change func() bool) {
	defer d.lock()()
	if change() {
		d.changed()
	}
}

// devicesChanged updates nodes that may have other devices than before, and if classes count as other resources, what
// pods ask for.
func (d *Dispatcher) devicesChanged(renamed bool, nodes []string) {
	d.devices.Unlimited() // evaluates the selectors of shared devices, before the lock is taken
	d.change(func() {
		if renamed {
			d.usage.RecountDevices()
			nodes = d.nodeNames()
		}
		d.usage.SetUnlimited(d.devices.Unlimited())
		for _, name := range nodes {
			node, err := d.nodeLister.Get(name) // under the lock, so that it is no older than what was seen last
			switch {
			case apierrors.IsNotFound(err): // it will be counted with its devices
			case err != nil:
				klog.Background().Error(err, "Failed to look up a node whose devices changed", "node", name)
			default:
				d.setNode(node)
			}
		}
	})
}

func (d *Dispatcher) nodeNames() []string {
	nodes, err := d.nodeLister.List(labels.Everything())
	if err != nil {
		klog.Background().Error(err, "Failed to list the nodes whose devices count as other resources now")
	}
	names := make([]string, len(nodes))
	for i, node := range nodes {
		names[i] = node.Name
	}
	return names
}
