package explain

import (
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/source"
)

// leaderless returns why no scheduler leads, by its lease; empty where one does, or none has to. Where the scheduler's
// configuration is not known, it may need no lease. A lease that cannot be read is an error.
func leaderless(ctx context.Context, read reader, of source.Origin) (string, error) {
	name := of.Lease
	if name == "" {
		return "", nil
	}
	namespace, lease, _ := strings.Cut(name, "/")
	var found coordinationv1.Lease
	err := read(ctx, "/apis/coordination.k8s.io/v1/namespaces/"+namespace+"/leases/"+lease, &found)
	switch {
	case apierrors.IsNotFound(err) && of.BuiltIn != "":
		return "", nil
	case apierrors.IsNotFound(err):
		return "there is no lease " + name, nil
	case err != nil:
		return "", err
	}
	return expired(&found, time.Now()), nil
}

// expired returns why a lease has no holder; empty if it has one.
func expired(lease *coordinationv1.Lease, now time.Time) string {
	spec := &lease.Spec
	name := lease.Namespace + "/" + lease.Name
	if spec.HolderIdentity == nil || *spec.HolderIdentity == "" || spec.RenewTime == nil ||
		spec.LeaseDurationSeconds == nil {
		return fmt.Sprintf("nobody holds the lease %s", name)
	}
	end := spec.RenewTime.Add(time.Duration(*spec.LeaseDurationSeconds) * time.Second)
	if ago := now.Sub(end); ago > 0 {
		return fmt.Sprintf("the lease %s has expired %s ago", name, duration.HumanDuration(ago))
	}
	return ""
}
