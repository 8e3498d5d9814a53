package app

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/klog/v2"
	schedulerconfig "k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"

	lockstep "github.com/lockstep-sh/lockstep/pkg/schedulersetup"
)

// Standby is a scheduler that follows a cluster and never schedules, nor writes anything: a replica that never becomes
// leader. It can be asked what would be, with all plugins of its profiles.
type Standby struct {
	*scheduler.Scheduler
	Set      *lockstep.Set
	snapshot *cache.Snapshot
	config   *schedulerconfig.CompletedConfig
	once     sync.Once
	failed   error
}

// NewStandby makes one. configFile is the scheduler's, or empty for the embedded configuration; kubeconfig is that of
// the caller, or empty for the one in the cluster. The cluster is read when Look is called first.
func NewStandby(ctx context.Context, configFile, kubeconfig string) (*Standby, error) {
	opts, missing, err := quietOptions(ctx, configFile, kubeconfig)
	if err != nil {
		return nil, err
	}
	s := &Standby{Set: lockstep.NewSet(), snapshot: cache.NewEmptySnapshot()}
	s.config, s.Scheduler, err = build(ctx, opts, missing, s.Set, standBy, scheduler.WithNodeInfoSnapshot(s.snapshot))
	if err != nil {
		return nil, fmt.Errorf("setting up a scheduler that only looks: %w", err)
	}
	if err := s.Set.Install(ctx, s.Scheduler); err != nil {
		return nil, fmt.Errorf("setting up a scheduler that only looks: %w", err)
	}
	return s, nil
}

// Look makes the snapshot the cluster as it is now. The first time it waits until all is known that is stored.
func (s *Standby) Look(ctx context.Context) error {
	s.once.Do(func() { s.failed = s.follow(ctx) })
	if s.failed != nil {
		return s.failed
	}
	return s.Cache.UpdateSnapshot(klog.FromContext(ctx), s.snapshot)
}

func (s *Standby) follow(ctx context.Context) error {
	if err := startInformers(ctx, s.config, s.Scheduler); err != nil {
		return err
	}
	if ok, err := s.Set.Follow(ctx, s.Scheduler); err != nil {
		return err
	} else if !ok {
		return fmt.Errorf("waiting for what is in the cluster: %w", ctx.Err())
	}
	return nil
}

// quietOptions returns the options of a scheduler that serves nothing, and the kinds that the API server does not
// serve.
func quietOptions(ctx context.Context, configFile, kubeconfig string) (*options.Options, []kind, error) {
	opts := options.NewOptions()
	opts.ConfigFile, opts.Deprecated.Kubeconfig = configFile, kubeconfig
	opts.SecureServing, opts.Authentication, opts.Authorization = nil, nil, nil
	missing, err := emulate(ctx, opts, false)
	return opts, missing, errors.Join(err, useDefaults(func() string { return kubeconfig }))
}
