package devicesimulation

import (
	"context"
	"fmt"
	"slices"
	"sync"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	fwk "k8s.io/kube-scheduler/framework"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
)

// Simulator runs DynamicResources to find out what it would allocate. A profile needs one; it is safe for concurrent
// use.
type Simulator struct {
	real   fwk.SharedDRAManager
	plugin *dynamicresources.DynamicResources
	// mu guards manager and stock: the plugin has one manager, while there are many overlays.
	mu      sync.Mutex
	manager *manager
	stock   *stock
}

// manager is the device manager that the plugin sees, with the claims of the calling overlay.
type manager struct {
	fwk.SharedDRAManager
	claims fwk.ResourceClaimTracker
}

func (m *manager) ResourceClaims() fwk.ResourceClaimTracker { return m.claims }

// handle is the profile's, except for the devices. Its informers never run: the plugin indexes pods for queueing hints,
// which are unused here.
type handle struct {
	framework.Framework
	manager *manager
	factory informers.SharedInformerFactory
}

func (h handle) SharedDRAManager() fwk.SharedDRAManager                 { return h.manager }
func (h handle) SharedInformerFactory() informers.SharedInformerFactory { return h.factory }

// New returns the simulator of a profile; nil if the profile does not filter by devices.
func New(ctx context.Context, fw framework.Framework) (*Simulator, error) {
	filters := slices.ContainsFunc(fw.ListPlugins().Filter.Enabled,
		func(p schedconfig.Plugin) bool { return p.Name == names.DynamicResources })
	if !filters || fw.SharedDRAManager() == nil {
		return nil, nil
	}
	args, err := defaultArgs()
	if err != nil {
		return nil, err
	}
	m := &manager{SharedDRAManager: fw.SharedDRAManager(), claims: fw.SharedDRAManager().ResourceClaims()}
	h := handle{Framework: fw, manager: m, factory: informers.NewSharedInformerFactory(fw.ClientSet(), 0)}
	plugin, err := dynamicresources.New(ctx, args, h,
		feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate))
	if err != nil {
		return nil, fmt.Errorf("making %s for what-if questions: %w", names.DynamicResources, err)
	}
	return &Simulator{real: fw.SharedDRAManager(), plugin: plugin.(*dynamicresources.DynamicResources), manager: m,
		stock: newStock(fw.SharedDRAManager())}, nil
}

// defaultArgs returns the arguments of a profile that sets none. They bound how long the plugin may filter and bind,
// which the profile's own instance does.
func defaultArgs() (*schedconfig.DynamicResourcesArgs, error) {
	said, args := &schedulerv1.DynamicResourcesArgs{}, &schedconfig.DynamicResourcesArgs{}
	scheme.Scheme.Default(said)
	if err := scheme.Scheme.Convert(said, args, nil); err != nil {
		return nil, fmt.Errorf("reading default arguments of %s: %w", names.DynamicResources, err)
	}
	return args, nil
}
