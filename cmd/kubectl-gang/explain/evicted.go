package explain

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/source"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
)

// evicted reports on a gang of which nothing is left since it was evicted; nil for any other.
func evicted(ctx context.Context, cluster *source.Cluster, gang string) *Report {
	namespace, name, _ := strings.Cut(gang, "/")
	for _, g := range cluster.WithEvicted(ctx, namespace, nil) {
		if g.Name == name {
			r := newReport(gang, nil, &g)
			r.tell(&g, nil)
			r.judge(&g)
			return r
		}
	}
	return nil
}

// tellEviction adds when a gang was evicted, and for whom, while all of it waits for nodes since. Until its pods are
// made again, its condition says so.
func (r *Report) tellEviction(ctx context.Context, cluster *source.Cluster, g *view.Gang, now time.Time) {
	if allWaits := r.Waiting > 0 && r.Bound == 0; !allWaits || g.Reason == v1alpha1.ReasonEvicted {
		return
	}
	if at, preemptor := cluster.LastEviction(ctx, r.Gang); preemptor != "" {
		r.Advice = append(r.Advice, fmt.Sprintf("It was evicted %s ago for %s",
			duration.HumanDuration(max(0, now.Sub(at))), preemptor))
	}
}
