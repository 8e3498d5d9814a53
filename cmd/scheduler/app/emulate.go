package app

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/util/wait"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/features"
	"sigs.k8s.io/yaml"
)

const (
	// featureFlags and emulatedVersion are kube-scheduler's names of a set of flags, and of a flag in it.
	featureFlags    = "feature gate"
	emulatedVersion = "emulated-version"

	// oldestTested is the oldest Kubernetes that is tested.
	oldestTested = "1.35"
	// nativeSince is the oldest that serves the PodGroups which kube-scheduler waits for with the gate GenericWorkload.
	nativeSince = "1.37"

	askTimeout = 5 * time.Second
	askAgain   = time.Second
	// askTold is how many attempts are made between two lines in the log.
	askTold = 10
)

// emulate sets the feature gates. A scheduler uses no more of Kubernetes than its API server has: it would wait for
// ever for kinds that an older one does not serve. So gates follow the version of the API server if that is older than
// the Kubernetes that this program is built from, and --emulated-version is not set. It asks the API server once, or
// until it answers.
func emulate(ctx context.Context, opts *options.Options, untilAnswered bool) error {
	flags := opts.Flags.FlagSet(featureFlags)
	if flags.Changed(emulatedVersion) || opts.WriteConfigTo != "" {
		return opts.ComponentGlobalsRegistry.Set()
	}
	logger := klog.FromContext(ctx)
	info, err := askVersion(ctx, opts, untilAnswered)
	switch {
	case apierrors.IsNotFound(err): // it is no API server, but has what one answered, such as an old dump
		return opts.ComponentGlobalsRegistry.Set()
	case apierrors.IsForbidden(err):
		logger.Info("The version of the API server may not be read; if it is older than this program, set --emulated-version",
			"reason", err)
		return opts.ComponentGlobalsRegistry.Set()
	case err != nil:
		return err
	}
	serves, err := served(info)
	if err != nil {
		return err
	}
	if serves.LessThan(version.MustParse(oldestTested)) {
		logger.Info("Kubernetes is older than the oldest that Lockstep is tested with", "apiServer", info.GitVersion,
			"oldest", oldestTested)
	}
	own := opts.ComponentGlobalsRegistry.EffectiveVersionFor(basecompatibility.DefaultKubeComponent).BinaryVersion()
	if serves.LessThan(version.MajorMinor(own.Major(), own.Minor())) {
		logger.Info("Kubernetes is older than this program: features that came later are off", "apiServer", info.GitVersion,
			"emulatedVersion", serves)
		if err := flags.Set(emulatedVersion, serves.String()); err != nil {
			return fmt.Errorf("setting --%s to the version of the API server: %w", emulatedVersion, err)
		}
	}
	if err := opts.ComponentGlobalsRegistry.Set(); err != nil {
		return fmt.Errorf("setting feature gates for an API server of %s: %w", info.GitVersion, err)
	}
	gate := opts.ComponentGlobalsRegistry.FeatureGateFor(basecompatibility.DefaultKubeComponent)
	if gate != nil && gate.Enabled(features.GenericWorkload) && serves.LessThan(version.MustParse(nativeSince)) {
		return fmt.Errorf("feature gate %s is on, and the API server, %s, has no native PodGroups that this program knows: leave it out below %s",
			features.GenericWorkload, info.GitVersion, nativeSince)
	}
	return nil
}

// served returns the version, major and minor, of what an API server serves: the one that it emulates, if it says so.
func served(info *apiversion.Info) (*version.Version, error) {
	text := info.GitVersion // in which nothing is appended to the minor version, as in 36+
	if info.EmulationMajor != "" && info.EmulationMinor != "" {
		text = info.EmulationMajor + "." + info.EmulationMinor
	}
	v, err := version.ParseGeneric(text)
	if err != nil {
		return nil, fmt.Errorf("reading the version of the API server: %w", err)
	}
	return version.MajorMinor(v.Major(), v.Minor()), nil
}

// askVersion asks the API server for its version: once, or until it answers or ctx is done.
func askVersion(ctx context.Context, opts *options.Options, untilAnswered bool) (info *apiversion.Info, err error) {
	kubeconfig, err := kubeconfigOf(opts)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags(opts.Master, kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.Timeout = askTimeout
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client to ask the API server for its version: %w", err)
	}
	logger, asked := klog.FromContext(ctx), 0
	var failed error
	err = wait.PollUntilContextCancel(ctx, askAgain, true, func(context.Context) (bool, error) {
		info, failed = client.ServerVersion()
		answered := failed == nil || apierrors.IsNotFound(failed) || apierrors.IsForbidden(failed)
		if !answered && untilAnswered && asked%askTold == 0 {
			logger.Error(failed, "The API server does not say which version it has; asking again", "server", config.Host)
		}
		asked++
		return answered || !untilAnswered, nil
	})
	if err = cmp.Or(failed, err); err != nil {
		return nil, fmt.Errorf("asking the API server for its version: %w", err)
	}
	return info, nil
}

// kubeconfigOf returns the path of the kubeconfig that a scheduler will use; empty for the one in the cluster.
func kubeconfigOf(opts *options.Options) (string, error) {
	kubeconfig := opts.Deprecated.Kubeconfig
	if opts.ConfigFile == "" {
		return kubeconfig, nil
	}
	data, err := os.ReadFile(opts.ConfigFile)
	if err != nil {
		return "", fmt.Errorf("reading the configuration: %w", err)
	}
	var config struct {
		ClientConnection struct {
			Kubeconfig string `json:"kubeconfig"`
		} `json:"clientConnection"`
	}
	if err := yaml.Unmarshal(data, &config); err != nil {
		return "", fmt.Errorf("reading the kubeconfig's path from %s: %w", opts.ConfigFile, err)
	}
	if config.ClientConnection.Kubeconfig != "" {
		kubeconfig = config.ClientConnection.Kubeconfig
	}
	return kubeconfig, nil
}
