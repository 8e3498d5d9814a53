package schedulersetup

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	frameworkplugins "k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/lockstep-sh/lockstep/pkg/rules/keys"
	"github.com/lockstep-sh/lockstep/plugins/binder"
	"github.com/lockstep-sh/lockstep/plugins/gang"
	"github.com/lockstep-sh/lockstep/plugins/preemption"
	"github.com/lockstep-sh/lockstep/plugins/queuesort"
)

// CheckProfiles returns what is wrong in completed profiles where kube-scheduler would say nothing, or not what to
// write instead. Install checks the rest, when the scheduler is made.
func (s *Set) CheckProfiles(profiles []schedconfig.KubeSchedulerProfile) error {
	var errs field.ErrorList
	for i := range profiles {
		errs = append(errs, s.checkNames(&profiles[i])...)
	}
	if len(errs) > 0 { // the rest would follow from the wrong names
		return fmt.Errorf("checking profiles: %w", errs.ToAggregate())
	}
	for i := range profiles {
		errs = append(errs, checkGangPoints(&profiles[i])...)
		errs = append(errs, s.checkQueueSort(&profiles[i])...)
		errs = append(errs, s.checkArguments(&profiles[i])...)
	}
	if len(errs) > 0 {
		return fmt.Errorf("checking profiles: %w", errs.ToAggregate())
	}
	return nil
}

// checkNames returns the plugins that a profile enables and that do not exist.
func (s *Set) checkNames(profile *schedconfig.KubeSchedulerProfile) (errs field.ErrorList) {
	path := field.NewPath("profiles").Key(profile.SchedulerName).Child("plugins")
	for _, p := range pointsOf(profile.Plugins) {
		for _, plugin := range p.set.Enabled {
			if !s.isKnown(plugin.Name) {
				errs = append(errs, s.unknown(path.Child(p.name), plugin.Name))
			}
		}
	}
	return errs
}

// checkArguments returns the arguments in a profile that no plugin reads. Those of kube-scheduler's own plugins may be
// given where they are not enabled.
func (s *Set) checkArguments(profile *schedconfig.KubeSchedulerProfile) (errs field.ErrorList) {
	path := field.NewPath("profiles").Key(profile.SchedulerName).Child("pluginConfig")
	for i, config := range profile.PluginConfig {
		if !s.isKnown(config.Name) {
			errs = append(errs, s.unknown(path.Index(i).Child("name"), config.Name))
		} else if s.Registry[config.Name] != nil && !isEnabled(profile.Plugins, config.Name) {
			errs = append(errs, field.Invalid(path.Index(i).Child("name"), config.Name,
				"it is not enabled in this profile, and nothing reads its arguments: leave them out, or add "+
					enablingAnew(profile.Plugins, config.Name)))
		}
	}
	return errs
}

// checkGangPoints returns an error where a profile enables Gang, but not at multiPoint: what else gangs need follows
// only from there.
func checkGangPoints(profile *schedconfig.KubeSchedulerProfile) field.ErrorList {
	p := profile.Plugins
	if at(p.MultiPoint, gang.Name) >= 0 || !isEnabled(p, gang.Name) {
		return nil
	}
	return field.ErrorList{field.Required(
		field.NewPath("profiles").Key(profile.SchedulerName).Child("plugins", "multiPoint"),
		"enable "+gang.Name+" at multiPoint, not point by point: add "+enabling("multiPoint", gang.Name))}
}

// checkQueueSort returns an error where a profile has no queue sort plugin, or several.
func (s *Set) checkQueueSort(profile *schedconfig.KubeSchedulerProfile) field.ErrorList {
	p := profile.Plugins
	var enabled []string
	for _, one := range p.QueueSort.Enabled {
		enabled = append(enabled, one.Name)
	}
	for _, one := range []string{names.PrioritySort, queuesort.Name} {
		if at(p.MultiPoint, one) >= 0 && !mentions(&p.QueueSort, one) {
			enabled = append(enabled, one)
		}
	}
	external := func(one schedconfig.Plugin) bool { return s.external.Has(one.Name) } // it may sort, too
	if len(enabled) == 1 || len(enabled) == 0 && slices.ContainsFunc(p.MultiPoint.Enabled, external) {
		return nil
	}
	keep := names.PrioritySort
	if at(p.MultiPoint, gang.Name) >= 0 || slices.Contains(enabled, queuesort.Name) {
		keep = queuesort.Name
	}
	if len(p.QueueSort.Enabled) == 1 {
		keep = p.QueueSort.Enabled[0].Name
	}
	line := enabling("queueSort", keep)
	if others := slices.DeleteFunc(slices.Clone(enabled), func(one string) bool { return one == keep }); len(others) > 0 {
		line = "queueSort: {enabled: [{name: " + keep + "}], disabled: [{name: " + strings.Join(others, "}, {name: ") + "}]}"
	}
	return field.ErrorList{field.Invalid(
		field.NewPath("profiles").Key(profile.SchedulerName).Child("plugins", "queueSort"), strings.Join(enabled, ", "),
		"exactly one plugin has to sort the queue, the same in all profiles: write "+line)}
}

// enablingAnew returns the line that enables a plugin that a profile does not have.
func enablingAnew(plugins *schedconfig.Plugins, name string) string {
	switch name {
	case binder.Name:
		return "bind: {enabled: [{name: " + name + "}], disabled: [{name: " + names.DefaultBinder + "}]}"
	case preemption.Name:
		return enabling("multiPoint", inOrder(!isEnabled(plugins, gang.Name), gang.Name, name)...)
	}
	return enabling("multiPoint", name)
}

// isKnown reports whether there is a plugin of a name: of this process, or of kube-scheduler.
func (s *Set) isKnown(name string) bool {
	return s.Registry[name] != nil || frameworkplugins.NewInTreeRegistry()[name] != nil
}

// unknown returns the error that there is no plugin of a name, with the nearest that there is.
func (s *Set) unknown(path *field.Path, name string) *field.Error {
	own := slices.Sorted(maps.Keys(s.Registry))
	stock := slices.Sorted(maps.Keys(frameworkplugins.NewInTreeRegistry()))
	if near := keys.Nearest(name, append(own, stock...)); near != "" {
		return field.Invalid(path, name, "there is no such plugin: did you mean "+near+"?")
	}
	return field.Invalid(path, name, "there is no such plugin; beside those of kube-scheduler there are "+
		strings.Join(own, ", "))
}

// isEnabled reports whether a profile enables a plugin at any extension point.
func isEnabled(plugins *schedconfig.Plugins, name string) bool {
	return slices.ContainsFunc(pointsOf(plugins), func(p point) bool { return at(p.set, name) >= 0 })
}

// pointsOf returns all extension points of a profile, multiPoint first.
func pointsOf(p *schedconfig.Plugins) []point {
	return []point{
		{"multiPoint", p.MultiPoint}, {"preEnqueue", p.PreEnqueue}, {"queueSort", p.QueueSort},
		{"preFilter", p.PreFilter}, {"filter", p.Filter}, {"postFilter", p.PostFilter}, {"preScore", p.PreScore},
		{"score", p.Score}, {"reserve", p.Reserve}, {"permit", p.Permit}, {"preBind", p.PreBind}, {"bind", p.Bind},
		{"postBind", p.PostBind}, {"placementGenerate", p.PlacementGenerate}, {"placementScore", p.PlacementScore},
		{"podGroupPostFilter", p.PodGroupPostFilter},
	}
}
