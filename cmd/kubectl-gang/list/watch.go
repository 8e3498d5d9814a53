package list

import (
	"context"
	"fmt"
	"reflect"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
	"github.com/lockstep-sh/lockstep/pkg/kube/apiobjects"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

const (
	// settle is how long changes gather before they are printed: a gang that starts is many of them.
	settle = 500 * time.Millisecond
	// deleted is the phase of a gang of which nothing is left.
	deleted = "Deleted"
)

// watch prints gangs that are not as they were, until the context is done.
func (r *reader) watch(ctx context.Context, before []view.Gang, print func([]view.Gang) error) error {
	if err := r.settleWatches(ctx); err != nil {
		return err
	}
	// What the cache reports goes to stderr as it is: for example, that a watch is refused.
	objects, err := r.cache()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- objects.Start(ctx) }()
	changes, err := r.follow(ctx, objects)
	if err != nil {
		return ignoreDone(ctx, err)
	}
	if !objects.WaitForCacheSync(ctx) {
		return nil
	}
	for {
		if err := r.refresh(ctx, objects); err != nil {
			return ignoreDone(ctx, err)
		}
		now := r.gangs()
		if changed := differing(before, now); len(changed) > 0 {
			if err := print(changed); err != nil {
				return err
			}
		}
		before = now
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			return ignoreDone(ctx, err)
		case <-changes:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(settle):
		}
	}
}

// settleWatches finds out which kinds are listed and may not be watched; these stay as they are.
func (r *reader) settleWatches(ctx context.Context) error {
	for _, k := range r.kinds() {
		if k.still {
			continue
		}
		err := r.MayWatch(ctx, k.list, k.namespace)
		if k.without != "" && apierrors.IsForbidden(err) {
			r.Note("what changes of these is not seen: %v", err)
			k.still, err = true, nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ignoreDone drops the errors that follow from a context that is done.
func ignoreDone(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// cache returns a cache of what is watched.
func (r *reader) cache() (cache.Cache, error) {
	config, err := r.Config()
	if err != nil {
		return nil, err
	}
	options := cache.Options{
		Scheme: apiobjects.Scheme(), Mapper: access.Mapper(),
		// Which manager wrote a condition of a PodGroup counts; for pods it does not.
		ByObject: map[client.Object]cache.ByObject{&v1.Pod{}: {Transform: cache.TransformStripManagedFields()}},
	}
	if r.namespace != "" {
		options.DefaultNamespaces = map[string]cache.Config{r.namespace: {}}
	}
	c, err := cache.New(config, options)
	if err != nil {
		return nil, fmt.Errorf("setting up the watch: %w", err)
	}
	return c, nil
}

// follow returns a channel that gets an element when something has changed.
func (r *reader) follow(ctx context.Context, objects cache.Cache) (<-chan struct{}, error) {
	changes := make(chan struct{}, 1)
	tell := func() {
		select {
		case changes <- struct{}{}:
		default: // it has one already
		}
	}
	for _, k := range r.kinds() {
		if k.still {
			continue
		}
		informer, err := objects.GetInformer(ctx, k.object)
		if err != nil {
			return nil, fmt.Errorf("watching %T: %w", k.object, err)
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { tell() }, UpdateFunc: func(any, any) { tell() }, DeleteFunc: func(any) { tell() },
		}); err != nil {
			return nil, fmt.Errorf("watching %T: %w", k.object, err)
		}
	}
	return changes, nil
}

// refresh reads the kinds that are watched from the cache.
func (r *reader) refresh(ctx context.Context, objects client.Reader) error {
	for _, k := range r.kinds() {
		if k.still {
			continue
		}
		list := k.list.DeepCopyObject().(client.ObjectList)
		if err := objects.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("reading what is watched: %w", err)
		}
		k.objects = nil
		if err := meta.EachListItem(list, func(object runtime.Object) error { k.keep(object); return nil }); err != nil {
			return fmt.Errorf("reading what is watched: %w", err)
		}
	}
	return nil
}

// differing lists the gangs that are not as they were, and those of which nothing is left. Both lists are in order.
func differing(before, now []view.Gang) []view.Gang {
	was := map[gangspec.Key]view.Gang{}
	for _, g := range before {
		was[g.Key()] = g
	}
	var changed []view.Gang
	for _, g := range now {
		old, known := was[g.Key()]
		if !known || !reflect.DeepEqual(old, g) {
			changed = append(changed, g)
		}
		delete(was, g.Key())
	}
	for _, g := range before {
		if _, gone := was[g.Key()]; gone {
			g.Phase, g.Held, g.Bound, g.Members, g.Running = deleted, 0, 0, 0, 0
			g.Domain, g.Reason, g.Message = nil, "", ""
			changed = append(changed, g)
		}
	}
	return changed
}
