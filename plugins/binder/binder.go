// Package binder is the BoundedBinder plugin: kube-scheduler's own binder, with a
// bound on the calls in flight.
//
// A scheduler that outruns the API server piles up binding calls until the
// client runs out of streams on its connection and dials a new one per call;
// most of its CPU then goes into TLS handshakes. Bounded, it binds at the rate
// that the API server takes, and the queue stays sorted while pods wait in it
// rather than here.
//
// A binding whose answer is lost is neither a success nor a failure. Bind returns
// only once it is known which: until then the scheduler accounts for the pod on its
// node, so nothing else is put there.
package binder

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/apis/config/validation"
	"github.com/lockstep-sh/lockstep/pkg/framework/binding"
)

// Name is the name of the plugin in a KubeSchedulerConfiguration.
const Name = "BoundedBinder"

// Binder is the plugin.
type Binder struct {
	slots  *Slots
	client kubernetes.Interface
	// bind sends a Binding.
	bind func(context.Context, *v1.Binding) error
	// patience returns the pauses between looks at a pod.
	patience func() wait.Backoff
}

var _ fwk.BindPlugin = &Binder{}

// Name returns the name of the plugin.
func (pl *Binder) Name() string { return Name }

// Bind waits for a slot and binds. It returns once the pod is certainly bound or certainly not.
func (pl *Binder) Bind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	status, sent := pl.send(ctx, state, pod, node)
	if !sent || status.IsSuccess() {
		return status
	}
	return pl.settle(ctx, state, pod, node, status)
}

// send sends a Binding, and reports whether it did. The slot is held for the call
// only: a pod that waits to learn what became of its binding takes no slot from others.
func (pl *Binder) send(ctx context.Context, state fwk.CycleState, pod *v1.Pod,
	node string) (status *fwk.Status, sent bool) {
	if err := pl.slots.acquire(ctx); err != nil {
		return fwk.AsStatus(fmt.Errorf("waiting to bind pod %s/%s: %w", pod.Namespace, pod.Name, err)), false
	}
	defer pl.slots.release()
	return fwk.AsStatus(pl.bind(ctx, &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
			Annotations: binding.Annotations(state)},
		Target: v1.ObjectReference{Kind: "Node", Name: node},
	})), true
}

// bindAsStock sends a Binding as kube-scheduler's binder does.
func bindAsStock(handle fwk.Handle) func(context.Context, *v1.Binding) error {
	return func(ctx context.Context, b *v1.Binding) error {
		if calls := handle.APICacher(); calls != nil { // SchedulerAsyncAPICalls
			done, err := calls.BindPod(b)
			if err != nil {
				return err
			}
			return calls.WaitOnFinish(ctx, done)
		}
		return util.BindPod(ctx, handle.ClientSet(), b)
	}
}

// New returns the factory of the plugin over slots that all profiles share.
func New(slots *Slots) frameworkruntime.PluginFactory {
	return func(_ context.Context, object runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		args := &config.BoundedBinderArgs{MaxInFlight: config.DefaultMaxInFlight} // of a profile that does not name it
		if object != nil {
			var ok bool
			if args, ok = object.(*config.BoundedBinderArgs); !ok {
				return nil, fmt.Errorf("reading arguments of %s: want BoundedBinderArgs, got %T", Name, object)
			}
		}
		if err := validation.BoundedBinderArgs(validation.Path(handle.ProfileName(), Name), args).ToAggregate(); err != nil {
			return nil, fmt.Errorf("validating arguments of %s: %w", Name, err)
		}
		slots.resize(int(args.MaxInFlight))
		registerMetrics()
		return &Binder{slots: slots, client: handle.ClientSet(), bind: bindAsStock(handle), patience: readBackoff}, nil
	}
}
