package app

import (
	"encoding/json"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1 "k8s.io/kube-scheduler/config/v1"
	schedscheme "k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"sigs.k8s.io/yaml"

	"github.com/lockstep-sh/lockstep/apis/config/validation"
)

// misread names the arguments of plugins in a configuration file that could not be read.
// kube-scheduler's loader stops at the first, and for a value that does not parse, such
// as a duration, it names the plugin but not the field.
func misread(file string) field.ErrorList {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil // the loader has reported it
	}
	var cfg struct {
		Profiles []struct {
			SchedulerName string `json:"schedulerName"`
			PluginConfig  []struct {
				Name string                     `json:"name"`
				Args map[string]json.RawMessage `json:"args"`
			} `json:"pluginConfig"`
		} `json:"profiles"`
	}
	if err := yaml.Unmarshal(data, &cfg); err != nil {
		return nil // as above
	}
	var errs field.ErrorList
	for _, profile := range cfg.Profiles {
		for _, plugin := range profile.PluginConfig {
			path := validation.Path(profile.SchedulerName, plugin.Name)
			for name, value := range plugin.Args {
				if err := readArg(plugin.Name, name, value); err != nil && name != "apiVersion" && name != "kind" {
					errs = append(errs, field.Invalid(path.Child(name), value, err.Error()))
				}
			}
		}
	}
	slices.SortFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Field, b.Field) })
	return errs
}

// readArg reads one argument of a plugin as if it were the only one.
func readArg(plugin, name string, value json.RawMessage) error {
	kind := plugin + "Args"
	data, err := json.Marshal(map[string]any{"apiVersion": configv1.SchemeGroupVersion.String(), "kind": kind,
		name: value})
	if err != nil {
		return err
	}
	gvk := configv1.SchemeGroupVersion.WithKind(kind)
	if !schedscheme.Scheme.Recognizes(gvk) {
		return nil // a plugin without arguments, or not one of Lockstep's
	}
	_, _, err = schedscheme.Codecs.UniversalDecoder().Decode(data, &gvk, nil)
	return err
}
