// Package extensionpoints has the extension points for whole gangs, and finds the plugins of a profile that implement
// them, or the Simulate hooks of package whatif. Names and meaning of the gang extension points: Volcano's gang-aware
// preemption design, section 2.
//
// Plugins are called on the scheduling goroutine, in the order of the profile's configuration. They see the cluster
// as it is in the running cycle, and change nothing.
//
// kube-scheduler's framework does not expose its plugins, so their factories are wrapped. A plugin whose factory is
// wrapped is found automatically.
package extensionpoints

import (
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// Plugins are the plugins that wrapped factories made, by profile. It is safe for
// concurrent use.
type Plugins struct {
	mu        sync.Mutex
	byProfile map[string][]fwk.Plugin
	// external are those of plugins that are not this project's, by profile.
	external map[string][]fwk.Plugin
}

// New returns an empty collection.
func New() *Plugins {
	return &Plugins{byProfile: map[string][]fwk.Plugin{}, external: map[string][]fwk.Plugin{}}
}

// Watch returns a factory that makes the same plugin, and remembers it.
func (p *Plugins) Watch(factory frameworkruntime.PluginFactory) frameworkruntime.PluginFactory {
	return func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		plugin, err := factory(ctx, args, handle)
		if err != nil {
			return nil, err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.byProfile[handle.ProfileName()] = append(p.byProfile[handle.ProfileName()], plugin)
		return plugin, nil
	}
}

// WatchExternal is Watch for a plugin that is not this project's.
func (p *Plugins) WatchExternal(factory frameworkruntime.PluginFactory) frameworkruntime.PluginFactory {
	return p.Watch(func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		plugin, err := factory(ctx, args, handle)
		if err != nil {
			return nil, err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.external[handle.ProfileName()] = append(p.external[handle.ProfileName()], plugin)
		return plugin, nil
	})
}

// External lists the plugins of a profile that are not this project's. All plugins have to exist already.
func (p *Plugins) External(fw framework.Framework) []fwk.Plugin {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.external[fw.ProfileName()])
}

// Of lists the plugins of a profile that implement T, in the order in which the
// profile's configuration has them. All plugins have to exist already.
func Of[T any](p *Plugins, fw framework.Framework) []T {
	p.mu.Lock()
	made := slices.Clone(p.byProfile[fw.ProfileName()])
	p.mu.Unlock()
	rank := ranks(fw.ListPlugins())
	slices.SortStableFunc(made, func(a, b fwk.Plugin) int { return rank[a.Name()] - rank[b.Name()] })
	var found []T
	for _, plugin := range made {
		if one, ok := plugin.(T); ok {
			found = append(found, one)
		}
	}
	return found
}

// ranks numbers the plugins of a profile in the order in which they first appear.
func ranks(plugins *schedconfig.Plugins) map[string]int {
	rank := map[string]int{}
	for _, set := range []schedconfig.PluginSet{
		plugins.PreEnqueue, plugins.QueueSort, plugins.PreFilter, plugins.Filter, plugins.PostFilter, plugins.PreScore,
		plugins.Score, plugins.Reserve, plugins.Permit, plugins.PreBind, plugins.Bind, plugins.PostBind,
	} {
		for _, plugin := range set.Enabled {
			if _, ok := rank[plugin.Name]; !ok {
				rank[plugin.Name] = len(rank)
			}
		}
	}
	return rank
}
