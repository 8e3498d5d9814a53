package main

import (
	"context"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/test/chaos/invariant"
	"github.com/lockstep-sh/lockstep/test/chaos/workload"
)

// badInputs are the objects of bad input. The driver's lock guards them.
type badInputs struct {
	// there were made and are not deleted yet.
	there []*workload.BadInput
	// taken and refused count what the API server said to objects and changes.
	taken, refused int
}

// runBadInputs makes, changes and deletes bad input until ctx ends.
func (d *driver) runBadInputs(ctx context.Context, inputs []workload.BadInput) {
	var all sync.WaitGroup
	for i := range inputs {
		if d.waitFor(ctx, inputs[i].At) != nil {
			break
		}
		all.Go(func() { d.playBadInput(ctx, &inputs[i]) })
	}
	all.Wait()
}

func (d *driver) playBadInput(ctx context.Context, b *workload.BadInput) {
	d.mu.Lock()
	d.bad.there = append(d.bad.there, b)
	d.mu.Unlock()
	d.seen.fault("bad input: %s %s", b.Kind, b.Name)
	d.makeBadInput(ctx, b)
	if d.waitFor(ctx, b.Until) == nil {
		d.deleteBadInput(ctx, b)
	}
}

// makeBadInput makes and changes it, for as long as it is to exist.
func (d *driver) makeBadInput(ctx context.Context, b *workload.BadInput) {
	ctx, cancel := context.WithDeadline(ctx, d.begin.Add(b.Until))
	defer cancel()
	for _, object := range b.Objects {
		d.tryBadInput(ctx, func(ctx context.Context) error {
			u, client := d.untyped(object)
			_, err := client.Create(ctx, u, metav1.CreateOptions{})
			return err
		})
	}
	for _, change := range b.Changes {
		if d.waitFor(ctx, change.At) != nil {
			return
		}
		d.tryBadInput(ctx, func(ctx context.Context) error {
			u, client := d.untyped(b.Objects[change.Object])
			_, err := client.Patch(ctx, u.GetName(), types.MergePatchType, []byte(change.Patch), metav1.PatchOptions{})
			return err
		})
	}
}

// tryBadInput calls until the API server has taken or refused it. Either is well.
func (d *driver) tryBadInput(ctx context.Context, call func(context.Context) error) {
	d.try(ctx, func(ctx context.Context) error {
		err := call(ctx)
		refused := apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err)
		d.mu.Lock()
		defer d.mu.Unlock()
		switch {
		case err == nil:
			d.bad.taken++
		case refused:
			d.bad.refused++
			return nil
		}
		return err
	})
}

// deleteBadInput deletes what the API server has taken of it, the last object first.
func (d *driver) deleteBadInput(ctx context.Context, b *workload.BadInput) {
	for _, p := range d.seen.members(&workload.Gang{Namespace: b.Namespace, Name: b.Name}, func(*v1.Pod) bool { return true }) {
		d.seen.observe(invariant.UserEnds{Pod: p.UID})
	}
	for _, object := range slices.Backward(b.Objects) {
		d.deleteObject(ctx, object, metav1.DeleteOptions{})
	}
	if ctx.Err() != nil {
		return // it may still exist
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bad.there = slices.DeleteFunc(d.bad.there, func(one *workload.BadInput) bool { return one == b })
}

// deleteBadInputs deletes all that is left of bad input.
func (d *driver) deleteBadInputs(ctx context.Context) {
	d.mu.Lock()
	all := slices.Clone(d.bad.there)
	d.mu.Unlock()
	for _, b := range all {
		d.deleteBadInput(ctx, b)
	}
}
