package scheme

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	schedscheme "k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/apis/config/validation"
)

// load loads a configuration as kube-scheduler does, with a profile that enables
// the plugins and has the given plugin configuration.
func load(t *testing.T, pluginConfig string) (*schedconfig.KubeSchedulerConfiguration, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	text := `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: first
- schedulerName: lockstep-scheduler
  plugins:
    multiPoint:
      enabled: [{name: Gang}, {name: BoundedBinder}, {name: GangPreemption}, {name: FairShare}]
` + pluginConfig
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return options.LoadConfigFromFile(klog.Background(), file)
}

// given writes the arguments of a plugin, one field to a line.
func given(plugin string, fields ...string) string {
	text := fmt.Sprintf("  pluginConfig:\n  - name: %s\n    args:\n", plugin)
	if len(fields) == 0 {
		return text + "      {}\n"
	}
	return text + "      " + strings.Join(fields, "\n      ") + "\n"
}

func argsOf(cfg *schedconfig.KubeSchedulerConfiguration, plugin string) runtime.Object {
	for _, entry := range cfg.Profiles[1].PluginConfig {
		if entry.Name == plugin {
			return entry.Args
		}
	}
	return nil
}

func seconds(n float64) metav1.Duration {
	return metav1.Duration{Duration: time.Duration(n * float64(time.Second))}
}

func gangDefaults() *config.GangArgs {
	return &config.GangArgs{DefaultWaitTime: seconds(600), InitialBackoff: seconds(0.25), MaxBackoff: seconds(1), ExplanationQPS: 10, FillDomains: true}
}

func TestDefaults(t *testing.T) {
	for sentence, c := range map[string]struct {
		pluginConfig string
		gang         *config.GangArgs
		binder       *config.BoundedBinderArgs
	}{
		"without pluginConfig everything is filled in": {
			gang: gangDefaults(), binder: &config.BoundedBinderArgs{MaxInFlight: 48},
		},
		"empty arguments are filled in": {
			pluginConfig: given("Gang"), gang: gangDefaults(), binder: &config.BoundedBinderArgs{MaxInFlight: 48},
		},
		"what is given is kept, the rest filled in": {
			pluginConfig: given("Gang", "maxBackoff: 1m", "explanationQPS: 3"),
			gang:         &config.GangArgs{DefaultWaitTime: seconds(600), InitialBackoff: seconds(0.25), MaxBackoff: seconds(60), ExplanationQPS: 3, FillDomains: true},
			binder:       &config.BoundedBinderArgs{MaxInFlight: 48},
		},
		"everything may be given": {
			pluginConfig: given("Gang", "defaultWaitTime: 1h", "initialBackoff: 1s", "maxBackoff: 1s", "explanationQPS: 1000", "topologyLevels: [{key: block, name: SpineLayer}, {key: rack}]", "fillDomains: false", "provisioningClassName: atomic") + "  - name: BoundedBinder\n    args: {maxInFlight: 1}\n",
			gang: &config.GangArgs{
				DefaultWaitTime: seconds(3600), InitialBackoff: seconds(1), MaxBackoff: seconds(1), ExplanationQPS: 1000,
				TopologyLevels: []config.TopologyLevel{{Key: "block", Name: "SpineLayer"}, {Key: "rack"}}, ProvisioningClassName: "atomic",
			},
			binder: &config.BoundedBinderArgs{MaxInFlight: 1},
		},
		"0 is a value, not a default": {
			pluginConfig: given("Gang", "defaultWaitTime: 0s", "initialBackoff: 0s", "maxBackoff: 0s", "explanationQPS: 0") + "  - name: BoundedBinder\n    args: {maxInFlight: 0}\n",
			gang:         &config.GangArgs{FillDomains: true},
			binder:       &config.BoundedBinderArgs{},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			cfg, err := load(t, c.pluginConfig)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(runtime.Object(c.gang), argsOf(cfg, "Gang")); diff != "" {
				t.Errorf("GangArgs (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(runtime.Object(c.binder), argsOf(cfg, "BoundedBinder")); diff != "" {
				t.Errorf("BoundedBinderArgs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStrictness(t *testing.T) {
	for sentence, c := range map[string]struct {
		pluginConfig string
		want         []string // in the error
	}{
		"a field that does not exist":         {given("Gang", "maxBackof: 1s"), []string{".profiles[1].pluginConfig[0]", "Gang", `unknown field "maxBackof"`}},
		"a field of another plugin":           {given("BoundedBinder", "maxBackoff: 1s"), []string{".profiles[1].pluginConfig[0]", "BoundedBinder", `unknown field "maxBackoff"`}},
		"a field in the wrong case":           {given("Gang", "MaxBackoff: 1s"), []string{"Gang", `unknown field "MaxBackoff"`}},
		"a field that is given twice":         {given("Gang", "maxBackoff: 1s", "maxBackoff: 2s"), []string{`"maxBackoff" already set`}},
		"a duration that is a number":         {given("Gang", "maxBackoff: 5"), []string{".profiles[1].pluginConfig[0]", "Gang", "GangArgs.maxBackoff"}},
		"a duration that is none":             {given("Gang", "maxBackoff: soon"), []string{".profiles[1].pluginConfig[0]", "Gang", `"soon"`}},
		"a number that is a word":             {given("Gang", "explanationQPS: many"), []string{".profiles[1].pluginConfig[0]", "GangArgs.explanationQPS"}},
		"a number that is not whole":          {given("BoundedBinder", "maxInFlight: 1.5"), []string{".profiles[1].pluginConfig[0]", "BoundedBinderArgs.maxInFlight", "1.5"}},
		"a number that is too large":          {given("BoundedBinder", "maxInFlight: 99999999999"), []string{"BoundedBinderArgs.maxInFlight", "99999999999"}},
		"a field that a policy does not have": {given("FairShare", "tiers: [{policies: [{name: drf, answer: [JobOrder]}]}]"), []string{".profiles[1].pluginConfig[0]", `unknown field "tiers[0].policies[0].answer"`}},
		"a field that a pool does not have":   {given("FairShare", "pools: [{name: a, nodeSelector: {}, taints: []}]"), []string{".profiles[1].pluginConfig[0]", `unknown field "pools[0].taints"`}},
		"a class that counts as a list":       {given("FairShare", "deviceClasses: {a: [b]}"), []string{".profiles[1].pluginConfig[0]", "deviceClasses"}},
		"a selector that is a list":           {given("FairShare", "pools: [{name: a, nodeSelector: [a]}]"), []string{".profiles[1].pluginConfig[0]", "pools.nodeSelector"}},
		"arguments of another kind":           {given("Gang", "kind: BinderArgs"), []string{".profiles[1].pluginConfig[0]", "Gang", `"BinderArgs"`}},
		"arguments of another version":        {given("Gang", "apiVersion: kubescheduler.config.k8s.io/v2", "kind: GangArgs"), []string{".profiles[1].pluginConfig[0]", "Gang", "v2"}},
		"arguments that are a list":           {given("Gang", "- maxBackoff"), []string{".profiles[1].pluginConfig[0]", "Gang"}},
		"the second of two plugins, by index": {given("Gang") + "  - name: BoundedBinder\n    args: {maxInflight: 3}\n", []string{".profiles[1].pluginConfig[1]", `unknown field "maxInflight"`}},
	} {
		t.Run(sentence, func(t *testing.T) {
			_, err := load(t, c.pluginConfig)
			if err == nil {
				t.Fatal("it was loaded")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error %q does not say %s", err, want)
				}
			}
		})
	}
}

// TestDeviceClasses: the resources of classes are read as they are written, and there are none by default.
func TestDeviceClasses(t *testing.T) {
	for given, want := range map[string]map[string]v1.ResourceName{
		"": nil,
		given("FairShare", "deviceClasses: {gpu.nvidia.com: nvidia.com/gpu}"): {"gpu.nvidia.com": "nvidia.com/gpu"},
	} {
		cfg, err := load(t, given)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, argsOf(cfg, "FairShare").(*config.FairShareArgs).DeviceClasses); diff != "" {
			t.Errorf("resources of classes (-want +got):\n%s", diff)
		}
	}
}

// TestPools: pools of nodes are read as they are written, and there are none by default.
func TestPools(t *testing.T) {
	pools := []config.Pool{
		{
			Name: "gangs", NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"for": "gangs"}},
			Tolerations: []v1.Toleration{{Key: "gangs", Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoSchedule}},
		},
		{Name: "rest", NodeSelector: &metav1.LabelSelector{}},
	}
	for given, want := range map[string][]config.Pool{
		"": nil,
		given("FairShare", "pools:", "- {name: gangs, nodeSelector: {matchLabels: {for: gangs}}, tolerations: [{key: gangs, operator: Exists, effect: NoSchedule}]}", "- {name: rest, nodeSelector: {}}"): pools,
		given("FairShare", "pools: [{name: a}]"): {{Name: "a"}}, // which the validation refuses
	} {
		cfg, err := load(t, given)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, argsOf(cfg, "FairShare").(*config.FairShareArgs).Pools); diff != "" {
			t.Errorf("pools (-want +got):\n%s", diff)
		}
	}
}

