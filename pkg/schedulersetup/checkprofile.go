package schedulersetup

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/lockstep-sh/lockstep/plugins/fairshare"
	"github.com/lockstep-sh/lockstep/plugins/gang"
	"github.com/lockstep-sh/lockstep/plugins/heldcapacity"
	"github.com/lockstep-sh/lockstep/plugins/preemption"
	"github.com/lockstep-sh/lockstep/plugins/reservation"
)

// check returns what makes a profile one in which the plugins would do harm: a gang that is
// not held until it is complete, evictions for places that nothing keeps, or promises that the
// profile does not keep itself. Each error has the line of the profile's plugins that puts it right.
func check(profile framework.Framework) field.ErrorList {
	path := field.NewPath("profiles").Key(profile.ProfileName()).Child("plugins")
	enabled := profile.ListPlugins()
	points := []point{
		{"preEnqueue", enabled.PreEnqueue}, {"preFilter", enabled.PreFilter}, {"filter", enabled.Filter},
		{"postFilter", enabled.PostFilter},
		{"reserve", enabled.Reserve}, {"permit", enabled.Permit}, {"bind", enabled.Bind}, {"postBind", enabled.PostBind},
	}
	some := slices.ContainsFunc(points, func(p point) bool { return at(p.set, gang.Name) >= 0 })
	var errs field.ErrorList
	for _, p := range points {
		if some && at(p.set, gang.Name) < 0 {
			errs = append(errs, field.Required(path.Child(p.name),
				gang.Name+" has to be enabled here too: add "+enabling(p.name, gang.Name)))
		}
	}
	switch own := at(enabled.PostFilter, preemption.Name); {
	case own >= 0 && !some:
		errs = append(errs, field.Required(path.Child("postFilter"),
			preemption.Name+" needs "+gang.Name+": add "+enabling("multiPoint", gang.Name)))
	case own >= 0 && at(enabled.PostFilter, gang.Name) > own:
		errs = append(errs, misplaced(path, "postFilter", preemption.Name))
	}
	if own := at(enabled.PreEnqueue, fairshare.Name); own >= 0 && at(enabled.PreEnqueue, gang.Name) > own {
		errs = append(errs, misplaced(path, "preEnqueue", fairshare.Name))
	}
	if promises(profile) && !keeps(profile) {
		errs = append(errs, field.Required(path, heldcapacity.Name+" is disabled, and without it pods take what is promised "+
			"to gangs: disable it nowhere, or add "+enabling("filter", heldcapacity.Name)+" and "+
			enabling("preFilter", inOrder(some, gang.Name, heldcapacity.Name)...)))
	}
	if own := at(enabled.PreFilter, heldcapacity.Name); own >= 0 && at(enabled.PreFilter, gang.Name) > own {
		errs = append(errs, misplaced(path, "preFilter", heldcapacity.Name))
	}
	if binds := enabled.Bind; at(enabled.Reserve, reservation.Name) >= 0 {
		before := slices.IndexFunc(binds.Enabled, func(p schedconfig.Plugin) bool { return p.Name != gang.Name })
		if own := at(binds, reservation.Name); own < 0 || own != before {
			errs = append(errs, field.Invalid(path.Child("bind"), reservation.Name,
				"it has to be enabled here too, before every binder; of plugins only "+gang.Name+" comes before it: begin with "+
					enabling("bind", inOrder(some, gang.Name, reservation.Name)...)))
		}
	}
	return errs
}

// misplaced returns the error that a plugin comes before Gang.
func misplaced(plugins *field.Path, point, name string) *field.Error {
	return field.Invalid(plugins.Child(point), name,
		gang.Name+" has to come before it: write "+enabling(point, gang.Name, name))
}

// enabling returns the line of a profile's plugins that enables some at an extension point, in this order.
func enabling(point string, names ...string) string {
	return point + ": {enabled: [{name: " + strings.Join(names, "}, {name: ") + "}]}"
}

// inOrder returns both names, or the second alone.
func inOrder(both bool, before, name string) []string {
	if both {
		return []string{before, name}
	}
	return []string{name}
}

// promises reports whether plugins of a profile count on capacity that is held.
func promises(profile framework.Framework) bool {
	enabled := profile.ListPlugins()
	return at(enabled.Filter, gang.Name) >= 0 || at(enabled.PostFilter, preemption.Name) >= 0 ||
		at(enabled.PreEnqueue, fairshare.Name) >= 0
}

// keeps reports whether pods of a profile are kept out of what is held for others.
func keeps(profile framework.Framework) bool {
	enabled := profile.ListPlugins()
	return at(enabled.PreFilter, heldcapacity.Name) >= 0 && at(enabled.Filter, heldcapacity.Name) >= 0
}

// warnings returns warnings about what works, but not as users of gangs would want it. promised: some profile of
// the process promises capacity.
func warnings(profile framework.Framework, promised bool) (list []string) {
	enabled := profile.ListPlugins()
	stock, first := at(enabled.PostFilter, names.DefaultPreemption), at(enabled.PostFilter, gang.Name)
	switch {
	case stock >= 0 && at(enabled.PostFilter, preemption.Name) >= 0:
		list = append(list,
			"DefaultPreemption is enabled beside GangPreemption: pods outside gangs preempt by its rules, which know no gangs")
	case stock >= 0 && stock < first:
		list = append(list, "DefaultPreemption comes before Gang: it may evict for a single member of a gang")
	}
	if promised && !promises(profile) && !keeps(profile) {
		list = append(list,
			heldcapacity.Name+" is disabled: pods of this profile take what other profiles promise to gangs; disable it nowhere")
	}
	return list
}

// point is an extension point, with the plugins that are enabled there.
type point struct {
	name string
	set  schedconfig.PluginSet
}

// at returns the position of a plugin; -1 if it is not there.
func at(set schedconfig.PluginSet, name string) int {
	return slices.IndexFunc(set.Enabled, func(p schedconfig.Plugin) bool { return p.Name == name })
}
