package fairshare

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/apis/config/validation"
	"github.com/lockstep-sh/lockstep/pkg/planning/whatif"
)

// Name is the name of the plugin in a KubeSchedulerConfiguration.
const Name = "FairShare"

// FairShare is the plugin, one for each profile. All share one Dispatcher, which beside these extension points orders
// the jobs of queues (turns.Policy), and says what GangPreemption may reclaim.
type FairShare struct{ dispatcher *Dispatcher }

var (
	_ fwk.PreEnqueuePlugin  = &FairShare{}
	_ fwk.EnqueueExtensions = &FairShare{}
	_ fwk.PreFilterPlugin   = &FairShare{}
	_ fwk.FilterPlugin      = &FairShare{}
	_ fwk.ReservePlugin     = &FairShare{}
)

// Name returns the name of the plugin.
func (pl *FairShare) Name() string { return Name }

// New returns the factory of the plugin.
func New(dispatcher *Dispatcher) frameworkruntime.PluginFactory {
	return func(ctx context.Context, object runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		args, ok := object.(*config.FairShareArgs)
		if !ok {
			return nil, fmt.Errorf("reading arguments of %s: want FairShareArgs, got %T", Name, object)
		}
		path := validation.Path(handle.ProfileName(), Name)
		if err := validation.FairShareArgs(path, args).ToAggregate(); err != nil {
			return nil, fmt.Errorf("validating arguments of %s: %w", Name, err)
		}
		if err := dispatcher.serve(ctx, handle, args); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return &FairShare{dispatcher: dispatcher}, nil
	}
}

// EventsToRegister registers none: the dispatcher activates pods whose turn it is.
func (pl *FairShare) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return nil, nil
}

// PreEnqueue admits pods whose turn it is, members that follow a plan, and pods for which
// others were evicted. It runs under the queue's lock, for every pod that other gates let
// through, and looks at each queue in which a job waits.
func (pl *FairShare) PreEnqueue(_ context.Context, pod *v1.Pod) *fwk.Status {
	if why := pl.dispatcher.offer(pod); why != "" {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, why)
	}
	return nil
}

// PreFilter refuses pods for which others of their queue, or under the same ceiling, have to
// make way first, so that PostFilter looks for victims. In a what-if it does not refuse them: there
// the question is whether enough of the others are gone. Its message changes only with the limit:
// it is written into the condition of the pod.
func (pl *FairShare) PreFilter(_ context.Context, state fwk.CycleState, pod *v1.Pod,
	_ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	asked := whatif.IsSimulated(state)
	c := pl.dispatcher.limits(pod, asked)
	switch {
	case c == nil:
		return nil, fwk.NewStatus(fwk.Skip)
	case asked, len(c.bounds) == 0:
		state.Write(limitsKey, c)
		return nil, nil
	default:
		return nil, fwk.NewStatus(fwk.Unschedulable, c.why())
	}
}

// PreFilterExtensions returns none: no node matters to a queue.
func (pl *FairShare) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Reserve counts the pod as running.
func (pl *FairShare) Reserve(_ context.Context, _ fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	pl.dispatcher.reserve(pod, node)
	return nil
}

// Unreserve counts the pod as waiting.
func (pl *FairShare) Unreserve(ctx context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) {
	pl.dispatcher.unreserve(klog.FromContext(ctx), pod)
}
