// Package whatifcmd is the command that reports what the scheduler would do with pods that are not created.
package whatifcmd

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang-forecast/simulate"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang-forecast/workloadfile"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/command"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/output"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/source"
)

type options struct {
	*access.Access
	files   []string
	preempt bool
	source.Question
}

// New makes the command.
func New(a *access.Access) *cobra.Command {
	o := &options{Access: a}
	cmd := output.Command(&cobra.Command{
		Use:   "whatif -f FILE",
		Short: command.WhatIf,
		Long: `whatif runs the scheduler, with all its plugins and its configuration, on the cluster as it is now and the
pods of the manifests, and tells where they would go, whom they would evict, or why they would wait. Nothing is
written to the cluster.

Manifests may have Pods, Jobs, Deployments, ReplicaSets and StatefulSets, and what their pods need: PodGroups, Queues,
Reservations, ResourceClaims and their templates, StorageClasses, PersistentVolumes and PersistentVolumeClaims. Gangs
that wait in the cluster come first where the scheduler has them first. Pods that are evicted are gone at once, and
are not made again.`,
		Example: `  # Would this Job start now, and where?
  kubectl gang whatif -f job.yaml

  # May it evict others, and whom would it?
  kubectl gang whatif -f job.yaml --preempt

  # With four more nodes like those of pool a100?
  kubectl gang whatif -f job.yaml --nodes +4:a100`,
		Args: cobra.NoArgs,
	}, a.Out, o.run)
	cmd.Flags().StringArrayVarP(&o.files, "filename", "f", nil,
		"Manifests of what would be created; - is the standard input.")
	cmd.Flags().BoolVar(&o.preempt, "preempt", false,
		"The pods may evict others, as far as their preemptionPolicy lets them.")
	o.Question.AddFlags(cmd.Flags())
	_ = cmd.MarkFlagRequired("filename") // it fails only for a flag that does not exist
	return cmd
}

func (o *options) run(ctx context.Context, printer *output.Printer, _ []string) error {
	began := time.Now()
	return simulate.Ask(ctx, o.Access, &o.Question, func(ctx context.Context, simulation *simulate.Simulation,
		more *source.More) error {
		o.Note("using %s", simulation.Origin)
		pods, objects, err := o.read(ctx, simulation)
		if err != nil {
			return err
		}
		if err := simulation.Begin(ctx, objects); err != nil {
			return err
		}
		answer, err := simulation.Decide(ctx, pods)
		if err != nil {
			return err
		}
		beside := simulation.Beside(pods)
		for _, gang := range slices.Sorted(maps.Keys(beside)) {
			o.Note("gang %s has %d pods in the cluster already, which count beside those of the manifests", gang, beside[gang])
		}
		reports := []Report{o.reportOf("now", answer, simulation, time.Since(began))}
		switch {
		case more == nil:
		case answer.Placed() == len(pods) && len(answer.Victims) > 0:
			o.Note("all pods have a place without more nodes: ask without --preempt what these change")
		case answer.Placed() == len(pods):
		case answer.Undecided:
			o.Note("there was no time left to ask with more nodes: see --timeout")
		default:
			title, err := simulation.Add(ctx, more)
			if err != nil {
				return err
			}
			if answer, err = simulation.Decide(ctx, pods); err != nil {
				return err
			}
			reports = append(reports, o.reportOf(title, answer, simulation, time.Since(began)))
		}
		return print(printer, o.Out, reports, o.preempt)
	})
}

// missing returns an error where pods of a manifest are in the cluster already. Where the user may not read that, it is
// noted.
func (o *options) missing(ctx context.Context, simulation *simulate.Simulation, kinds meta.RESTMapper,
	makers []*unstructured.Unstructured) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readAtOnce)
	for _, u := range makers {
		gvk := u.GroupVersionKind()
		mapping, err := kinds.RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			return fmt.Errorf("%s %q: %w", u.GetKind(), u.GetName(), err)
		}
		group.Go(func() error {
			exists, err := simulation.Exists(ctx, mapping.Resource, u.GetNamespace(), u.GetName())
			if source.IsNotAllowed(err) {
				o.Note("whether %s %s/%s is in the cluster already is not known: %v", u.GetKind(),
					u.GetNamespace(), u.GetName(), err)
				return nil
			}
			if exists {
				err = fmt.Errorf("%s %s/%s is in the cluster already: ask about another name, or kubectl gang explain about the "+
					"gang that there is", u.GetKind(), u.GetNamespace(), u.GetName())
			}
			return err
		})
	}
	return group.Wait()
}

