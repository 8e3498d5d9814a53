// Command lockstep-descheduler is the descheduler of Kubernetes SIGs with the plugin Defragmentation beside its own.
package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/cli"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/descheduler/cmd/descheduler/app"
	"sigs.k8s.io/descheduler/pkg/framework/pluginregistry"

	schedulerapp "github.com/lockstep-sh/lockstep/cmd/scheduler/app"
	"github.com/lockstep-sh/lockstep/pkg/kube/apiobjects"
	"github.com/lockstep-sh/lockstep/plugins/defragmentation"
)

func main() { os.Exit(cli.Run(newCommand())) }

// newCommand returns the descheduler's command. Its own plugins are registered before it runs; ours follow.
func newCommand() *cobra.Command {
	cmd := app.NewDeschedulerCommand(os.Stdout)
	cmd.Use, cmd.Short = "lockstep-descheduler", "The descheduler, with a plugin that joins fragments for gangs that wait"
	cmd.Long = "lockstep-descheduler is the descheduler of Kubernetes SIGs with Lockstep's plugin Defragmentation " +
		"beside its own.\nIt takes all flags and policies of the descheduler."
	var schedulerConfig string
	cmd.Flags().StringVar(&schedulerConfig, "scheduler-config", "",
		"The configuration of lockstep-scheduler, for Defragmentation where its arguments name none. Default: "+
			"the one that lockstep-scheduler has without --config.")
	register, run := cmd.PreRunE, cmd.RunE
	var failed error
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		interval, err := cmd.Flags().GetDuration("descheduling-interval")
		if err != nil {
			return fmt.Errorf("reading --descheduling-interval: %w", err)
		}
		if err := run(cmd, args); err != nil || interval > 0 {
			return err
		}
		return failed // of the only round there was
	}
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if err := register(cmd, args); err != nil {
			return err
		}
		dryRun, err := cmd.Flags().GetBool("dry-run")
		if err != nil {
			return fmt.Errorf("reading --dry-run: %w", err)
		}
		ctrl.SetLogger(klog.Background())
		s := &schedulers{ctx: cmd.Context(), kubeconfig: kubeconfigOf(cmd), config: schedulerConfig,
			by: map[string]*defragmentation.Scheduler{}}
		defragmentation.Register(pluginregistry.PluginRegistry,
			defragmentation.Options{Scheduler: s.of, DryRun: func() bool { return dryRun }, Ended: func(err error) {
				failed = err
			}})
		return nil
	}
	return cmd
}

// kubeconfigOf returns the kubeconfig that the command was given; empty for the one in the cluster.
func kubeconfigOf(cmd *cobra.Command) string {
	for _, flag := range []string{"client-connection-kubeconfig", "kubeconfig"} {
		if f := cmd.Flags().Lookup(flag); f != nil && f.Value.String() != "" {
			return f.Value.String()
		}
	}
	return ""
}

// schedulers are the standby schedulers that follow the cluster, by their configuration. The descheduler makes its
// plugins anew each round; these stay.
type schedulers struct {
	ctx        context.Context
	kubeconfig string
	config     string // for plugins whose arguments name none

	mu sync.Mutex
	by map[string]*defragmentation.Scheduler
}

func (s *schedulers) of(configFile string) (*defragmentation.Scheduler, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	configFile = cmp.Or(configFile, s.config)
	if known := s.by[configFile]; known != nil {
		return known, nil
	}
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	standby, err := schedulerapp.NewStandby(s.ctx, configFile, s.kubeconfig)
	if err != nil {
		return nil, err
	}
	made := &defragmentation.Scheduler{
		Look: standby.Look, Profiles: standby.Profiles, Gangs: standby.Set.Gangs(), Holds: standby.Set.Ledger(),
		Plugins: standby.Set.Extensions(), Client: c,
	}
	s.by[configFile] = made
	return made, nil
}

// client returns a client that reads and writes plans.
func (s *schedulers) client() (client.Client, error) {
	config, err := rest.InClusterConfig()
	if s.kubeconfig != "" {
		config, err = clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	c, err := client.New(config, client.Options{Scheme: apiobjects.Scheme()})
	if err != nil {
		return nil, fmt.Errorf("making a client for plans: %w", err)
	}
	return c, nil
}
