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
	"sigs.k8s.io/yaml"
)

const (
	// featureFlags and emulatedVersion are kube-scheduler's names of a set of flags, and of a flag in it.
	featureFlags    = "feature gate"
	emulatedVersion = "emulated-version"

	// oldestTested is the oldest Kubernetes that is tested.
	oldestTested = "1.35"

	askTimeout = 5 * time.Second
	askAgain   = time.Second
	// askTold is how many attempts are made between two lines in the log.
	askTold = 10
)

// emulate sets the feature gates. A scheduler uses no more of Kubernetes than its API server has: it would wait for ever
// for kinds that an older one does not serve. So gates follow the version of the API server if that is older than the
// Kubernetes that this program is built from, and --emulated-version is not set. It waits until the API server answers.
func emulate(ctx context.Context, opts *options.Options) error {
	flags := opts.Flags.FlagSet(featureFlags)
	if flags.Changed(emulatedVersion) || opts.WriteConfigTo != "" {
		return opts.ComponentGlobalsRegistry.Set()
	}
	info, err := askVersion(ctx, opts)
	if apierrors.IsNotFound(err) {
		return opts.ComponentGlobalsRegistry.Set() // it is no API server, but has what one answered, such as an old dump
	}
	if err != nil {
		return err
	}
	serves, err := served(info)
	if err != nil {
		return err
	}
	logger := klog.FromContext(ctx)
	if serves.LessThan(version.MustParse(oldestTested)) {
		logger.Info("Kubernetes is older than the oldest that Lockstep is tested with", "apiServer", info.GitVersion, "oldest", oldestTested)
	}
	own := opts.ComponentGlobalsRegistry.EffectiveVersionFor(basecompatibility.DefaultKubeComponent).BinaryVersion()
	if serves.LessThan(own) {
		logger.Info("Kubernetes is older than this program: features that came later are off", "apiServer", info.GitVersion, "emulatedVersion", serves)
		if err := flags.Set(emulatedVersion, serves.String()); err != nil {
			return fmt.Errorf("setting --%s to the version of the API server: %w", emulatedVersion, err)
		}
	}
	return opts.ComponentGlobalsRegistry.Set()
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

// askVersion asks the API server for its version, until it answers or ctx is done.
func askVersion(ctx context.Context, opts *options.Options) (info *apiversion.Info, err error) {
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
		if failed != nil && !apierrors.IsNotFound(failed) && asked%askTold == 0 {
			logger.Error(failed, "The API server does not say which version it has; asking again", "server", config.Host)
		}
		asked++
		return failed == nil || apierrors.IsNotFound(failed), nil
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
