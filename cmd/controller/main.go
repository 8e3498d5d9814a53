// Command lockstep-controller keeps the status of PodGroups, Queues and Reservations, and carries out what
// DefragmentationPlans and PodMigrations ask for.
package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/lockstep-sh/lockstep/cmd/controller/gate"
	"github.com/lockstep-sh/lockstep/cmd/controller/page"
	"github.com/lockstep-sh/lockstep/pkg/controllers/defragplan"
	"github.com/lockstep-sh/lockstep/pkg/controllers/jobresume"
	"github.com/lockstep-sh/lockstep/pkg/controllers/ownergroup"
	"github.com/lockstep-sh/lockstep/pkg/controllers/podgroup"
	"github.com/lockstep-sh/lockstep/pkg/controllers/podmigration"
	"github.com/lockstep-sh/lockstep/pkg/controllers/queuestatus"
	"github.com/lockstep-sh/lockstep/pkg/controllers/reservationlifecycle"
	"github.com/lockstep-sh/lockstep/pkg/controllers/workloads"
	"github.com/lockstep-sh/lockstep/pkg/framework/cachetransform"
	"github.com/lockstep-sh/lockstep/pkg/kube/apiobjects"
)

const leaderElectionID = "lockstep-controller"

type options struct {
	leaderElect          bool
	leaderElectNamespace string
	metricsAddress       string
	metricsSecure        bool
	metricsCertDir       string
	healthProbeAddress   string
	pprofAddress         string
	workers              int
	gangsByOwner         bool
	queueSchedulerNames  []string
	nativeSchedulerNames []string
	queuePolicies        []string
	schedulerConfig      string
	keepReservations     time.Duration
	keepPlans            time.Duration
	markNodes            bool
	pageAddress          string
	pageCertDir          string

	logging      *logsapi.LoggingConfiguration
	featureGates featuregate.MutableVersionedFeatureGate
}

func main() {
	os.Exit(cli.Run(newCommand()))
}

func newCommand() *cobra.Command {
	o := &options{logging: logsapi.NewLoggingConfiguration(), featureGates: featuregate.NewFeatureGate()}
	cmd := &cobra.Command{
		Use:     "lockstep-controller",
		Short:   "Keep the status of PodGroups, Queues and Reservations, and carry out DefragmentationPlans",
		Version: version.Get().GitVersion,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			queues, err := o.queues(cmd.Flags().Changed)
			if err != nil {
				return err
			}
			if queues.NativeSchedulerNames, err = o.natives(cmd.Flags().Changed); err != nil {
				return err
			}
			return run(o, queues)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.leaderElect, "leader-elect", false,
		"Work only while holding the lease "+leaderElectionID+". Needed where several replicas run.")
	flags.StringVar(&o.leaderElectNamespace, "leader-elect-namespace", "kube-system", "Namespace of the lease.")
	flags.StringVar(&o.metricsAddress, "metrics-bind-address", ":8443", "Address that serves /metrics. 0 serves none.")
	flags.BoolVar(&o.metricsSecure, "metrics-secure", true,
		"Serve metrics over HTTPS, to whoever the API server lets get /metrics. If false, over HTTP, to everyone.")
	flags.StringVar(&o.metricsCertDir, "metrics-cert-dir", "",
		"Folder with the tls.crt and tls.key of the metrics server. Without, it makes its own.")
	flags.StringVar(&o.healthProbeAddress, "health-probe-bind-address", ":8081",
		"Address that serves /healthz and /readyz. 0 serves neither.")
	flags.StringVar(&o.pprofAddress, "pprof-bind-address", "",
		"Address that serves /debug/pprof, to everyone who reaches it. Without, profiles are not served.")
	flags.IntVar(&o.workers, "workers", 4, "Number of PodGroups and of Reservations that are worked on at a time.")
	flags.BoolVar(&o.gangsByOwner, "gangs-by-owner", true,
		"Make the PodGroups of Jobs, JobSets and LeaderWorkerSets whose pods ask for it by the annotation "+
			"scheduling.lockstep.dev/gang. Pods are watched for that. If false, "+
			"such pods wait until their PodGroup is made by other means.")
	flags.StringSliceVar(&o.queuePolicies, "queue-policies", []string{"proportion", "capacity"},
		"Which of these policies the tiers of the plugin FairShare name: what queues deserve is reckoned by them.")
	flags.StringSliceVar(&o.queueSchedulerNames, "queue-scheduler-names", []string{"lockstep-scheduler"},
		"Schedulers that use queues: the profiles with the plugin FairShare. "+
			"Only their pods are counted in the status of Queues.")
	flags.StringSliceVar(&o.nativeSchedulerNames, "native-scheduler-names", []string{"lockstep-scheduler"},
		"Schedulers whose native PodGroups (scheduling.k8s.io) get their status here, and count as gangs in the status of "+
			"Queues: the profiles with the plugin Gang. With --scheduler-config those there, unless this is given. Empty for "+
			"none: so it has to be where the scheduler runs with the feature gate GenericWorkload, and writes that itself.")
	flags.StringVar(&o.schedulerConfig, "scheduler-config", "",
		"The file that the scheduler has as --config. If any profile there has the plugin FairShare, it says which "+
			"schedulers use queues, by which policies, and what pools of nodes there are; "+
			"--queue-policies and --queue-scheduler-names may not be given then.")
	flags.DurationVar(&o.keepReservations, "reservation-keep-ended", 24*time.Hour,
		"How long Reservations are kept that have succeeded or failed; then they are deleted. 0 keeps them.")
	flags.DurationVar(&o.keepPlans, "plan-keep-ended", 24*time.Hour,
		"How long DefragmentationPlans are kept that have succeeded or failed, with their PodMigrations; "+
			"then they are deleted. 0 keeps them.")
	flags.BoolVar(&o.markNodes, "reservation-mark-nodes", false,
		"Mark nodes on which Reservations hold something, so that cluster-autoscaler and Karpenter do not remove them. "+
			"Needs the role in manifests/rbac/node-marks.yaml. If false, marks from before are removed.")
	flags.StringVar(&o.pageAddress, "page-bind-address", "",
		"Address that serves a web page of gangs, queues and nodes over HTTPS, "+
			"whose data are for whoever the API server lets get /overview. Without, there is none.")
	flags.StringVar(&o.pageCertDir, "page-cert-dir", "",
		"Folder with the tls.crt and tls.key of the page. Without, it makes its own.")
	flags.AddGoFlag(flag.Lookup(config.KubeconfigFlagName))
	if err := logsapi.AddFeatureGates(o.featureGates); err != nil {
		panic(err) // a gate was registered twice
	}
	logsapi.AddFlags(o.logging, flags)
	return cmd
}

