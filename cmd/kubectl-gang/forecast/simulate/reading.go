package simulate

import (
	"context"
	"errors"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/forecast/overlayserver"
	"github.com/lockstep-sh/lockstep/pkg/scheduler"
)

// IsNotFound reports whether an error means that a cluster does not have an object, or its kind.
func IsNotFound(err error) bool {
	var missing *MissingError
	return errors.As(err, &missing)
}

// IsNotAllowed reports whether an error means that the user may not read something.
func IsNotAllowed(err error) bool {
	var notAllowed *overlayserver.NotAllowedError
	return errors.As(err, &notAllowed)
}

// Check returns what is wrong with the question itself, whatever the cluster is like.
func (q *Question) Check() error {
	_, err := readMore(q.nodes)
	return err
}

// Cluster is one that is only read.
type Cluster struct{ base overlayserver.Base }

// Cluster returns the cluster that is asked about, without a scheduler. A live one is not read yet.
func (q *Question) Cluster(a *access.Access) (*Cluster, error) {
	if q.source.dumpFile != "" {
		dump, err := q.source.dump()
		return &Cluster{dump}, err
	}
	config, err := a.Config()
	if err != nil {
		return nil, err
	}
	base, err := overlayserver.Live(config)
	return &Cluster{base}, err
}

// Read reads an object or a list.
func (c *Cluster) Read(ctx context.Context, path string, into any) error {
	return read(ctx, c.base, path, into)
}

// Pods returns all pods of a namespace.
func (c *Cluster) Pods(ctx context.Context, namespace string) ([]*v1.Pod, error) {
	var list v1.PodList
	if err := c.Read(ctx, "/api/v1/namespaces/"+namespace+"/pods", &list); err != nil {
		return nil, err
	}
	pods := make([]*v1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = &list.Items[i]
	}
	return pods, nil
}

// Profiles returns the names of the scheduler's profiles, which pods ask for, in order.
func (s *Simulation) Profiles() []string { return slices.Sorted(maps.Keys(s.scheduler.Profiles)) }

// Reserves reports whether the profile of a pod makes pods use Reservations.
func (s *Simulation) Reserves(pod *v1.Pod) bool { return s.scheduler.Set.Reserves(pod) }

// Line returns where a pod or its gang stands among those that wait, once the scheduler has decided about it; false
// where it does not wait.
func (s *Simulation) Line(pod *v1.Pod) (scheduler.Line, bool) { return s.scheduler.Set.Line(pod) }
