package devicesimulation

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// Watch tells what kube-scheduler has processed of an informer of claims or slices. The startup waits until that is
// everything: a device that a claim has must not be allocated to another claim.
type Watch struct {
	name     string
	informer cache.SharedIndexInformer
	// known returns the objects that kube-scheduler knows.
	known func() ([]metav1.Object, error)
}

// Watches returns the watches of the devices that kube-scheduler tracks; nil if it tracks none.
func Watches(manager fwk.SharedDRAManager, factory informers.SharedInformerFactory) []*Watch {
	if manager == nil {
		return nil
	}
	resources := factory.Resource().V1()
	return []*Watch{
		{"allocations of ResourceClaims", resources.ResourceClaims().Informer(),
			func() ([]metav1.Object, error) { return objects(manager.ResourceClaims().List()) }},
		{"devices of ResourceSlices", resources.ResourceSlices().Informer(), func() ([]metav1.Object, error) {
			return objects(manager.ResourceSlices().ListWithDeviceTaintRules())
		}},
	}
}

func objects[T metav1.Object](list []T, err error) ([]metav1.Object, error) {
	all := make([]metav1.Object, len(list))
	for i := range list {
		all[i] = list[i]
	}
	return all, err
}

// Name returns what is watched.
func (w *Watch) Name() string { return w.name }

// Own returns false: the informers are the factory's.
func (w *Watch) Own() (resource schema.GroupVersionResource, selector string, own bool) {
	return schema.GroupVersionResource{}, "", false
}

// Store returns the cache of the informer.
func (w *Watch) Store() cache.Store { return w.informer.GetStore() }

// Synced reports whether the informer has completed its first list.
func (w *Watch) Synced() bool { return w.informer.HasSynced() }

// Handled returns the revisions of the objects that kube-scheduler knows, by UID.
func (w *Watch) Handled() map[string]string {
	all, err := w.known()
	if err != nil { // the caller asks again
		klog.Background().Error(err, "Failed to look up what the scheduler knows", "of", w.name)
	}
	revisions := make(map[string]string, len(all))
	for _, object := range all {
		revisions[string(object.GetUID())] = object.GetResourceVersion()
	}
	return revisions
}

// Forget does nothing: the watch keeps no state.
func (w *Watch) Forget() {}
