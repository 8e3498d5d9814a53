package app

import (
	_ "embed"
	"fmt"
	"slices"

	configv1 "k8s.io/kube-scheduler/config/v1"
	schedscheme "k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	schedconfigv1 "k8s.io/kubernetes/pkg/scheduler/apis/config/v1"

	_ "github.com/lockstep-sh/lockstep/apis/config/scheme" // the plugins' arguments
)

//go:embed default.yaml
var defaultConfig []byte

// DefaultConfig returns the embedded configuration, as YAML.
func DefaultConfig() []byte { return slices.Clone(defaultConfig) }

// useDefaults makes kube-scheduler's loader start from the embedded configuration where
// there is no --config, and honour --kubeconfig where a configuration names none.
// kubeconfig is called when a configuration is loaded, which is after flags are parsed.
func useDefaults(kubeconfig func() string) error {
	embedded, err := decodeDefault()
	if err != nil {
		return err
	}
	schedscheme.Scheme.AddTypeDefaultingFunc(&configv1.KubeSchedulerConfiguration{}, func(object any) {
		cfg := object.(*configv1.KubeSchedulerConfiguration)
		if cfg.APIVersion == "" && len(cfg.Profiles) == 0 {
			// Not read from a file: kube-scheduler asks for what it runs by default.
			embedded.DeepCopyInto(cfg)
			cfg.TypeMeta.APIVersion, cfg.TypeMeta.Kind = "", ""
		}
		if cfg.ClientConnection.Kubeconfig == "" {
			cfg.ClientConnection.Kubeconfig = kubeconfig()
		}
		schedconfigv1.SetObjectDefaults_KubeSchedulerConfiguration(cfg)
	})
	return nil
}

// decodeDefault reads the embedded configuration strictly, but without defaults, which
// come later.
func decodeDefault() (*configv1.KubeSchedulerConfiguration, error) {
	cfg := &configv1.KubeSchedulerConfiguration{}
	object, _, err := schedscheme.Codecs.UniversalDeserializer().Decode(defaultConfig, nil, cfg)
	if err != nil {
		return nil, fmt.Errorf("reading the embedded configuration: %w", err)
	}
	cfg, ok := object.(*configv1.KubeSchedulerConfiguration)
	if !ok {
		return nil, fmt.Errorf("reading the embedded configuration: got %T", object)
	}
	return cfg, nil
}
