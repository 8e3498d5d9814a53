package fairshare

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/lockstep-sh/lockstep/pkg/framework/watches"
)

// Devices behind extended resources are in no node's status, but queues share them out like what is there: a node has,
// for the dispatcher, what its ResourceSlices offer.

// watchDevices watches which devices nodes have. It returns functions that report whether all were seen.
func (d *Dispatcher) watchDevices(factory informers.SharedInformerFactory) ([]cache.InformerSynced, error) {
	classes, err := d.listen("device classes", factory.Resource().V1().DeviceClasses().Informer(), cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { d.devicesChanged(d.devices.SetClass(object.(*resourceapi.DeviceClass))) },
		UpdateFunc: func(_, object any) { d.devicesChanged(d.devices.SetClass(object.(*resourceapi.DeviceClass))) },
		DeleteFunc: watches.Deleted(func(class *resourceapi.DeviceClass) { d.devicesChanged(d.devices.DropClass(class.Name)) }),
	})
	if err != nil {
		return nil, fmt.Errorf("watching device classes: %w", err)
	}
	slices, err := d.listen("resource slices", factory.Resource().V1().ResourceSlices().Informer(), cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { d.devicesChanged(d.devices.SetSlice(object.(*resourceapi.ResourceSlice))) },
		UpdateFunc: func(_, object any) { d.devicesChanged(d.devices.SetSlice(object.(*resourceapi.ResourceSlice))) },
		DeleteFunc: watches.Deleted(func(slice *resourceapi.ResourceSlice) { d.devicesChanged(d.devices.DropSlice(slice.Name)) }),
	})
	if err != nil {
		return nil, fmt.Errorf("watching resource slices: %w", err)
	}
	return []cache.InformerSynced{classes.HasSynced, slices.HasSynced}, nil
}

// devicesChanged updates nodes that may have other devices than before.
func (d *Dispatcher) devicesChanged(nodes []string) {
	if len(nodes) == 0 {
		return
	}
	d.change(func() {
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
