package autoscaling

import (
	"context"
	"errors"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"golang.org/x/time/rate"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/kube/leadership"
	"github.com/lockstep-sh/lockstep/pkg/kube/workloop"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
)

const (
	// settle is how long a gang has to wait for its topology before nodes are requested, and how long it has to wait for
	// something else, or for nothing, before the request is taken back.
	settle = 10 * time.Second
	// lookAgain is how often a gang with a request is checked: its members may have changed by then.
	lookAgain = 30 * time.Second
	// retryFirst and retryMost are the pauses after an API call that failed.
	retryFirst, retryMost = time.Second, time.Minute
	// writesPerSecond bounds the calls that write.
	writesPerSecond = 20
)

// Options are what a Requester needs.
type Options struct {
	// SchedulerName is the profile of the gangs; ClassName the provisioning class.
	SchedulerName, ClassName string
	Client                   kubernetes.Interface
	Requests                 dynamic.Interface
	Recorder                 events.EventRecorder
	Clock                    clock.WithTicker
	// Leading is given once this process schedules.
	Leading leadership.Signal
	// Explain returns why a gang waits, with everything considered; false where there is no such gang.
	Explain func(gangspec.Key) (gangstate.Explanation, bool)
}

// Requester requests nodes for the gangs of a profile.
type Requester struct {
	Options
	queue    workqueue.TypedRateLimitingInterface[gangspec.Key]
	informer cache.SharedIndexInformer
	writes   *rate.Limiter
	// phases are those of gangs that want nodes, or for which nodes were requested. Only Run's goroutine uses them.
	phases map[gangspec.Key]phase
}

// phase is what a gang has wanted, nodes or nothing, and since when.
type phase struct {
	wants bool
	since time.Time
	// told is the note of the last event.
	told string
	// withdrawing is the name of the request that is being withdrawn: it may have lost its templates.
	withdrawing string
}

// New returns a Requester. It does nothing before Run.
func New(o Options) *Requester {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[gangspec.Key](retryFirst, retryMost)
	return &Requester{
		Options: o, informer: informerOf(o.Requests), writes: rate.NewLimiter(writesPerSecond,
			writesPerSecond), phases: map[gangspec.Key]phase{},
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
			workqueue.TypedRateLimitingQueueConfig[gangspec.Key]{Clock: o.Clock}),
	}
}

// Note is called when the explanation of a gang may have changed.
func (r *Requester) Note(key gangspec.Key) { r.queue.Add(key) }

// Run works from when this process schedules until the context ends.
func (r *Requester) Run(ctx context.Context) {
	defer r.queue.ShutDown()
	if !r.Leading.Wait(ctx) {
		return
	}
	if err := r.watch(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to watch ProvisioningRequests; none are created")
		return
	}
	workloop.Run(ctx, r.queue, r.sync, "Failed to see to the ProvisioningRequest of a gang; trying again")
}

// sync brings the request of a gang in line with what the gang wants now.
func (r *Requester) sync(ctx context.Context, key gangspec.Key) error {
	made, err := r.made(key)
	if err != nil {
		return err
	}
	e, known := r.Explain(key)
	p, seen := r.phases[key]
	// A gang with a request from before this process began wants nodes until something else is known.
	wants := wantsNodes(e, known, p.wants || !seen && len(made) > 0)
	if !seen && !wants && len(made) == 0 && len(consumers(e)) == 0 {
		return nil // nothing was ever requested
	}
	now := r.Clock.Now()
	if !seen || p.wants != wants {
		p = phase{wants: wants, since: now, withdrawing: p.withdrawing}
		r.phases[key] = p
	}
	if left := settle - now.Sub(p.since); left > 0 {
		r.queue.AddAfter(key, left)
		return nil
	}
	if wants {
		r.queue.AddAfter(key, lookAgain)
		if e.Topology == "" {
			return nil // there is no explanation at the moment
		}
		return r.ask(ctx, e, made)
	}
	if err := errors.Join(r.release(ctx, consumers(e)), r.withdraw(ctx, key, made, "")); err != nil {
		return err
	}
	delete(r.phases, key)
	return nil
}

// wantsNodes reports whether a gang waits for its topology alone, and no other request was made for it. While there is
// no explanation, it is as it was before: the gang is about to be tried, or to start.
func wantsNodes(e gangstate.Explanation, known, before bool) bool {
	switch {
	case !known, e.Running, len(e.Pending) == 0, slices.ContainsFunc(e.Pending, consumesAnother(e.Gang)):
		return false
	case e.Reason == "":
		return before
	}
	return e.Reason == v1alpha1.ReasonUnschedulable && e.Topology != ""
}

// consumers returns the waiting members whose annotation names a request that was made here.
func consumers(e gangstate.Explanation) (pods []*v1.Pod) {
	for _, pod := range e.Pending {
		if IsNameOf(e.Gang, pod.Annotations[ConsumeAnnotation]) {
			pods = append(pods, pod)
		}
	}
	return pods
}

// consumesAnother returns a function that reports whether the annotation of a gang's member names a request that was
// not made here.
func consumesAnother(key gangspec.Key) func(*v1.Pod) bool {
	return func(pod *v1.Pod) bool {
		name, ok := pod.Annotations[ConsumeAnnotation]
		return ok && !IsNameOf(key, name)
	}
}