// TestWritten: what kube-scheduler logs, and writes for --write-config-to, can be
// loaded again.
func TestWritten(t *testing.T) {
	cfg, err := load(t, given("Gang", "maxBackoff: 1m"))
	if err != nil {
		t.Fatal(err)
	}
	info, _ := runtime.SerializerInfoForMediaType(schedscheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeYAML)
	text, err := runtime.Encode(schedscheme.Codecs.EncoderForVersion(info.Serializer, configv1.SchemeGroupVersion), cfg)
	if err != nil {
		t.Fatal(err)
	}
	again, _, err := schedscheme.Codecs.UniversalDecoder().Decode(text, nil, nil)
	if err != nil {
		t.Fatalf("loading again: %v\n%s", err, text)
	}
	cfg.APIVersion = "" // the loader adds it
	if diff := cmp.Diff(cfg, again); diff != "" {
		t.Errorf("after writing and loading (-want +got):\n%s", diff)
	}
}

// TestDefaultsAreValid: the defaults are in the bounds that the validation sets.
func TestDefaultsAreValid(t *testing.T) {
	cfg, err := load(t, "")
	if err != nil {
		t.Fatal(err)
	}
	path := validation.Path("p", "Plugin")
	errs := validation.GangArgs(path, argsOf(cfg, "Gang").(*config.GangArgs))
	errs = append(errs, validation.BoundedBinderArgs(path, argsOf(cfg, "BoundedBinder").(*config.BoundedBinderArgs))...)
	errs = append(errs, validation.GangPreemptionArgs(path, argsOf(cfg, "GangPreemption").(*config.GangPreemptionArgs))...)
	errs = append(errs, validation.FairShareArgs(path, argsOf(cfg, "FairShare").(*config.FairShareArgs))...)
	if err := errs.ToAggregate(); err != nil {
		t.Error(err)
	}
}
