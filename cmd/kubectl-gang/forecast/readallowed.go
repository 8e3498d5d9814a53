package forecast

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/forecast/simulate"
)

// cluster is what pods would find in the cluster. What the user may not read is noted, and taken for empty.
type cluster struct {
	ctx        context.Context //nolint:containedctx // the context of one command
	simulation *simulate.Simulation
	note       func(format string, args ...any)
}

// Read implements workload.Cluster.
func (c *cluster) Read(path string, into any) error {
	return c.allowed(c.simulation.Read(c.ctx, path, into))
}

// Exists implements workload.Cluster.
func (c *cluster) Exists(resource schema.GroupVersionResource, namespace, name string) (bool, error) {
	exists, err := c.simulation.Exists(c.ctx, resource, namespace, name)
	return exists, c.allowed(err)
}

func (c *cluster) allowed(err error) error {
	if simulate.IsNotAllowed(err) {
		c.note("%v: the answer is as if there were none", err)
		return nil
	}
	return err
}
