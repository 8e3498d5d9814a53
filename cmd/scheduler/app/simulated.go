package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedulerconfig "k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	lockstep "github.com/lockstep-sh/lockstep/pkg/schedulersetup"
	"github.com/lockstep-sh/lockstep/plugins/fairshare"
	"github.com/lockstep-sh/lockstep/plugins/gang"
)

// Simulated is a scheduler that works against an API server which keeps to itself everything that is written: what the
// scheduler does there is what would be done. It serves nothing, and needs no lease.
type Simulated struct {
	*scheduler.Scheduler
	Set    *lockstep.Set
	config *schedulerconfig.CompletedConfig
	// listed are the pods that had not ended when they were listed first; once listedAll is true it is complete.
	listed    []*v1.Pod
	listedAll func() bool
	// busy is whether a scheduling cycle runs.
	busy atomic.Bool
	// preemptions are why preemption did not help pods that failed: a string by UID.
	preemptions sync.Map
}

// NewSimulated makes one. configFile is the scheduler's, or empty for the embedded configuration; kubeconfig is that of
// the API server. It is called once in a process.
func NewSimulated(ctx context.Context, configFile, kubeconfig string) (*Simulated, error) {
	opts, missing, err := quietOptions(ctx, configFile, kubeconfig)
	if err != nil {
		return nil, err
	}
	s := &Simulated{Set: lockstep.NewSet()}
	s.config, s.Scheduler, err = build(ctx, opts, missing, s.Set, func(config *schedulerconfig.Config) error {
		return unbound(config, kubeconfig)
	})
	if err != nil {
		return nil, fmt.Errorf("setting up a scheduler that simulates: %w", err)
	}
	if err := s.noteListed(); err != nil {
		return nil, fmt.Errorf("setting up a scheduler that simulates: %w", err)
	}
	if err := s.Set.Install(ctx, s.Scheduler); err != nil {
		return nil, fmt.Errorf("setting up a scheduler that simulates: %w", err)
	}
	s.keepPreemptionsApart()
	next := s.NextEntity
	s.NextEntity = func(logger klog.Logger) (framework.QueuedEntityInfo, error) {
		s.busy.Store(false)
		entity, err := next(logger)
		s.busy.Store(err == nil)
		return entity, err
	}
	return s, nil
}

// keepPreemptionsApart makes the scheduler write into the conditions of pods that failed only why they do not fit:
// kube-scheduler adds why preemption does not help.
func (s *Simulated) keepPreemptionsApart() {
	failed := s.FailureHandler
	s.FailureHandler = func(ctx context.Context, profile framework.Framework, pod *framework.QueuedPodInfo,
		result *fwk.Status, nominating *fwk.NominatingInfo, start time.Time) {
		if fit := (*framework.FitError)(nil); errors.As(result.AsError(), &fit) {
			s.preemptions.Store(pod.Pod.UID, fit.Diagnosis.PostFilterMsg)
			fit.Diagnosis.PostFilterMsg = ""
		}
		failed(ctx, profile, pod, result, nominating, start)
	}
}

// Preemption returns why preemption did not help a pod that failed, for users; empty if it was not tried.
func (s *Simulated) Preemption(pod types.UID) string {
	why, _ := s.preemptions.Load(pod)
	text, _ := why.(string)
	return text
}

// Busy reports whether a scheduling cycle runs: a search for victims takes long where there are many.
func (s *Simulated) Busy() bool { return s.busy.Load() }

// unbound makes the scheduler's clients write at any time and at any rate, and only to the server of the kubeconfig,
// whatever the configuration names. They read protobuf where there is any, which costs least, and write JSON.
func unbound(config *schedulerconfig.Config, kubeconfig string) error {
	if config.ComponentConfig.ClientConnection.Kubeconfig != kubeconfig {
		return fmt.Errorf("clientConnection.kubeconfig is %q: leave it empty for a simulation",
			config.ComponentConfig.ClientConnection.Kubeconfig)
	}
	config.LeaderElection = nil
	config.KubeConfig.QPS, config.KubeConfig.Burst = -1, 0
	config.KubeConfig.AcceptContentTypes, config.KubeConfig.ContentType = runtime.ContentTypeProtobuf+","+
		runtime.ContentTypeJSON, runtime.ContentTypeJSON
	return useKubeConfig(config, "simulation")
}

// noteListed makes the scheduler keep which pods it lists first.
func (s *Simulated) noteListed() error {
	pods := s.config.InformerFactory.Core().V1().Pods().Informer()
	handler, err := pods.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, isInInitialList bool) {
			if pod := object.(*v1.Pod); isInInitialList && !objectstate.HasEnded(pod) {
				s.listed = append(s.listed, pod)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	s.listedAll = handler.HasSynced
	return nil
}

// Listed returns the pods that had not ended when the scheduler listed them, as they were; false while it has not.
func (s *Simulated) Listed() ([]*v1.Pod, bool) {
	if !s.listedAll() {
		return nil, false
	}
	return s.listed, true
}

// InHand reports whether the scheduler is at work on one of some pods, or is to try it next, or in a moment. Without
// pods it reports so for all.
func (s *Simulated) InHand(pods sets.Set[types.UID]) bool {
	isOne := func(pod *v1.Pod) bool { return len(pods) == 0 || pods.Has(pod.UID) }
	queue := s.SchedulingQueue
	// In the order in which they move, so that none is missed.
	return slices.ContainsFunc(queue.PodsInBackoffQ(), isOne) || slices.ContainsFunc(queue.PodsInActiveQ(), isOne) ||
		slices.ContainsFunc(queue.InFlightPods(), isOne)
}

// Failed returns the pods that were tried, and are not tried again until something changes that may help them.
func (s *Simulated) Failed() sets.Set[types.UID] {
	failed := sets.New[types.UID]()
	for _, pod := range s.SchedulingQueue.UnschedulablePods() {
		failed.Insert(pod.UID)
	}
	return failed
}

// Refusal returns why a plugin, other than those that report it themselves, keeps a pod out of the scheduling queue;
// empty where none does. kube-scheduler does not report it.
func (s *Simulated) Refusal(ctx context.Context, pod *v1.Pod) string {
	profile := s.Profiles[pod.Spec.SchedulerName]
	if profile == nil {
		return ""
	}
	for _, plugin := range profile.PreEnqueuePlugins() {
		if plugin.Name() == gang.Name || plugin.Name() == fairshare.Name {
			continue
		}
		if status := plugin.PreEnqueue(ctx, pod); !status.IsSuccess() {
			return status.Message()
		}
	}
	return ""
}

// Pod returns a pod, as the scheduler knows it.
func (s *Simulated) Pod(namespace, name string) (*v1.Pod, error) {
	return s.config.InformerFactory.Core().V1().Pods().Lister().Pods(namespace).Get(name)
}

// Run schedules until ctx is done.
func (s *Simulated) Run(ctx context.Context) error {
	s.config.EventBroadcaster.StartRecordingToSink(ctx.Done())
	defer s.config.EventBroadcaster.Shutdown()
	if err := startInformers(ctx, s.config, s.Scheduler); err != nil {
		return err
	}
	s.Scheduler.Run(ctx)
	return nil
}
