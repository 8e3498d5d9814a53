// Package binder is the BoundedBinder plugin: kube-scheduler's own binder, with a
// bound on the calls in flight.
//
// A scheduler that outruns the API server piles up binding calls until the
// client runs out of streams on its connection and dials a new one per call;
// most of its CPU then goes into TLS handshakes. Bounded, it binds at the rate
// that the API server takes, and the queue stays sorted while pods wait in it
// rather than here.
package binder

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultbinder"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/apis/config/validation"
)

// Name is the name of the plugin in a KubeSchedulerConfiguration.
const Name = "BoundedBinder"

// Binder is the plugin.
type Binder struct {
	fwk.BindPlugin
	slots *Slots
}

var _ fwk.BindPlugin = &Binder{}

// Name returns the name of the plugin.
func (pl *Binder) Name() string { return Name }

// Bind waits for a slot and binds.
func (pl *Binder) Bind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	if err := pl.slots.acquire(ctx); err != nil {
		return fwk.AsStatus(fmt.Errorf("waiting to bind pod %s/%s: %w", pod.Namespace, pod.Name, err))
	}
	defer pl.slots.release()
	return pl.BindPlugin.Bind(ctx, state, pod, node)
}

// New makes the factory of the plugin over slots that all profiles share.
func New(slots *Slots) frameworkruntime.PluginFactory {
	return func(ctx context.Context, object runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		args, ok := object.(*config.BoundedBinderArgs)
		if !ok {
			return nil, fmt.Errorf("reading arguments of %s: want BoundedBinderArgs, got %T", Name, object)
		}
		if err := validation.BoundedBinderArgs(validation.Path(handle.ProfileName(), Name), args).ToAggregate(); err != nil {
			return nil, fmt.Errorf("validating arguments of %s: %w", Name, err)
		}
		slots.resize(int(args.MaxInFlight))
		inner, err := defaultbinder.New(ctx, nil, handle)
		if err != nil {
			return nil, fmt.Errorf("making the binder: %w", err)
		}
		return &Binder{BindPlugin: inner.(fwk.BindPlugin), slots: slots}, nil
	}
}
