// Package idle has kube-scheduler itself, standing still, for tests of plugins: all default plugins, the real cache,
// snapshot and queue, over an API server that is a fake. Nothing is scheduled but what a test asks for.
package idle

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/utils/ptr"
)

// Options say what is in a scheduler. The zero value is kube-scheduler as it comes, without anything to schedule.
type Options struct {
	// Name is the name of its only profile. Default: default-scheduler.
	Name string
	// Plugins are enabled at all their extension points, beside the default ones.
	Plugins frameworkruntime.Registry
	// Configure, if set, has the last word on the profile.
	Configure func(*schedconfig.KubeSchedulerProfile)
	// Snapshot is the one of the cycles. Default: an empty one.
	Snapshot *cache.Snapshot
	// Objects are what the API server has.
	Objects []runtime.Object
	// Events gets the text of each event. The code that records one waits for room in it.
	Events chan string
}

// Scheduler is a kube-scheduler that does not run.
type Scheduler struct {
	*scheduler.Scheduler
	// Context is that of the test.
	Context   context.Context
	Framework framework.Framework
	Snapshot  *cache.Snapshot
	Client    *fake.Clientset
	Informers informers.SharedInformerFactory
}

// New makes a scheduler. Its informers do not run before Start.
func New(tb testing.TB, o Options) *Scheduler {
	tb.Helper()
	ctx := Context(tb)
	s := &Scheduler{Context: ctx, Snapshot: o.Snapshot, Client: fake.NewClientset(o.Objects...)}
	if s.Snapshot == nil {
		s.Snapshot = cache.NewEmptySnapshot()
	}
	s.Informers = scheduler.NewInformerFactory(s.Client, 0, nil)
	profile := o.profile(tb)
	var err error
	s.Scheduler, err = scheduler.New(ctx, s.Client, s.Informers, nil,
		func(string) events.EventRecorderLogger { return &events.FakeRecorder{Events: o.Events} },
		scheduler.WithKubeConfig(&rest.Config{}),
		scheduler.WithProfiles(profile),
		scheduler.WithNodeInfoSnapshot(s.Snapshot),
		scheduler.WithFrameworkOutOfTreeRegistry(o.Plugins))
	if err != nil {
		tb.Fatal(err)
	}
	s.Framework = s.Profiles[profile.SchedulerName]
	return s
}

func (o Options) profile(tb testing.TB) schedconfig.KubeSchedulerProfile {
	tb.Helper()
	defaults, err := latest.Default()
	if err != nil {
		tb.Fatal(err)
	}
	p := defaults.Profiles[0]
	if o.Name != "" {
		p.SchedulerName = o.Name
	}
	for name := range o.Plugins {
		p.Plugins.MultiPoint.Enabled = append(p.Plugins.MultiPoint.Enabled, schedconfig.Plugin{Name: name})
	}
	if o.Configure != nil {
		o.Configure(&p)
	}
	return p
}

// Context returns a context that ends with the test, and logs nothing.
func Context(tb testing.TB) context.Context {
	var silent klog.Logger
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), silent))
	tb.Cleanup(cancel)
	return ctx
}

// Start starts the informers, and returns when they have everything, and their handlers have got it, and when what
// happens to pods and nodes from now on reaches them.
func (s *Scheduler) Start() {
	s.Informers.Start(s.Context.Done())
	s.Informers.WaitForCacheSync(s.Context.Done())
	for !s.devicesKnown() || !s.watches("pods") || !s.watches("nodes") {
		time.Sleep(time.Millisecond)
	}
}

// watches reports whether an informer watches a resource: a fake API server tells a new watch nothing of what happened
// since the list.
func (s *Scheduler) watches(resource string) bool {
	return slices.ContainsFunc(s.Client.Actions(), func(action clienttesting.Action) bool { return action.Matches("watch", resource) })
}

// devicesKnown reports whether the tracker of devices has all that informers have. Nothing else reports that.
func (s *Scheduler) devicesKnown() bool {
	api, manager := s.Informers.Resource().V1(), s.Framework.SharedDRAManager()
	claims, err1 := manager.ResourceClaims().List()
	known, err2 := manager.ResourceSlices().ListWithDeviceTaintRules()
	stored, err3 := api.ResourceSlices().Lister().List(labels.Everything())
	classes, err4 := api.DeviceClasses().Lister().List(labels.Everything())
	allocated, err5 := manager.ResourceClaims().ListAllAllocatedDevices()
	if errors.Join(err1, err2, err3, err4, err5) != nil || len(claims) != len(api.ResourceClaims().Informer().GetStore().ListKeys()) || len(known) != len(stored) {
		return false
	}
	for _, claim := range claims {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, device := range claim.Status.Allocation.Devices.Results {
			alone := device.ShareID == nil && !ptr.Deref(device.AdminAccess, false)
			if alone && !allocated.Has(structured.MakeDeviceID(device.Driver, device.Pool, device.Device)) {
				return false
			}
		}
	}
	for _, class := range classes {
		name := v1.ResourceName(resourceapi.ResourceDeviceClassPrefix + class.Name)
		if manager.DeviceClassResolver().GetDeviceClass(name) == nil {
			return false
		}
	}
	return true
}

// Look takes a new snapshot of the cache, as every cycle does at its begin.
func (s *Scheduler) Look(tb testing.TB) {
	tb.Helper()
	if err := s.Cache.UpdateSnapshot(klog.FromContext(s.Context), s.Snapshot); err != nil {
		tb.Fatal(err)
	}
}

// Keep returns a factory that also keeps the plugin which it made.
func Keep[P fwk.Plugin](in *P, factory frameworkruntime.PluginFactory) frameworkruntime.PluginFactory {
	return func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		plugin, err := factory(ctx, args, handle)
		*in, _ = plugin.(P)
		return plugin, err
	}
}

// PodInfo returns the PodInfo of a pod.
func PodInfo(tb testing.TB, pod *v1.Pod) *framework.PodInfo {
	tb.Helper()
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		tb.Fatal(err)
	}
	return info
}