// homeless notes namespaces that pods are in and that are neither in the cluster nor in the manifests.
func (o *options) homeless(ctx context.Context, simulation *simulate.Simulation, w *workloadfile.Workload) error {
	known := map[string]bool{}
	for _, u := range w.Objects {
		if u.GetKind() == "Namespace" {
			known[u.GetName()] = true
		}
	}
	for _, pod := range w.Pods {
		if known[pod.Namespace] {
			continue
		}
		known[pod.Namespace] = true
		exists, err := simulation.Exists(ctx, v1.SchemeGroupVersion.WithResource("namespaces"), "", pod.Namespace)
		switch {
		case source.IsNotAllowed(err):
		case err != nil:
			return err
		case !exists:
			o.Note("there is no namespace %s: the answer is as if there were one without labels and limits", pod.Namespace)
		}
	}
	return nil
}

// readAtOnce is how many objects are asked for at a time.
const readAtOnce = 16

// read reads the manifests.
func (o *options) read(ctx context.Context, simulation *simulate.Simulation) ([]*v1.Pod, []simulate.Object, error) {
	namespace, err := o.Namespace(false)
	if err != nil {
		return nil, nil, err
	}
	kinds, err := simulation.Kinds()
	if err != nil {
		return nil, nil, err
	}
	reader := &workloadfile.Reader{Namespace: namespace, Mapper: kinds,
		Cluster: &cluster{ctx, simulation, o.Note}, Now: time.Now()}
	var manifests []*unstructured.Unstructured
	for _, name := range o.files {
		some, err := readFile(name, o.In)
		if err != nil {
			return nil, nil, err
		}
		manifests = append(manifests, some...)
	}
	if err := reader.Read(manifests); err != nil {
		return nil, nil, fmt.Errorf("reading %s: %w", strings.Join(o.files, ", "), err)
	}
	if len(reader.Pods) == 0 {
		return nil, nil, fmt.Errorf("reading %s: there are no pods in it", strings.Join(o.files, ", "))
	}
	if err := o.missing(ctx, simulation, kinds, reader.Makers); err != nil {
		return nil, nil, err
	}
	if err := o.refused(ctx, kinds, reader.Manifests); err != nil {
		return nil, nil, err
	}
	if err := o.homeless(ctx, simulation, &reader.Workload); err != nil {
		return nil, nil, err
	}
	if !o.preempt {
		never := v1.PreemptNever
		for _, pod := range reader.Pods {
			pod.Spec.PreemptionPolicy = &never
		}
	}
	objects, err := reader.Simulated()
	return reader.Pods, objects, err
}

func readFile(name string, in io.Reader) ([]*unstructured.Unstructured, error) {
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("opening a manifest: %w", err)
		}
		defer file.Close()
		in = file
	}
	manifests, err := workloadfile.Decode(in)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	return manifests, nil
}

// cluster is what pods would find in the cluster. What the user may not read is noted, and taken for empty.
type cluster struct {
	ctx        context.Context //nolint:containedctx // the context of one command
	simulation *simulate.Simulation
	note       func(format string, args ...any)
}

// Read implements workloadfile.Cluster.
func (c *cluster) Read(path string, into any) error {
	return c.allowed(c.simulation.Read(c.ctx, path, into))
}

// Exists implements workloadfile.Cluster.
func (c *cluster) Exists(resource schema.GroupVersionResource, namespace, name string) (bool, error) {
	exists, err := c.simulation.Exists(c.ctx, resource, namespace, name)
	return exists, c.allowed(err)
}

func (c *cluster) allowed(err error) error {
	if source.IsNotAllowed(err) {
		c.note("%v: the answer is as if there were none", err)
		return nil
	}
	return err
}
