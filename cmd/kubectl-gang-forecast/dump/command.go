// Package dump is the command that saves what a scheduler reads of a cluster, for what-if questions elsewhere.
package dump

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang-forecast/simulate"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/command"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/source"
)

type options struct {
	*access.Access
	file    string
	from    source.Source
	timeout time.Duration
}

// New makes the command.
func New(a *access.Access) *cobra.Command {
	o := &options{Access: a}
	cmd := &cobra.Command{
		Use:   "dump -f FILE",
		Short: command.Dump,
		Long: `dump saves the nodes, pods, gangs, queues and whatever else the scheduler reads, and its configuration, in a
file that explain and whatif take for the cluster. Commands, arguments, environments and probes of containers are left
out. What is read is listed kind by kind, so what changes meanwhile may be in one list and not in another.`,
		Example: `  kubectl gang dump -f cluster.dump
  kubectl gang whatif --dump cluster.dump -f job.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	cmd.Flags().StringVarP(&o.file, "filename", "f", "", "The file to write.")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 2*time.Minute, "How long it may take.")
	o.from.AddFlags(cmd.Flags())
	_ = cmd.MarkFlagRequired("filename") // it fails only for a flag that does not exist
	return cmd
}

func (o *options) run(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	ground, err := simulate.Open(ctx, o.Access, &o.from)
	if err != nil {
		return err
	}
	o.Note("using %s", ground.Origin)
	recorder := source.NewRecorder(ground.Base, string(ground.SchedulerConfig))
	if err := record(ctx, ground, recorder); err != nil {
		return err
	}
	file, err := os.OpenFile(o.file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) // it reveals much of a cluster
	if err != nil {
		return fmt.Errorf("writing the dump: %w", err)
	}
	err = recorder.Write(file)
	if closed := file.Close(); err == nil && closed != nil {
		err = fmt.Errorf("writing the dump: %w", closed)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(o.Out, "%s has the answers to %d requests\n", o.file, recorder.Reads())
	return err
}

// besides is what the scheduler does not read: what pods are made with, and those that failed.
var besides = []string{"/api/v1/pods?fieldSelector=status.phase%3DFailed", "/api/v1/limitranges",
	"/apis/resource.k8s.io/v1/resourceclaimtemplates", "/apis/node.k8s.io/v1/runtimeclasses"}

// record makes a scheduler read all that it needs.
func record(ctx context.Context, ground *simulate.Environment, recorder *source.Recorder) error {
	ground.Base = recorder
	simulation, err := simulate.New(ground)
	if err != nil {
		return err
	}
	defer simulation.Close()
	if err := simulation.Read(ctx, "/apis/scheduling.k8s.io/v1/priorityclasses",
		&unstructured.UnstructuredList{}); err != nil {
		return err
	}
	if _, err := simulation.Kinds(); err != nil {
		return err
	}
	for _, path := range besides {
		var list unstructured.UnstructuredList
		if err := simulation.Read(ctx, path, &list); err != nil { // the dump answers for the rest
			klog.FromContext(ctx).V(1).Info("Left out a kind of object", "path", path, "reason", err)
		}
	}
	if err := simulation.Start(ctx); err != nil {
		return err
	}
	return simulation.Ready(ctx)
}
