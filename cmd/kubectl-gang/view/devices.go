package view

import (
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/lockstep-sh/lockstep/pkg/planning/clusterdevices"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/deviceclaims"
)

// Devices are those of Dynamic Resource Allocation. They count as in the status of queues.
type Devices struct {
	// Counts are the devices that nodes have; nil for none.
	Counts *clusterdevices.Counts
	// Claims, and the templates of those not created yet, say which devices pods ask for.
	Claims    []*resourceapi.ResourceClaim
	Templates []*resourceapi.ResourceClaimTemplate
}

// addTo returns nodes with the devices that they have, and what pods that have not ended ask for, devices included.
func (d Devices) addTo(nodes []*v1.Node, pods []*v1.Pod) ([]*v1.Node, *deviceclaims.Claims) {
	if d.Counts == nil {
		d.Counts = clusterdevices.NewCounts(nil)
	}
	with := make([]*v1.Node, len(nodes))
	for i, node := range nodes {
		with[i] = d.Counts.WithDevices(node)
	}
	claims := deviceclaims.New(d.Counts)
	for _, claim := range d.Claims {
		claims.Set(claim)
	}
	for _, template := range d.Templates {
		claims.SetTemplate(template)
	}
	for _, pod := range pods {
		if !objectstate.HasEnded(pod) {
			claims.SetPod(pod, NamedGang(pod))
		}
	}
	return with, claims
}
