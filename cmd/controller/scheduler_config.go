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
	flags := queuestatus.Options{SchedulerNames: o.queueSchedulerNames, Policies: o.queuePolicies, EvictedHold: lockstepconfig.DefaultEvictedHold}
	if o.schedulerConfig == "" {
		return flags, nil
	}
	for _, flag := range []string{"queue-policies", "queue-scheduler-names"} {
		if changed(flag) {
			return flags, fmt.Errorf("checking --%s: --scheduler-config says it already; leave one of them out", flag)
		}
	}
	said, err := fromScheduler(o.schedulerConfig)
	if err != nil {
		return flags, err
	}
	if len(said.SchedulerNames) == 0 {
		return flags, nil // no profile has queues
	}
	return said, nil
}

// fromScheduler reads what a scheduler's configuration says of queues: no names if no profile there has them.
func fromScheduler(file string) (queuestatus.Options, error) {
	var o queuestatus.Options
	cfg, err := readSchedulerConfig(file)
	if err != nil {
		return o, err
	}
	for _, profile := range cfg.Profiles {
		if !has(fairShare, profile.Plugins) {
			continue
		}
		args, err := fairShareArgs(profile)
		if err != nil {
			return o, fmt.Errorf("reading the scheduler's configuration %s: %w", file, err)
		}
		o.SchedulerNames = append(o.SchedulerNames, profile.SchedulerName)
		o.Pools, o.DeviceClasses, o.EvictedHold, o.Policies = args.Pools, args.DeviceClasses, args.EvictedHold.Duration, nil // all profiles say the same, or the scheduler does not start
		for _, policy := range []lockstepconfig.PolicyName{lockstepconfig.PolicyProportion, lockstepconfig.PolicyCapacity} {
			if lockstepconfig.HasPolicy(args.Tiers, policy) {
				o.Policies = append(o.Policies, string(policy))
			}
		}
	}
	return o, nil
}

// natives returns the schedulers whose native PodGroups get their status here: those of the flag if it was given, else
// the profiles with gangs in the scheduler's configuration.
func (o *options) natives(changed func(flag string) bool) ([]string, error) {
	if o.schedulerConfig == "" || changed("native-scheduler-names") {
		return o.nativeSchedulerNames, nil
	}
	cfg, err := readSchedulerConfig(o.schedulerConfig)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, profile := range cfg.Profiles {
		if has(gangPlugin, profile.Plugins) {
			names = append(names, profile.SchedulerName)
		}
	}
	return names, nil
}

func readSchedulerConfig(file string) (*schedconfig.KubeSchedulerConfiguration, error) {
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
		return nil, fmt.Errorf("reading the scheduler's configuration %s: want a KubeSchedulerConfiguration, got %T", file, object)
	}
	return cfg, nil
}

// has reports whether a plugin lets in the pods of a profile.
func has(name string, plugins *schedconfig.Plugins) bool {
	if plugins == nil {
		return false
	}
	in := func(list []schedconfig.Plugin, all bool) bool {
		return slices.ContainsFunc(list, func(p schedconfig.Plugin) bool { return p.Name == name || all && p.Name == "*" })
	}
	return in(plugins.PreEnqueue.Enabled, false) || in(plugins.MultiPoint.Enabled, false) && !in(plugins.PreEnqueue.Disabled, true)
}

func fairShareArgs(profile schedconfig.KubeSchedulerProfile) (*lockstepconfig.FairShareArgs, error) {
	for _, entry := range profile.PluginConfig {
		if args, ok := entry.Args.(*lockstepconfig.FairShareArgs); ok && entry.Name == fairShare {
			return args, validation.FairShareArgs(validation.Path(profile.SchedulerName, fairShare), args).ToAggregate()
		}
	}
	return nil, fmt.Errorf("profile %s has no arguments for %s, not even the default ones", profile.SchedulerName, fairShare)
}
