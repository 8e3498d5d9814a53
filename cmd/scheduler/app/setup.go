package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	schedulerconfig "k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/scheduler"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"

	"github.com/lockstep-sh/lockstep/cmd/scheduler/lease"
	"github.com/lockstep-sh/lockstep/pkg/reservations/reservepods"
	lockstep "github.com/lockstep-sh/lockstep/pkg/schedulersetup"
)

// setup makes the scheduler that the options describe, with Lockstep's plugins. There are no objects of the missing
// kinds. lost is called when its lease is lost, and ends the process.
func setup(ctx context.Context, opts *options.Options, missing []kind, set *lockstep.Set,
	lost func(error)) (*schedulerconfig.CompletedConfig, *scheduler.Scheduler, error) {
	if err := useDefaults(func() string { return opts.Deprecated.Kubeconfig }); err != nil {
		return nil, nil, err
	}
	clients := func(config *schedulerconfig.Config) error { return guard(ctx, config, opts, lost) }
	config, sched, err := build(ctx, opts, missing, set, clients)
	if err != nil {
		if errs := misread(opts.ConfigFile); len(errs) > 0 {
			err = errors.Join(errs.ToAggregate(), err)
		}
		return nil, nil, fmt.Errorf("setting up the scheduler: %w", err)
	}
	if err := set.Install(ctx, sched); err != nil {
		return nil, nil, fmt.Errorf("setting up the scheduler: %w", err)
	}
	return config, sched, nil
}

// build does what kube-scheduler's own Setup does, step by step, except between the second and the third: clients
// decides what the clients that the scheduler gets may write, and they know reserve pods. Setup makes configuration,
// clients and scheduler in one go, and plugins begin to use the clients while it runs, so nothing can be changed from
// outside.
func build(ctx context.Context, opts *options.Options, missing []kind, set *lockstep.Set,
	clients func(*schedulerconfig.Config) error,
	more ...scheduler.Option) (*schedulerconfig.CompletedConfig, *scheduler.Scheduler, error) {
	defaults, err := latest.Default()
	if err != nil {
		return nil, nil, err
	}
	opts.ComponentConfig = defaults
	if errs := opts.Validate(); len(errs) > 0 {
		return nil, nil, utilerrors.NewAggregate(errs)
	}
	config, err := opts.Config(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := clients(config); err != nil {
		return nil, nil, err
	}
	config.Client = reservepods.Client(config.Client, set.ReservePods())
	config.InformerFactory = informerFactory(config.Client, opts, set.ReservePods())
	empty(config.InformerFactory, missing)
	lockstep.Complete(config.ComponentConfig.Profiles)
	if err := set.CheckProfiles(config.ComponentConfig.Profiles); err != nil {
		return nil, nil, err
	}
	completed := config.Complete()
	var profiles []schedconfig.KubeSchedulerProfile
	sched, err := scheduler.New(ctx,
		completed.Client,
		completed.InformerFactory,
		completed.DynInformerFactory,
		func(name string) events.EventRecorderLogger {
			return reservepods.Recorder(completed.EventBroadcaster.NewRecorder(name))
		},
		append(more,
			scheduler.WithComponentConfigVersion(completed.ComponentConfig.APIVersion),
			scheduler.WithKubeConfig(completed.KubeConfig),
			scheduler.WithProfiles(completed.ComponentConfig.Profiles...),
			scheduler.WithPercentageOfNodesToScore(completed.ComponentConfig.PercentageOfNodesToScore),
			scheduler.WithFrameworkOutOfTreeRegistry(set.Registry),
			scheduler.WithPodMaxBackoffSeconds(completed.ComponentConfig.PodMaxBackoffSeconds),
			scheduler.WithPodInitialBackoffSeconds(completed.ComponentConfig.PodInitialBackoffSeconds),
			scheduler.WithPodMaxInUnschedulablePodsDuration(completed.PodMaxInUnschedulablePodsDuration),
			scheduler.WithExtenders(completed.ComponentConfig.Extenders...),
			scheduler.WithParallelism(completed.ComponentConfig.Parallelism),
			scheduler.WithBuildFrameworkCapturer(func(profile schedconfig.KubeSchedulerProfile) {
				profiles = append(profiles, profile)
			}))...,
	)
	if err != nil {
		return nil, nil, err
	}
	if err := options.LogOrWriteConfig(klog.FromContext(ctx), opts.WriteConfigTo, &completed.ComponentConfig,
		profiles); err != nil {
		return nil, nil, err
	}
	return &completed, sched, nil
}

// standBy makes the scheduler's clients write nothing, ever.
func standBy(config *schedulerconfig.Config) error {
	config.LeaderElection = nil
	config.KubeConfig = lease.New("none: this process only looks", func(error) {}).Guard(config.KubeConfig)
	return useKubeConfig(config, "standby")
}

// guard makes the scheduler's clients write only while the process holds its lease. The clients of leader election and
// of events stay as they are. Without leader election there is no lease, and nothing to guard.
func guard(ctx context.Context, config *schedulerconfig.Config, opts *options.Options, lost func(error)) error {
	if config.LeaderElection == nil {
		return nil
	}
	held := lease.New(config.LeaderElection.Lock.Describe(), lost)
	config.LeaderElection.Lock = held.Lock(config.LeaderElection.Lock)
	config.KubeConfig = held.Guard(config.KubeConfig)
	go held.Watch(ctx)
	return useKubeConfig(config, "scheduler")
}

// useKubeConfig makes the scheduler's client anew, by what KubeConfig has become. The user agent ends with who writes.
func useKubeConfig(config *schedulerconfig.Config, who string) (err error) {
	if config.Client, err = kubernetes.NewForConfig(restclient.AddUserAgent(config.KubeConfig, who)); err != nil {
		return fmt.Errorf("making the scheduler's client: %w", err)
	}
	return nil
}

// informerFactory returns the informer factory of kube-scheduler, with reserve pods among the pods.
func informerFactory(client kubernetes.Interface, opts *options.Options,
	store *reservepods.Store) informers.SharedInformerFactory {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithInformerName(opts.InformerName))
	factory.InformerFor(&v1.Pod{}, func(client kubernetes.Interface, _ time.Duration) cache.SharedIndexInformer {
		return reservepods.NewInformer(store, client, opts.InformerName)
	})
	return factory
}

// startInformers starts the informers of a scheduler that kube-scheduler's own Run does not start, and returns when
// their handlers have got all that there is.
func startInformers(ctx context.Context, config *schedulerconfig.CompletedConfig, sched *scheduler.Scheduler) error {
	config.InformerFactory.Start(ctx.Done())
	config.InformerFactory.WaitForCacheSync(ctx.Done())
	if config.DynInformerFactory != nil {
		config.DynInformerFactory.Start(ctx.Done())
		config.DynInformerFactory.WaitForCacheSync(ctx.Done())
	}
	// kube-scheduler looks ten times a second; a user who waits for an answer notices.
	for {
		look, cancel := context.WithTimeout(ctx, handlersPoll)
		err := sched.WaitForHandlersSync(look)
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("waiting for what is in the cluster: %w", err)
		}
	}
}

// handlersPoll is the interval of looking whether handlers have got all.
const handlersPoll = 10 * time.Millisecond
