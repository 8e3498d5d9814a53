package reservepods

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
)

// namesakes is an informer that distinguishes objects of one name. When a watch was cut, an object that was deleted
// meanwhile and made again comes as one update; kube-scheduler ends itself where that moves a pod off its node, as one
// of a StatefulSet would. Here handlers get a deletion of the one, and an addition of the other.
type namesakes struct{ cache.SharedIndexInformer }

var _ cache.SharedIndexInformer = namesakes{}

// AddEventHandler implements cache.SharedInformer.
func (n namesakes) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return n.SharedIndexInformer.AddEventHandler(splitByUID{handler})
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer.
func (n namesakes) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler,
	period time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return n.SharedIndexInformer.AddEventHandlerWithResyncPeriod(splitByUID{handler}, period)
}

// AddEventHandlerWithOptions implements cache.SharedInformer.
func (n namesakes) AddEventHandlerWithOptions(handler cache.ResourceEventHandler,
	options cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return n.SharedIndexInformer.AddEventHandlerWithOptions(splitByUID{handler}, options)
}

// splitByUID is a handler that gets the events of objects of one name apart.
type splitByUID struct{ cache.ResourceEventHandler }

// OnUpdate implements cache.ResourceEventHandler.
func (a splitByUID) OnUpdate(before, after any) {
	old, err := meta.Accessor(before)
	now, also := meta.Accessor(after)
	if err == nil && also == nil && old.GetUID() != now.GetUID() {
		a.OnDelete(before)
		a.OnAdd(after, false)
		return
	}
	a.ResourceEventHandler.OnUpdate(before, after)
}
