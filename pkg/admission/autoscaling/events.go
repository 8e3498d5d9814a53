package autoscaling

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/placement/topology"
	"github.com/lockstep-sh/lockstep/pkg/status"
)

// Reasons of events.
const (
	// EventRequested: nodes are requested.
	EventRequested = "ProvisioningRequested"
	// EventNotRequested: nodes cannot be requested.
	EventNotRequested = "ProvisioningNotRequested"
	// EventEnded: the autoscaler has finished with the request, and the gang still waits.
	EventEnded = "ProvisioningEnded"

	actionProvisioning = "Provisioning"
)

// Role is the manifest with the permissions that the scheduler needs.
const Role = "manifests/rbac/provisioning-requests.yaml"

func requested(e gangstate.Explanation, name string) status.Event {
	return about(e, v1.EventTypeNormal, EventRequested,
		fmt.Sprintf("ProvisioningRequest %q asks for nodes for %d pods in one %s", name, len(e.Pending),
			topology.ShortKey(e.Topology)))
}

func notRequested(e gangstate.Explanation, err error) status.Event {
	return about(e, v1.EventTypeWarning, EventNotRequested,
		fmt.Sprintf("no ProvisioningRequest can be made for gang %q: %v", e.Gang, err))
}

// forbidden returns the event that names the manifest with the permissions.
func forbidden(e gangstate.Explanation, err error) status.Event {
	return about(e, v1.EventTypeWarning, EventNotRequested,
		fmt.Sprintf("no ProvisioningRequest can be made for gang %q: %v; if its account may not, apply %s", e.Gang, err,
			Role))
}

func ended(e gangstate.Explanation, name, why string) status.Event {
	return about(e, v1.EventTypeWarning, EventEnded,
		fmt.Sprintf("ProvisioningRequest %q has ended, and gang %q still waits (%s); delete it to have it made again", name,
			e.Gang, why))
}

// about returns an event on the PodGroup, or where there is none on the first member that waits.
func about(e gangstate.Explanation, kind, reason, note string) status.Event {
	var on runtime.Object = e.Pending[0]
	if e.Object.UID != "" {
		on = status.PodGroupReference(e.Object.Kind.APIVersion(), e.Gang.Namespace, e.Gang.Name, e.Object.UID)
	}
	return status.Event{On: on, Type: kind, Reason: reason, Action: actionProvisioning, Note: note}
}