func run(o *options, queues queuestatus.Options) error {
	if o.workers < 1 {
		return fmt.Errorf("checking --workers: %d is below 1", o.workers)
	}
	if err := logsapi.ValidateAndApply(o.logging, o.featureGates); err != nil {
		return fmt.Errorf("setting up logs: %w", err)
	}
	logger := klog.Background()
	ctrl.SetLogger(logger)
	ctx := klog.NewContext(ctrl.SetupSignalHandler(), logger)

	kubeconfig, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	// Where bandwidth costs less than CPU, as beside the API server, unpacking lists is a waste.
	kubeconfig.DisableCompression = true
	kubeconfig.Wrap(gathered)
	if err := awaitAPIServer(ctx, kubeconfig); err != nil {
		if ctx.Err() != nil {
			return nil // it is to end
		}
		return err
	}
	mgr, err := ctrl.NewManager(kubeconfig, o.manager())
	if err != nil {
		return fmt.Errorf("creating the manager: %w", err)
	}
	if err := o.addControllers(mgr, queues); err != nil {
		return err
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("adding the health check: %w", err)
	}
	if err := mgr.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("adding the readiness check: %w", err)
	}
	logger.Info("Starting lockstep-controller", "version", version.Get().GitVersion)
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running the manager: %w", err)
	}
	return nil
}

// addControllers adds all controllers to a manager.
func (o *options) addControllers(mgr ctrl.Manager, queues queuestatus.Options) error {
	reservations := reservationlifecycle.Options{Workers: o.workers, KeepEnded: o.keepReservations, MarkNodes: o.markNodes}
	for _, err := range []error{
		podgroup.Setup(mgr, o.workers),
		workloads.Setup(mgr),
		jobresume.Setup(mgr),
		queuestatus.Setup(mgr, queues),
		reservationlifecycle.Setup(mgr, reservations),
		podmigration.Setup(mgr),
		defragplan.Setup(mgr, o.keepPlans),
	} {
		if err != nil {
			return err
		}
	}
	if natives := queues.NativeSchedulerNames; len(natives) > 0 {
		if err := podgroup.SetupNative(mgr, natives, o.workers); err != nil {
			return err
		}
	}
	if o.gangsByOwner {
		if err := ownergroup.Setup(mgr, o.workers); err != nil {
			return err
		}
	}
	if o.pageAddress == "" {
		return nil
	}
	return page.Setup(mgr, o.pageAddress, o.pageCertDir, queues.DeviceClasses)
}

// guarded returns what requests for metrics have to pass.
func guarded(config *rest.Config, httpClient *http.Client) (metricsserver.Filter, error) {
	g, err := gate.New(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("preparing to ask the API server who may read metrics: %w", err)
	}
	return g.Filter, nil
}

func (o *options) manager() ctrl.Options {
	metrics := metricsserver.Options{BindAddress: o.metricsAddress, SecureServing: o.metricsSecure,
		CertDir: o.metricsCertDir}
	if o.metricsSecure {
		metrics.FilterProvider = guarded
	}
	return ctrl.Options{
		Scheme:                        apiobjects.Scheme(),
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              leaderElectionID,
		LeaderElectionNamespace:       o.leaderElectNamespace,
		LeaderElectionReleaseOnCancel: true,
		Metrics:                       metrics,
		HealthProbeBindAddress:        o.healthProbeAddress,
		PprofBindAddress:              o.pprofAddress,
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&v1.Pod{}:       {Transform: cachetransform.Pod},
			&v1.Node{}:      {Transform: cachetransform.Node},
			&batchv1.Job{}:  {Transform: cachetransform.Job},
			&v1.Namespace{}: {Transform: cachetransform.Namespace},
		}},
	}
}
