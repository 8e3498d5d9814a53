package explain

import (
	"context"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang-forecast/simulate"
	"github.com/lockstep-sh/lockstep/pkg/view"
)

// aloneTimeout is how long reading takes at most where no scheduler can be asked: the time for an answer may be over by
// then.
const aloneTimeout = 10 * time.Second

// unread says what the user may not read that the scheduler reads. The error has whatever was refused first, so that it is
// asked about what users know.
func (o *options) unread(ctx context.Context, cluster *simulate.Cluster, why error) string {
	for _, resource := range []string{"nodes", "persistentvolumes", "pods"} {
		var list struct{}
		_ = cluster.Read(ctx, "/api/v1/"+resource+"?limit=1", &list) // Access notes a refusal
	}
	if refused := o.Refused(); refused != "" {
		return "that takes reading the whole cluster; " + refused
	}
	return why.Error()
}

// alone reports what is known of a gang without the scheduler, and why that could not be asked. It fails where not even
// the pods can be read.
func (o *options) alone(ctx context.Context, gang string, why error) (*Report, error) {
	cluster, err := o.Cluster(o.Access)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, aloneTimeout)
	defer cancel()
	var beside *beside
	read := make(chan struct{})
	go func() {
		defer close(read)
		beside = readBeside(ctx, cluster.Read, gang)
	}()
	pods, err := cluster.Pods(ctx, gang[:strings.Index(gang, "/")])
	if err != nil {
		return nil, fmt.Errorf("%w; and the scheduler could not be asked: %w", err, why)
	}
	<-read
	members := sorted(pods, func(pod *v1.Pod) bool { return view.GangOf(pod) == gang })
	g := beside.row(gang, members)
	if g == nil {
		return nil, fmt.Errorf("%w; and the scheduler could not be asked: %w",
			o.unknown(ctx, cluster.Read, gang, strings.Join(beside.notes, "; ")), why)
	}
	r := newReport(gang, members)
	if g.Minimum > 0 || beside.groupsRead { // or else its PodGroup may say more than its pods
		r.tell(g, nil)
	}
	defer r.judge(g)
	r.Unasked, r.Notes = why.Error(), beside.notes
	if simulate.IsNotAllowed(why) {
		r.Unasked = o.unread(ctx, cluster, why)
	}
	if r.reserve(beside.reservations, waiting(members)); len(r.Reservations) == 0 {
		r.Reservations = nil // whether its profile uses any is not known
	}
	if g.Queue == v1alpha1.DefaultQueue && len(beside.of.Namespaces) == 0 {
		return r, nil // its namespace may name another
	}
	switch q, err := readQueue(ctx, cluster.Read, g.Queue); {
	case err == nil:
		r.Queue = q
	case !apierrors.IsNotFound(err): // where it is, there may be no queues at all
		r.Notes = append(r.Notes, "the numbers of its queue "+g.Queue+" are not known: "+err.Error())
	}
	return r, nil
}
