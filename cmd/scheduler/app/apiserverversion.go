package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/util/wait"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
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

// emulate sets the feature gates. A scheduler uses no more of Kubernetes than its API server has: it would wait for
// ever for kinds that are not served. So gates follow the version of the API server if that is older than the
// Kubernetes that this program is built from, and --emulated-version is not set. emulate returns the kinds that are not
// served nevertheless. It asks the API server once, or until it answers.
func emulate(ctx context.Context, opts *options.Options, untilAnswered bool) (missing []kind, err error) {
	if opts.WriteConfigTo != "" {
		return nil, opts.ComponentGlobalsRegistry.Set()
	}
	a, err := newAsker(opts, untilAnswered)
	if err != nil {
		return nil, err
	}
	var info *apiversion.Info
	err = a.ask(ctx, "for its version", func() (failed error) {
		info, failed = a.api.ServerVersion()
		return failed
	})
	follows := !opts.Flags.FlagSet(featureFlags).Changed(emulatedVersion)
	switch {
	case apierrors.IsNotFound(err): // it is no API server, but has what one answered, such as an old dump
		return nil, opts.ComponentGlobalsRegistry.Set()
	case apierrors.IsForbidden(err):
		if follows {
			klog.FromContext(ctx).Info("The version of the API server may not be read; if it is older than this program, "+
				"set --emulated-version",
				"reason", err)
		}
		err = opts.ComponentGlobalsRegistry.Set()
	case err == nil && follows:
		err = follow(ctx, opts, info)
	case err == nil:
		err = opts.ComponentGlobalsRegistry.Set()
	}
	if err != nil {
		return nil, err
	}
	on := gatesOf(opts)
	err = a.ask(ctx, "which kinds it serves", func() (failed error) {
		missing, failed = unserved(a.api, on)
		return failed
	})
	if err != nil {
		return nil, err
	}
	return missing, report(ctx, missing, on)
}

// follow sets the feature gates for an API server of a version.
func follow(ctx context.Context, opts *options.Options, info *apiversion.Info) error {
	logger := klog.FromContext(ctx)
	serves, err := served(info)
	if err != nil {
		return err
	}
	untested := serves.LessThan(version.MustParse(oldestTested))
	if untested {
		logger.Info("Kubernetes is older than the oldest that Lockstep is tested with", "apiServer", info.GitVersion,
			"oldest", oldestTested)
	}
	registry := opts.ComponentGlobalsRegistry
	own := registry.EffectiveVersionFor(basecompatibility.DefaultKubeComponent).BinaryVersion()
	older := serves.LessThan(version.MajorMinor(own.Major(), own.Minor()))
	if older {
		err = opts.Flags.FlagSet(featureFlags).Set(emulatedVersion, serves.String())
	}
	if err == nil {
		err = registry.Set()
	}
	if err == nil && untested {
		err = errors.Join(registry.Validate()...)
	}
	switch {
	case err != nil && untested:
		return fmt.Errorf("setting feature gates: Kubernetes %s is too old: %s or newer is needed: %w", serves,
			oldestTested, err)
	case err != nil:
		return fmt.Errorf("setting feature gates for an API server of %s: %w", info.GitVersion, err)
	}
	if older {
		logger.Info("Kubernetes is older than this program: features that came later are off", "apiServer", info.GitVersion,
			"emulatedVersion", serves, "off", strings.Join(off(gatesOf(opts)), ", "))
	}
	return nil
}

func gatesOf(opts *options.Options) featuregate.MutableVersionedFeatureGate {
	gate := opts.ComponentGlobalsRegistry.FeatureGateFor(basecompatibility.DefaultKubeComponent)
	return gate.(featuregate.MutableVersionedFeatureGate)
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

// asker asks an API server.
type asker struct {
	api           discovery.DiscoveryInterface
	host          string
	untilAnswered bool
}

func newAsker(opts *options.Options, untilAnswered bool) (*asker, error) {
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
	return &asker{client, config.Host, untilAnswered}, nil
}

// ask asks a question: once, or until the API server answers or ctx is done. That something is not there, or may not be
// read, is an answer.
func (a *asker) ask(ctx context.Context, what string, question func() error) error {
	logger, asked := klog.FromContext(ctx), 0
	var failed error
	err := wait.PollUntilContextCancel(ctx, askAgain, true, func(context.Context) (bool, error) {
		failed = question()
		answered := failed == nil || apierrors.IsNotFound(failed) || apierrors.IsForbidden(failed)
		if !answered && a.untilAnswered && asked%askTold == 0 {
			message := "The API server does not answer; asking again"
			if apierrors.IsUnauthorized(failed) {
				message = "The API server refuses the credentials; asking again"
			}
			logger.Error(failed, message, "question", what, "server", a.host)
		}
		asked++
		return answered || !a.untilAnswered, nil
	})
	err = cmp.Or(failed, err)
	switch {
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("asking the API server %s: %s refuses the credentials; give others in the kubeconfig: %w", what,
			a.host, err)
	case err != nil:
		return fmt.Errorf("asking the API server %s: %w", what, err)
	}
	return nil
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
