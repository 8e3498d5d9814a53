package simulate

import (
	"context"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/forecast/overlayserver"
)

// Check returns what is wrong with the question itself, whatever the cluster is like.
func (q *Question) Check() error {
	_, err := readMore(q.nodes)
	return err
}

// Cluster is one that is only read.
type Cluster struct{ base overlayserver.Base }

// Cluster returns the cluster that is asked about, without a scheduler. A live one is not read yet.
func (q *Question) Cluster(a *access.Access) (*Cluster, error) {
	base, err := q.source.base(a)
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
	return access.Pointers(list.Items), nil
}

// Profiles returns the names of the scheduler's profiles, which pods ask for, in order.
func (s *Simulation) Profiles() []string { return slices.Sorted(maps.Keys(s.scheduler.Profiles)) }
