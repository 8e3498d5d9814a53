package main

import (
	"fmt"
	"os"
	"slices"

	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	schedscheme "k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"

	lockstepconfig "github.com/lockstep-sh/lockstep/apis/config"
	_ "github.com/lockstep-sh/lockstep/apis/config/scheme" // the plugins' arguments
	"github.com/lockstep-sh/lockstep/apis/config/validation"
	"github.com/lockstep-sh/lockstep/pkg/controllers/queuestatus"
)

// Names of plugins in a KubeSchedulerConfiguration.
const (
	fairShare  = "FairShare"
	gangPlugin = "Gang"
)

// queues returns the options of the controller of Queues: those of the flags, unless the scheduler's configuration
// says more. changed reports which flags were given.
func (o *options) queues(changed func(flag string) bool) (queuestatus.Options, error) {
	flags := queuestatus.Options{SchedulerNames: o.queueSchedulerNames, Policies: o.queuePolicies,
		EvictedHold: lockstepconfig.DefaultEvictedHold}
	if o.schedulerConfig == "" {
		return flags, nil
	}
	for _, flag := range []string{"queue-policies", "queue-scheduler-names"} {
		if changed(flag) {
			return flags, fmt.Errorf("checking --%s: --scheduler-config says it already; leave one of them out", flag)
		}
	}
	profiles, err := profilesWith(fairShare, o.schedulerConfig)
	if err != nil || len(profiles) == 0 {
		return flags, err
	}
	said := queuestatus.Options{}
	for _, profile := range profiles {
		args, err := fairShareArgs(profile)
		if err != nil {
			return flags, fmt.Errorf("reading the scheduler's configuration %s: %w", o.schedulerConfig, err)
		}
		said.SchedulerNames = append(said.SchedulerNames, profile.SchedulerName)
		// All profiles say the same, or the scheduler does not start.
		said.Pools, said.DeviceClasses = args.Pools, args.DeviceClasses
		said.EvictedHold, said.Policies = args.EvictedHold.Duration, nil
		for _, policy := range []lockstepconfig.PolicyName{lockstepconfig.PolicyProportion, lockstepconfig.PolicyCapacity} {
			if lockstepconfig.HasPolicy(args.Tiers, policy) {
				said.Policies = append(said.Policies, string(policy))
			}
		}
	}
	return said, nil
}

// natives returns the schedulers whose native PodGroups get their status here: those of the flag if it was given, else
// the profiles with gangs in the scheduler's configuration.
func (o *options) natives(changed func(flag string) bool) ([]string, error) {
	if o.schedulerConfig == "" || changed("native-scheduler-names") {
		return o.nativeSchedulerNames, nil
	}
	profiles, err := profilesWith(gangPlugin, o.schedulerConfig)
	var names []string
	for _, profile := range profiles {
		names = append(names, profile.SchedulerName)
	}
	return names, err
}

// profilesWith returns the profiles of a scheduler's configuration whose pods a plugin lets in.
func profilesWith(plugin, file string) ([]schedconfig.KubeSchedulerProfile, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the scheduler's configuration: %w", err)
	}
	object, _, err := schedscheme.Codecs.UniversalDecoder().Decode(data, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("reading the scheduler's configuration %s: %w", file, err)
	}
	cfg, ok := object.(*schedconfig.KubeSchedulerConfiguration)
	if !ok {
		return nil, fmt.Errorf("reading the scheduler's configuration %s: want a KubeSchedulerConfiguration, got %T",
			file, object)
	}
	return slices.DeleteFunc(cfg.Profiles, func(p schedconfig.KubeSchedulerProfile) bool {
		return !has(plugin, p.Plugins)
	}), nil
}

// has reports whether a plugin lets in the pods of a profile.
func has(name string, plugins *schedconfig.Plugins) bool {
	if plugins == nil {
		return false
	}
	in := func(list []schedconfig.Plugin, all bool) bool {
		return slices.ContainsFunc(list, func(p schedconfig.Plugin) bool { return p.Name == name || all && p.Name == "*" })
	}
	return in(plugins.PreEnqueue.Enabled, false) || in(plugins.MultiPoint.Enabled, false) &&
		!in(plugins.PreEnqueue.Disabled, true)
}

func fairShareArgs(profile schedconfig.KubeSchedulerProfile) (*lockstepconfig.FairShareArgs, error) {
	for _, entry := range profile.PluginConfig {
		if args, ok := entry.Args.(*lockstepconfig.FairShareArgs); ok && entry.Name == fairShare {
			return args, validation.FairShareArgs(validation.Path(profile.SchedulerName, fairShare), args).ToAggregate()
		}
	}
	return nil, fmt.Errorf("profile %s has no arguments for %s, not even the default ones",
		profile.SchedulerName, fairShare)
}
