// Package validation checks the arguments of Lockstep's plugins. It names the
// field and the value, and never repairs.
package validation

import (
	"fmt"
	"math"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apivalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// Path is the field of a KubeSchedulerConfiguration that has the arguments of a
// plugin in a profile.
func Path(profile, plugin string) *field.Path {
	return field.NewPath("profiles").Key(profile).Child("pluginConfig").Key(plugin).Child("args")
}

// GangArgs checks the arguments of the Gang plugin.
func GangArgs(path *field.Path, args *config.GangArgs) field.ErrorList {
	errs := positive(path.Child("defaultWaitTime"), args.DefaultWaitTime)
	errs = append(errs, positive(path.Child("initialBackoff"), args.InitialBackoff)...)
	if args.MaxBackoff.Duration < args.InitialBackoff.Duration {
		errs = append(errs, field.Invalid(path.Child("maxBackoff"), args.MaxBackoff.Duration.String(),
			"must not be below initialBackoff"))
	}
	errs = append(errs, within(path.Child("explanationQPS"), args.ExplanationQPS, 1, 1000)...)
	if class := args.ProvisioningClassName; class != "" {
		for _, message := range apivalidation.IsDNS1123Subdomain(class) {
			errs = append(errs, field.Invalid(path.Child("provisioningClassName"), class,
				"must be empty or the name of a provisioning class: "+message))
		}
	}
	return append(errs, topologyLevels(path.Child("topologyLevels"), args.TopologyLevels)...)
}

// maxTopologyLevels bounds the levels of a topology.
const maxTopologyLevels = 8

func topologyLevels(path *field.Path, levels []config.TopologyLevel) field.ErrorList {
	if len(levels) > maxTopologyLevels {
		return field.ErrorList{field.TooMany(path, len(levels), maxTopologyLevels)}
	}
	var errs field.ErrorList
	called := map[string]bool{}
	for i, level := range levels {
		key := path.Index(i).Child("key")
		for _, message := range apivalidation.IsQualifiedName(level.Key) {
			errs = append(errs, field.Invalid(key, level.Key, "must be a node label key: "+message))
		}
		if called[level.Key] {
			errs = append(errs, field.Duplicate(key, level.Key))
		}
		called[level.Key] = true
		if level.Name == "" || level.Name == level.Key {
			continue
		}
		if called[level.Name] {
			errs = append(errs, field.Duplicate(path.Index(i).Child("name"), level.Name))
		}
		called[level.Name] = true
	}
	return errs
}

// BoundedBinderArgs checks the arguments of the BoundedBinder plugin.
func BoundedBinderArgs(path *field.Path, args *config.BoundedBinderArgs) field.ErrorList {
	return within(path.Child("maxInFlight"), args.MaxInFlight, 1, 10000)
}

// GangPreemptionArgs checks the arguments of the GangPreemption plugin.
func GangPreemptionArgs(path *field.Path, args *config.GangPreemptionArgs) field.ErrorList {
	errs := within(path.Child("minCandidateNodesPercentage"), args.MinCandidateNodesPercentage, 0, 100)
	errs = append(errs, within(path.Child("minCandidateNodesAbsolute"), args.MinCandidateNodesAbsolute, 0,
		math.MaxInt32)...)
	errs = append(errs, within(path.Child("maxCandidateNodesAbsolute"), args.MaxCandidateNodesAbsolute, 0,
		math.MaxInt32)...)
	if most := args.MaxCandidateNodesAbsolute; most > 0 && most < args.MinCandidateNodesAbsolute {
		errs = append(errs, field.Invalid(path.Child("maxCandidateNodesAbsolute"), most,
			"must be 0, for all nodes, or not below minCandidateNodesAbsolute"))
	}
	errs = append(errs, within(path.Child("workers"), args.Workers, 1, 1000)...)
	errs = append(errs, within(path.Child("maxDomains"), args.MaxDomains, 1, 1000)...)
	errs = append(errs, notNegative(path.Child("brokenGrace"), args.BrokenGrace)...)
	errs = append(errs, notNegative(path.Child("minRuntime"), args.MinRuntime)...)
	errs = append(errs, notNegative(path.Child("evictionCooldown"), args.EvictionCooldown)...)
	if cooldown := args.EvictionCooldown.Duration; cooldown > config.MaxEvictionCooldown {
		errs = append(errs, field.Invalid(path.Child("evictionCooldown"), cooldown.String(),
			fmt.Sprintf("must not be more than %s", config.MaxEvictionCooldown)))
	}
	if d := args.SearchTimeout.Duration; d < config.MinSearchTimeout || d > config.MaxSearchTimeout {
		errs = append(errs, field.Invalid(path.Child("searchTimeout"), d.String(),
			fmt.Sprintf("must be in the range %s to %s", config.MinSearchTimeout, config.MaxSearchTimeout)))
	}
	if ways := []string{v1alpha1.EvictByDelete, v1alpha1.EvictBySuspend}; !slices.Contains(ways, args.EvictBy) {
		errs = append(errs, field.NotSupported(path.Child("evictBy"), args.EvictBy, ways))
	}
	return append(errs, within(path.Child("roiThresholdPercent"), args.ROIThresholdPercent, 0, 100)...)
}

// FairShareArgs checks the arguments of the FairShare plugin.
func FairShareArgs(path *field.Path, args *config.FairShareArgs) field.ErrorList {
	errs := within(path.Child("window"), args.Window, 1, 10000)
	errs = append(errs, within(path.Child("maxBypass"), args.MaxBypass, 0, 1000000)...)
	errs = append(errs, positive(path.Child("bypassHold"), args.BypassHold)...)
	if hold := args.EvictedHold.Duration; hold < 0 || hold > config.MaxEvictedHold {
		errs = append(errs, field.Invalid(path.Child("evictedHold"), hold.String(),
			fmt.Sprintf("must be in the range 0s to %s", config.MaxEvictedHold)))
	}
	errs = append(errs, within(path.Child("explanationQPS"), args.ExplanationQPS, 1, 1000)...)
	errs = append(errs, policyTiers(path.Child("tiers"), args.Tiers)...)
	errs = append(errs, deviceClasses(path.Child("deviceClasses"), args.DeviceClasses)...)
	return append(errs, pools(path.Child("pools"), args.Pools)...)
}

func policyTiers(path *field.Path, tiers []config.PolicyTier) field.ErrorList {
	if len(tiers) == 0 {
		return field.ErrorList{field.Required(path, "name the policies, or leave the field out for the default ones")}
	}
	var errs field.ErrorList
	for i, tier := range tiers {
		at := path.Index(i).Child("policies")
		if len(tier.Policies) == 0 {
			errs = append(errs, field.Required(at, "a tier without policies answers nothing; leave it out"))
		}
		seen := map[config.PolicyName]bool{}
		for j, policy := range tier.Policies {
			errs = append(errs, onePolicy(at.Index(j), policy)...)
			if seen[policy.Name] {
				errs = append(errs, field.Duplicate(at.Index(j).Child("name"), policy.Name))
			}
			seen[policy.Name] = true
		}
	}
	return errs
}

func onePolicy(path *field.Path, policy config.Policy) field.ErrorList {
	can := config.CanAnswer(policy.Name)
	if len(can) == 0 {
		return field.ErrorList{field.NotSupported(path.Child("name"), policy.Name, config.PolicyNames())}
	}
	var errs field.ErrorList
	for i, question := range policy.Answers {
		if !slices.Contains(can, question) {
			errs = append(errs, field.NotSupported(path.Child("answers").Index(i), question, can))
		}
	}
	return errs
}

func notNegative(path *field.Path, d metav1.Duration) field.ErrorList {
	if d.Duration >= 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, d.Duration.String(), "must not be negative")}
}

func positive(path *field.Path, d metav1.Duration) field.ErrorList {
	if d.Duration > 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, d.Duration.String(), "must be greater than 0")}
}

func within(path *field.Path, value, least, most int32) field.ErrorList {
	if value < least || value > most {
		return field.ErrorList{field.Invalid(path, value, "must be in the range "+rangeText(least, most))}
	}
	return nil
}

func rangeText(least, most int32) string {
	return fmt.Sprintf("%d to %d", least, most)
}
