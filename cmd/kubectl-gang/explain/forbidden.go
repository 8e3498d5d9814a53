package explain

import (
	"context"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/source"
)

// unread says why the scheduler could not be asked, and for missing rights which. It asks for nodes, volumes and pods
// first, so that what is refused has a name that users know.
func (o *options) unread(ctx context.Context, cluster *source.Cluster, why error) string {
	if !source.IsNotAllowed(why) {
		return why.Error()
	}
	for _, resource := range []string{"nodes", "persistentvolumes", "pods"} {
		var list struct{}
		_ = cluster.Read(ctx, "/api/v1/"+resource+"?limit=1", &list) // Access notes a refusal
	}
	if refused := o.Refused(); refused != "" {
		return "that takes reading the whole cluster; " + refused
	}
	return why.Error()
}
