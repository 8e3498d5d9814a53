// Package app is the command of lockstep-scheduler: kube-scheduler's options,
// set-up and run loop, with Lockstep's plugins registered.
package app

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apiserver/pkg/server"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/configz"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // requests to the API server
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/component-base/term"
	"k8s.io/component-base/version/verflag"
	"k8s.io/klog/v2"
	schedulerapp "k8s.io/kubernetes/cmd/kube-scheduler/app"
	schedoptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/lockstep-sh/lockstep/pkg/schedulersetup"
	"github.com/lockstep-sh/lockstep/pkg/status/decisions"
)

// Name is the name of the binary.
const Name = "lockstep-scheduler"

// Option changes what a command runs.
type Option func(*schedulersetup.Set) error

// WithPlugin adds a plugin of the caller's, for profiles to enable by its name. Beside the
// extension points of kube-scheduler it may implement the Simulate hooks of package whatif and
// the gang extension points of package extensionpoints; these are found without being enabled. It
// fails, when the command runs, if there is a plugin of that name already.
func WithPlugin(name string, factory frameworkruntime.PluginFactory) Option {
	return func(set *schedulersetup.Set) error { return set.Add(name, factory) }
}

// NewSchedulerCommand makes the command.
func NewSchedulerCommand(options ...Option) *cobra.Command {
	opts := schedoptions.NewOptions()
	cmd := &cobra.Command{
		Use: Name,
		Long: `lockstep-scheduler is kube-scheduler with gang scheduling: pods that belong
together are placed, held and started together. It takes all flags of
kube-scheduler. Without --config it serves pods with
spec.schedulerName: lockstep-scheduler.`,
		Args:              cobra.NoArgs,
		SilenceUsage:      true,
		PersistentPreRunE: func(*cobra.Command, []string) error { return opts.ComponentGlobalsRegistry.Set() },
		RunE:              func(cmd *cobra.Command, _ []string) error { return run(cmd, opts, options) },
	}
	sets := opts.Flags
	verflag.AddFlags(sets.FlagSet("global"))
	globalflag.AddGlobalFlags(sets.FlagSet("global"), cmd.Name(), logs.SkipLoggingConfigurationFlags())
	for _, set := range sets.FlagSets {
		cmd.Flags().AddFlagSet(set)
	}
	columns, _, err := term.TerminalSize(cmd.OutOrStdout())
	if err != nil {
		columns = 0 // not a terminal: lines are not wrapped
	}
	cliflag.SetUsageAndHelpFunc(cmd, *sets, columns)
	return cmd
}

func run(cmd *cobra.Command, opts *schedoptions.Options, extensions []Option) error {
	verflag.PrintAndExitIfRequested()
	gate := opts.ComponentGlobalsRegistry.FeatureGateFor(basecompatibility.DefaultKubeComponent)
	if err := logsapi.ValidateAndApply(opts.Logs, gate); err != nil {
		return fmt.Errorf("setting up logging: %w", err)
	}
	cliflag.PrintFlags(cmd.Flags())
	ctx := server.SetupSignalContext()
	missing, err := emulate(ctx, opts, true)
	if err != nil {
		if ctx.Err() != nil {
			return nil // asked to end
		}
		return err
	}
	set := schedulersetup.NewSet()
	for _, extend := range extensions {
		if err := extend(set); err != nil {
			return fmt.Errorf("adding a plugin: %w", err)
		}
	}
	config, sched, err := setup(ctx, opts, missing, set, endWithoutLease(ctx))
	if err != nil {
		return err
	}
	if err := showDecisions(set); err != nil {
		return err
	}
	if mutable, ok := gate.(featuregate.MutableFeatureGate); ok {
		mutable.AddMetrics()
	}
	opts.ComponentGlobalsRegistry.AddMetrics()
	err = schedulerapp.Run(ctx, config, sched)
	if ctx.Err() != nil {
		return nil // asked to end, which kube-scheduler takes for a failure: "finished without leader elect"
	}
	return err
}

// showDecisions makes /configz show, beside the configuration, what was decided last about each
// gang.
func showDecisions(set *schedulersetup.Set) error {
	shown, err := configz.New("decisions.lockstep.dev")
	if err == nil {
		err = shown.Set(decisions.NewList(set.Decisions()))
	}
	if err != nil {
		return fmt.Errorf("showing decisions at /configz: %w", err)
	}
	return nil
}

// endWithoutLease returns a function that ends a process that no longer leads.
func endWithoutLease(ctx context.Context) func(error) {
	return func(err error) {
		klog.FromContext(ctx).Error(err,
			"The lease is lost: ending, so that nothing is bound or evicted beside the next leader")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}
